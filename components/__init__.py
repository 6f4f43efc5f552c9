"""Typed Pulumi components of an inference environment, one file per noun. Any Pulumi program can use them.

They compose names, labels and files of what they are told, and compute nothing: `stacks.resolve` fills their arguments
from the definition, and other programs may fill them themselves. `evaluate` runs them in process, without Pulumi's
engine; with placeholders for the arguments (`components.values`) they become the chart's templates.
"""

from .dataset_volume import CsiSourceArgs, DatasetVolume, DatasetVolumeArgs, HostPathSourceArgs, NfsSourceArgs
from .domino import DominoArgs, Mesh, MeshArgs
from .environment import ClaimArgs, Environment, EnvironmentArgs, NamespaceArgs, PullSecretArgs
from .evaluate import evaluate
from .exposure import proxy_address
from .gpu_placement import CpuArgs, DraArgs, GpuPlacement, MigArgs, PlacementArgs, SharedGpuArgs, WholeGpuArgs
from .identity import AwsIdentityArgs, AzureIdentityArgs, GcpIdentityArgs, IdentityArgs
from .monitoring import Monitoring, MonitoringArgs
from .network_boundary import CallerArgs, DnsArgs, NetworkBoundary, NetworkBoundaryArgs, PrometheusPeerArgs, ReachArgs
from .place import Place
from .pods import ResourcesArgs, SecretArgs, TolerationArgs
from .proxy import Proxy
from .proxy_args import (
    AccessRuleArgs,
    AuthArgs,
    CertificateArgs,
    ClusterIpArgs,
    ExposureArgs,
    HttpRouteArgs,
    IngressArgs,
    LoadBalancerArgs,
    OidcIssuerArgs,
    ProxyArgs,
    RateLimitArgs,
    TimeoutsArgs,
    TlsArgs,
    TracingArgs,
)
from .scaling import CpuScalingArgs, QueueScalingArgs
from .triton_pool import TritonPool
from .triton_server import (
    EnginePatience,
    MirrorArgs,
    ModelArgs,
    ObjectStoreRepositoryArgs,
    OnDemandArgs,
    PolicyResourcesArgs,
    PreloadArgs,
    TritonPoolArgs,
    TritonResourcesArgs,
    TritonServerArgs,
    TritonSettingsArgs,
    VersionArgs,
    VolumeRepositoryArgs,
    WarmWindowArgs,
)

__all__ = [
    "AccessRuleArgs",
    "AuthArgs",
    "AwsIdentityArgs",
    "AzureIdentityArgs",
    "CallerArgs",
    "CertificateArgs",
    "ClaimArgs",
    "ClusterIpArgs",
    "CpuArgs",
    "CpuScalingArgs",
    "CsiSourceArgs",
    "DatasetVolume",
    "DatasetVolumeArgs",
    "DnsArgs",
    "DominoArgs",
    "DraArgs",
    "EnginePatience",
    "Environment",
    "EnvironmentArgs",
    "ExposureArgs",
    "GcpIdentityArgs",
    "GpuPlacement",
    "HostPathSourceArgs",
    "HttpRouteArgs",
    "IdentityArgs",
    "IngressArgs",
    "LoadBalancerArgs",
    "Mesh",
    "MeshArgs",
    "MigArgs",
    "MirrorArgs",
    "ModelArgs",
    "Monitoring",
    "MonitoringArgs",
    "NamespaceArgs",
    "NetworkBoundary",
    "NetworkBoundaryArgs",
    "NfsSourceArgs",
    "ObjectStoreRepositoryArgs",
    "OidcIssuerArgs",
    "OnDemandArgs",
    "Place",
    "PlacementArgs",
    "PolicyResourcesArgs",
    "PreloadArgs",
    "PrometheusPeerArgs",
    "Proxy",
    "ProxyArgs",
    "PullSecretArgs",
    "QueueScalingArgs",
    "RateLimitArgs",
    "ReachArgs",
    "ResourcesArgs",
    "SecretArgs",
    "SharedGpuArgs",
    "TimeoutsArgs",
    "TlsArgs",
    "TolerationArgs",
    "TracingArgs",
    "TritonPool",
    "TritonPoolArgs",
    "TritonResourcesArgs",
    "TritonServerArgs",
    "TritonSettingsArgs",
    "VersionArgs",
    "VolumeRepositoryArgs",
    "WarmWindowArgs",
    "WholeGpuArgs",
    "evaluate",
    "proxy_address",
]
