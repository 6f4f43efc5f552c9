"""The components of Triton servers."""
