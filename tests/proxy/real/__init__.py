"""A real Triton, asked directly and through a real proxy."""
