"""The zoo's programs, which Triton's Python backend runs."""
