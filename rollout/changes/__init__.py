"""What changes between two versions of a stack's objects, and how that is said."""
