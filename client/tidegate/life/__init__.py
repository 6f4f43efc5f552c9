"""What becomes of a registered version: deployed, promoted, rolled back, compared, verified, pruned."""
