"""What an environment finds in its cluster: Domino, its mesh, and the Prometheus operator."""

from components import DominoArgs, MeshArgs, MonitoringArgs

from ..stack import Stack


def domino(stack: Stack) -> DominoArgs | None:
    """Return the integration with Domino; None where there is no such platform."""
    settings = stack.platform.domino
    if settings is None:
        return None
    return DominoArgs(
        platform_namespace=settings.platform_namespace,
        compute_namespace=settings.compute_namespace,
        mesh=MeshArgs(mtls=settings.mesh.mtls, namespace=settings.mesh.namespace) if settings.mesh else None,
    )


def monitoring(stack: Stack) -> MonitoringArgs | None:
    """Return what the Prometheus operator is told; None where there is no operator."""
    settings = stack.platform.monitoring
    if not settings.operator:
        return None
    return MonitoringArgs(
        labels=dict(settings.labels), interval_seconds=settings.interval_seconds, rules=settings.rules
    )
