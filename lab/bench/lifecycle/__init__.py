"""The benchmark of a model's life: publishing, registering, and what a model endpoint adds to a call."""
