"""A real Triton, called directly and through a real proxy."""
