"""Typed Pulumi components of an inference environment, one file per noun. Any Pulumi program can use them.

They compute nothing: `stacks.resolve` fills their arguments from the definition, and other programs may fill them
themselves, with outputs of other resources too. `evaluate` runs them in process, without Pulumi's engine.
"""

from .dataset_volume import (
    CsiSourceArgs,
    DatasetVolume,
    DatasetVolumeArgs,
    HostPathSourceArgs,
    NfsSourceArgs,
    SecretReferenceArgs,
)
from .environment import (
    Environment,
    EnvironmentArgs,
    MeshArgs,
    NamespaceArgs,
    PullSecretArgs,
    ServiceAccountArgs,
)
from .evaluate import evaluate
from .gpu_placement import DeviceClaimArgs, GpuPlacement, GpuPlacementArgs, TolerationArgs
from .monitoring import AlertArgs, Monitoring, MonitoringArgs
from .network_boundary import NetworkBoundary, NetworkBoundaryArgs, ReachArgs
from .proxy import CertificateArgs, HttpRouteArgs, IngressArgs, Proxy, ProxyArgs, ServiceArgs, UpstreamCaArgs
from .scaling import CpuScalingArgs, QueueScalingArgs
from .triton_pool import (
    EnvironmentVariableArgs,
    EvictionPolicyArgs,
    RepositoryVolumeArgs,
    SecretArgs,
    TritonPool,
    TritonPoolArgs,
)

__all__ = [
    "AlertArgs",
    "CertificateArgs",
    "CpuScalingArgs",
    "CsiSourceArgs",
    "DatasetVolume",
    "DatasetVolumeArgs",
    "DeviceClaimArgs",
    "Environment",
    "EnvironmentArgs",
    "EnvironmentVariableArgs",
    "EvictionPolicyArgs",
    "GpuPlacement",
    "GpuPlacementArgs",
    "HostPathSourceArgs",
    "HttpRouteArgs",
    "IngressArgs",
    "MeshArgs",
    "Monitoring",
    "MonitoringArgs",
    "NamespaceArgs",
    "NetworkBoundary",
    "NetworkBoundaryArgs",
    "NfsSourceArgs",
    "Proxy",
    "ProxyArgs",
    "PullSecretArgs",
    "QueueScalingArgs",
    "ReachArgs",
    "RepositoryVolumeArgs",
    "SecretArgs",
    "SecretReferenceArgs",
    "ServiceAccountArgs",
    "ServiceArgs",
    "TolerationArgs",
    "TritonPool",
    "TritonPoolArgs",
    "UpstreamCaArgs",
    "evaluate",
]
