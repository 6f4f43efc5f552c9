"""Where the models of an on-demand pool are resident: leases on them, and at which replicas to ask for those."""
