"""A real Kubernetes control plane on this machine, with simulated nodes: no root, no container, only loopback."""

from .cluster import LocalCluster
from .control_plane import ClusterError, Network

__all__ = ["ClusterError", "LocalCluster", "Network"]
