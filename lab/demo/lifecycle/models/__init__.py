"""The programs that the notebook leaves, which Triton's Python backend runs."""
