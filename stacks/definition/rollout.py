"""Rollouts over data planes: their order, their parallelism, and the health gate after each data plane."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from .base import HTTP_URL, DnsLabel, EnvironmentName, HttpPath, Port, Seconds, Section, ServiceLabel, Text, form

WebAddress = Annotated[str, form(HTTP_URL, "https://inference.example.com/v2/health/ready")]


class _FreeProbe(Section):
    body: Text | None = None
    """JSON body of a POST. Without it, the probe is a GET."""
    token_variable: EnvironmentName | None = None
    """Environment variable of `tidegate rollout` with a bearer token."""


class PortForwardProbe(_FreeProbe):
    """To a pod of the proxy through `kubectl port-forward`, without verification of its certificate."""

    kind: Literal["port-forward"]
    """Kind of the probe."""
    path: HttpPath = "/v2/health/ready"
    """Path."""


class UrlProbe(_FreeProbe):
    """From the machine that runs `tidegate rollout`."""

    kind: Literal["url"]
    """Kind of the probe."""
    url: WebAddress
    """Address."""

    @model_validator(mode="after")
    def _tokens_travel_encrypted(self) -> Self:
        if self.token_variable is not None and not self.url.startswith("https://"):
            raise ValueError(f"{self.url} is not encrypted, but tokenVariable would send a token there: set https://")
        return self


Probe = Annotated[PortForwardProbe | UrlProbe, Field(discriminator="kind")]


class MonitoringService(Section):
    """A Service of the data plane, reached through the API server's service proxy."""

    namespace: DnsLabel = "monitoring"
    """Namespace."""
    name: ServiceLabel
    """Name."""
    port: Port
    """Port."""
    https: bool = False
    """Whether it serves HTTPS."""


class Alerts(Section):
    """Firing alerts whose label `namespace` is the environment's stop a rollout, except those of severity `info`."""

    kind: Literal["prometheus", "alertmanager"]
    """Prometheus, or an Alertmanager, which omits silenced alerts."""
    service: MonitoringService | None = None
    """Its Service, through the API server."""
    url: WebAddress | None = None
    """Its address from the machine that runs `tidegate rollout`, instead of service."""
    ignore: tuple[Text, ...] = ()
    """Names of alerts to ignore."""

    @model_validator(mode="after")
    def _a_service_or_an_address(self) -> Self:
        if (self.service is None) == (self.url is None):
            raise ValueError("set exactly one of service and url, the address of the alerts")
        return self


class Gate(Section):
    """Checks of a data plane before a rollout continues: available workloads, a ready proxy, and these."""

    timeout_seconds: Seconds = 900
    """Timeout of all checks."""
    settle_seconds: Annotated[int, Field(ge=0, le=86_400)] = 10
    """Seconds for which all checks must then pass without interruption."""
    probe: Probe | None = None
    """Request that must return a 2xx status."""
    alerts: Alerts | None = None
    """Source of alerts, none of which may fire."""

    @model_validator(mode="after")
    def _there_is_time_to_settle(self) -> Self:
        if self.settle_seconds >= self.timeout_seconds:
            times = f"settleSeconds {self.settle_seconds} is not less than timeoutSeconds {self.timeout_seconds}"
            raise ValueError(f"{times}: lower settleSeconds, or raise timeoutSeconds")
        return self


class RolloutOrder(Section):
    """Order of a rollout of the environment over its data planes, together with their `wave`."""

    canary: DnsLabel | None = None
    """First data plane, alone. The default is the first of the lowest wave."""
    max_parallel: Annotated[int, Field(ge=1, le=50)] = 4
    """Most data planes of one wave at the same time."""
    engine_timeout_seconds: Seconds = 3600
    """Timeout of Pulumi or Helm on one data plane."""
