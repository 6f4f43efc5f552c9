"""The notebook's programs, which Triton's Python backend runs."""
