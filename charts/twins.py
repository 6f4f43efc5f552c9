"""The classes of arguments and the parts of the definition that say the same: what one allows, the other does."""

from collections.abc import Mapping
from typing import Any, get_origin, get_type_hints

from pydantic import BaseModel

import components
from stacks.definition import base, datasets, environment, models, placement, proxy, servers

from .arguments import bare, classes, is_list, item_type, meaning, without_none

TWINS: Mapping[type, type[BaseModel]] = {
    components.AccessRuleArgs: proxy.AccessRule,
    components.CertificateArgs: proxy.CertManagerTls,
    components.CpuScalingArgs: base.CpuScaling,
    components.CsiSourceArgs: datasets.CsiDataset,
    components.DatasetVolumeArgs: datasets.CsiDataset,
    components.DnsArgs: environment.Dns,
    components.DominoArgs: environment.Domino,
    components.DraArgs: placement.DraPlacement,
    components.HostPathSourceArgs: datasets.HostPathDataset,
    components.HttpRouteArgs: proxy.HttpRouteExposure,
    components.IngressArgs: proxy.IngressExposure,
    components.LoadBalancerArgs: proxy.LoadBalancerExposure,
    components.MeshArgs: environment.Mesh,
    components.MigArgs: placement.MigPlacement,
    components.ModelArgs: models.Model,
    components.MonitoringArgs: environment.Monitoring,
    components.NfsSourceArgs: datasets.NfsDataset,
    components.OidcIssuerArgs: proxy.OidcIssuer,
    components.OnDemandArgs: servers.OnDemand,
    components.PreloadArgs: servers.Preload,
    components.ProxyArgs: proxy.Proxy,
    components.QueueScalingArgs: servers.QueueScaling,
    components.RateLimitArgs: proxy.RateLimit,
    components.ResourcesArgs: base.Resources,
    components.SharedGpuArgs: placement.SharedGpuPlacement,
    components.TimeoutsArgs: proxy.Timeouts,
    components.TolerationArgs: base.Toleration,
    components.TritonPoolArgs: servers.Pool,
    components.TritonServerArgs: servers.TritonServer,
    components.TritonSettingsArgs: servers.TritonSettings,
    components.VersionArgs: models.VersionTraffic,
    components.WarmWindowArgs: servers.WarmWindow,
    components.WholeGpuArgs: placement.GpuPlacement,
}


def type_in_definition(owner: type, name: str, kind: Any) -> Any:
    """Return the type that the definition gives to an argument of this name, where it is a plain value or a list.

    Where the definition has none of that name, the argument's own type is returned; likewise for images, which the
    definition names and the resolved environment spells out.
    """
    twin = TWINS.get(owner)
    if twin is None or name not in twin.model_fields or meaning(kind) == "image":
        return kind
    theirs = without_none(get_type_hints(twin, include_extras=True)[name])
    inner = bare(item_type(theirs))
    plain = get_origin(inner) is not dict and not isinstance(inner, type(BaseModel)) and not classes(item_type(kind))
    return theirs if plain and is_list(theirs) == is_list(kind) else kind
