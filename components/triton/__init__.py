"""What the components know of Triton."""
