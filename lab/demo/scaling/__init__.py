"""A pool and a proxy that scale: KEDA, metrics-server and a control plane, before a data plane of processes."""
