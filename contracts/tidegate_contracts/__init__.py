"""Formats and names that Tidegate's parts share, and nothing else."""
