"""The policy under simulated time, to choose a policy and a slice."""
