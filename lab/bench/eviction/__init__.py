"""The quality of the eviction policy's decisions."""
