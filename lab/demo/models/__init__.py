"""The zoo's programs for Triton's Python backend."""
