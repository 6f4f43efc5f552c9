"""The number, size and price of slices: from recorded traffic to a plan, and from samples to advice."""
