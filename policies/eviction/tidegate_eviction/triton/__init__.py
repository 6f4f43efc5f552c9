"""The policy's Triton: its model control, its memory, and its repository."""
