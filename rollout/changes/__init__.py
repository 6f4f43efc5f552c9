"""The differences between two versions of a stack's objects, and their report."""
