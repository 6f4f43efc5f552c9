"""What goes wrong with a local cluster, in words for the person at the terminal."""


class ClusterError(Exception):
    """A local cluster cannot be had, or refused something: the text says what, why and what to do."""
