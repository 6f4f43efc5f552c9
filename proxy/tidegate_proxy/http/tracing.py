"""The span of one request, where calls are traced."""

from ..targets import Target
from ..telemetry.records import CallRecord
from ..telemetry.traces import Tracer
from .head import HttpHead


class RequestTrace:
    """Begun with the request: where it is sampled, the proxy's span is the parent of what is asked of the replica."""

    def __init__(self, tracer: Tracer, head: HttpHead) -> None:
        self._tracer = tracer
        self._head = head
        self._span, self.passed = tracer.over_http(head.passed)

    def ended(self, target: Target, status: int, record: CallRecord) -> None:
        """Hand the span to the collector, if the request is sampled."""
        if self._span.sampled:
            tail = "" if target.verb == "metadata" else f"/{target.verb}"
            more = {
                "network.protocol.version": "1.1" if self._head.http_11 else "1.0",
                "http.request.body.size": record.bytes_in,
                "http.response.body.size": record.bytes_out,
                **record.span_fields(),
            }
            route = f"{target.method.decode()} /v2/models/{{model}}{tail}"
            self._tracer.http_ended(self._span, route, status, record.seconds, more)
