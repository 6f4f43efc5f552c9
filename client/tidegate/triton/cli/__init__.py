"""The Triton commands `tidegate model new` and `tidegate export`."""
