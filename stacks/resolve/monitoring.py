"""Monitors, alerts, and the mesh's rule for the proxy."""

from components import AlertArgs, MeshArgs, MonitoringArgs

from ..stack import Stack
from . import names


def monitoring(stack: Stack) -> MonitoringArgs | None:
    """Return what the Prometheus operator watches; None where there is no operator."""
    settings = stack.platform.monitoring
    if not settings.operator:
        return None
    return MonitoringArgs(
        namespace=stack.namespace,
        labels={**settings.labels, **names.labels(stack, "monitoring")},
        interval=f"{settings.interval_seconds}s",
        proxy_selector=names.proxy_selector(stack),
        server_selector=names.server_selector(stack),
        on_demand_selector=names.on_demand_selector(stack),
        alerts=_alerts(stack) if settings.rules else None,
    )


def mesh(stack: Stack) -> MeshArgs | None:
    """Return the proxy's PeerAuthentication; None where there is no mesh."""
    domino = stack.platform.domino
    if domino is None or domino.mesh is None:
        return None
    return MeshArgs(
        name=names.PROXY,
        labels=names.labels(stack, names.PROXY),
        selector=names.proxy_selector(stack),
        mtls=domino.mesh.mtls,
    )


def _alerts(stack: Stack) -> list[AlertArgs]:
    """Return alerts on what Triton and Prometheus themselves measure.

    A series that is missing is no zero: a Triton that cannot be read shows as `up`, not as quiet.
    """
    here = f'namespace="{stack.namespace}"'
    return [
        AlertArgs(
            name="TidegateTargetDown",
            expression=f"up{{{here}}} == 0",
            duration="5m",
            severity="critical",
            summary="A proxy, Triton or eviction policy has not answered Prometheus for five minutes.",
        ),
        AlertArgs(
            name="TidegateRequestsFail",
            expression=f"sum by (pod, model) (rate(nv_inference_request_failure{{{here}}}[5m]))"
            f" > 0.05 * (sum by (pod, model) (rate(nv_inference_request_success{{{here}}}[5m]))"
            f" + sum by (pod, model) (rate(nv_inference_request_failure{{{here}}}[5m])))",
            duration="10m",
            severity="warning",
            summary="More than 5 % of a model's requests have failed in Triton for ten minutes.",
        ),
        AlertArgs(
            name="TidegateQueueGrows",
            expression=f"sum by (pod, model) (rate(nv_inference_queue_duration_us{{{here}}}[5m]))"
            f" / sum by (pod, model) (rate(nv_inference_request_success{{{here}}}[5m])) > 500000",
            duration="10m",
            severity="warning",
            summary="Requests of a model have waited longer than half a second in Triton's queue for ten minutes.",
        ),
    ]
