"""Hypothesis strategies for Tidegate's inputs."""

from .definitions import definition_trees, read_tree

__all__ = ["definition_trees", "read_tree"]
