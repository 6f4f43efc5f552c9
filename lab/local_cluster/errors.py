"""What goes wrong with a local cluster, in words for the person at the terminal."""


class ClusterError(Exception):
    """A local cluster cannot be had, or refused something: the text says what, why and what to do."""


class ClusterBusyError(ClusterError):
    """Another process is starting or stopping this very cluster, and will be done some time."""
