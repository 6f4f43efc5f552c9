"""The policy under simulated time: which policy, and how large a slice, before buying one."""
