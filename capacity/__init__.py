"""How many slices, of which size, at what price: from recorded traffic to a plan, and from samples to advice."""
