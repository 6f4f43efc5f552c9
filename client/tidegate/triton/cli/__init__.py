"""Commands about Triton alone: `tidegate model new` and `tidegate export`."""
