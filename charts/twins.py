"""The classes of arguments and the parts of the definition that say the same: what one allows, the other does."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel
from pydantic.fields import FieldInfo

import components
from stacks import definition
from stacks.definition import base, datasets, environment, models, placement, proxy, servers

TWINS: Mapping[type, type[BaseModel]] = {
    components.AccessRuleArgs: proxy.AccessRule,
    components.AuthArgs: proxy.Auth,
    components.AwsIdentityArgs: servers.AwsIdentity,
    components.AzureIdentityArgs: servers.AzureIdentity,
    components.CallerArgs: environment.Caller,
    components.CertificateArgs: proxy.CertManagerTls,
    components.CpuScalingArgs: base.CpuScaling,
    components.CsiSourceArgs: datasets.CsiDataset,
    components.DatasetVolumeArgs: datasets.CsiDataset,
    components.DnsArgs: environment.Dns,
    components.DominoArgs: environment.Domino,
    components.DraArgs: placement.DraPlacement,
    components.EnvironmentArgs: definition.Platform,
    components.GcpIdentityArgs: servers.GcpIdentity,
    components.HostPathSourceArgs: datasets.HostPathDataset,
    components.HttpRouteArgs: proxy.HttpRouteExposure,
    components.IngressArgs: proxy.IngressExposure,
    components.LoadBalancerArgs: proxy.LoadBalancerExposure,
    components.MeshArgs: environment.Mesh,
    components.MigArgs: placement.MigPlacement,
    components.MirrorArgs: models.Mirror,
    components.ModelArgs: models.Model,
    components.MonitoringArgs: environment.Monitoring,
    components.NamespaceArgs: definition.Environment,
    components.NetworkBoundaryArgs: environment.Network,
    components.NfsSourceArgs: datasets.NfsDataset,
    components.ObjectStoreRepositoryArgs: datasets.ObjectStoreRepository,
    components.OidcIssuerArgs: proxy.OidcIssuer,
    components.OnDemandArgs: servers.OnDemand,
    components.PolicyResourcesArgs: base.PolicyResources,
    components.PreloadArgs: servers.Preload,
    components.PrometheusPeerArgs: environment.PrometheusPeer,
    components.ProxyArgs: proxy.Proxy,
    components.QueueScalingArgs: servers.QueueScaling,
    components.RateLimitArgs: proxy.RateLimit,
    components.ReachArgs: environment.Reach,
    components.ResourcesArgs: base.Resources,
    components.SharedGpuArgs: placement.SharedGpuPlacement,
    components.TimeoutsArgs: proxy.Timeouts,
    components.TolerationArgs: base.Toleration,
    components.TracingArgs: proxy.Tracing,
    components.TritonPoolArgs: servers.Pool,
    components.TritonResourcesArgs: base.TritonResources,
    components.TritonServerArgs: servers.TritonServer,
    components.TritonSettingsArgs: servers.TritonSettings,
    components.VersionArgs: models.VersionTraffic,
    components.WarmWindowArgs: servers.WarmWindow,
    components.WholeGpuArgs: placement.GpuPlacement,
}


# Where the definition says it elsewhere, or in another way.
ELSEWHERE: Mapping[tuple[type, str], tuple[type[BaseModel], str]] = {
    (components.ModelArgs, "footprint_bytes"): (models.Model, "footprint"),
    (components.NamespaceArgs, "name"): (definition.Environment, "namespace"),
    (components.NetworkBoundaryArgs, "prometheus"): (environment.Monitoring, "prometheus"),
    (components.OnDemandArgs, "capacity_bytes"): (servers.OnDemand, "capacity"),
    (components.ProxyArgs, "body_limit_bytes"): (proxy.Proxy, "body_limit"),
    (components.TritonSettingsArgs, "metrics_interval_milliseconds"): (servers.TritonMetrics, "interval_milliseconds"),
    (components.VolumeRepositoryArgs, "claim"): (datasets.ClaimDataset, "claim_name"),
    (components.VolumeRepositoryArgs, "sub_path"): (datasets.DatasetRepository, "path"),
}


@dataclass(frozen=True)
class Twin:
    """What the definition says of an argument."""

    type: Any
    """Its type, with whatever stands beside it."""
    field: FieldInfo


def twin_of(owner: type, name: str) -> Twin | None:
    """Return what the definition says of an argument of a class; None where it knows none of that name."""
    model, name = ELSEWHERE.get((owner, name), (TWINS.get(owner), name))
    if model is None or name not in model.model_fields:
        return None
    return Twin(get_type_hints(model, include_extras=True)[name], model.model_fields[name])
