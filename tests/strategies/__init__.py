from .definitions import definition_trees, read_tree

__all__ = ["definition_trees", "read_tree"]
