"""Which traffic the NetworkPolicies of two environments in one cluster allow, decided by cyclonus."""
