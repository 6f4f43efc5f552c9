"""The proxy's HTTP interface, tested with replicas that fail in every way that real ones can."""
