"""The words that Tidegate's parts exchange, and nothing else."""
