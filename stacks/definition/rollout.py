"""How a change is rolled out over data planes: which goes first, how many together, what must hold before the next."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .base import HTTP_URL, DnsLabel, EnvironmentName, HttpPath, Port, Seconds, Section, ServiceLabel, Text, form

WebAddress = Annotated[str, form(HTTP_URL, "https://inference.example.com/v2/health/ready")]


class _FreeProbe(Section):
    body: Text | None = None
    """JSON to send by POST, such as an inference request; a GET without."""
    token_variable: EnvironmentName | None = None
    """Environment variable of `tidegate rollout` that holds a bearer token to send along."""


class PortForwardProbe(_FreeProbe):
    """A request to one of the proxy's pods by `kubectl port-forward`; its certificate is not checked on this way."""

    kind: Literal["port-forward"]
    """Kind of the probe."""
    path: HttpPath = "/v2/health/ready"
    """What is asked for."""


class UrlProbe(_FreeProbe):
    """A request to an address, from where `tidegate rollout` runs; each data plane may say its own."""

    kind: Literal["url"]
    """Kind of the probe."""
    url: WebAddress
    """The address."""

    @model_validator(mode="after")
    def _tokens_travel_encrypted(self) -> Self:
        """A bearer token is sent by https only."""
        if self.token_variable is not None and not self.url.startswith("https://"):
            raise ValueError(f"{self.url} is not encrypted, and tokenVariable would send a token there; say https://")
        return self


Probe = Annotated[PortForwardProbe | UrlProbe, Field(discriminator="kind")]


class MonitoringService(Section):
    """A Service of the data plane, asked through the API server's service proxy."""

    namespace: DnsLabel = "monitoring"
    """Its namespace."""
    name: ServiceLabel
    """Its name."""
    port: Port
    """Its port."""
    https: bool = False
    """Whether it speaks HTTPS."""


class Alerts(Section):
    """Where to ask whether an alert fires; those count whose label `namespace` is the environment's.

    Those of severity `info` do not: they tell of days, and would keep out what mends them.
    """

    kind: Literal["prometheus", "alertmanager"]
    """What is asked: Prometheus, or an Alertmanager, which leaves out what is silenced."""
    service: MonitoringService | None = None
    """The Service to ask."""
    url: WebAddress | None = None
    """Its address instead, as seen from where `tidegate rollout` runs."""
    ignore: tuple[Text, ...] = ()
    """Names of alerts that do not count."""

    @model_validator(mode="after")
    def _a_service_or_an_address(self) -> Self:
        """Alerts are asked of a Service or of an address."""
        if (self.service is None) == (self.url is None):
            raise ValueError("say where alerts are asked: service or url, and not both")
        return self


class Gate(Section):
    """What must hold before a rollout goes on: workloads available, proxy ready, and what is said here."""

    timeout_seconds: Seconds = 900
    """How long to wait for all of it."""
    settle_seconds: Annotated[int, Field(ge=0, le=86_400)] = 10
    """How long all of it must then hold without a break."""
    probe: Probe | None = None
    """A request that must be answered with a 2xx status."""
    alerts: Alerts | None = None
    """No alert may fire there."""

    @model_validator(mode="after")
    def _there_is_time_to_settle(self) -> Self:
        """The time to settle lies within the time-out."""
        if self.settle_seconds >= self.timeout_seconds:
            times = f"settleSeconds {self.settle_seconds} is not less than timeoutSeconds {self.timeout_seconds}"
            raise ValueError(times)
        return self


class RolloutOrder(Section):
    """How an environment comes to its data planes; their `wave` says the rest."""

    canary: DnsLabel | None = None
    """Data plane that goes first, alone; the first one of the lowest wave by default."""
    max_parallel: Annotated[int, Field(ge=1, le=50)] = 4
    """How many data planes of one wave at the same time, at the most."""
    engine_timeout_seconds: Seconds = 3600
    """How long an engine may work on one data plane before it is interrupted."""
