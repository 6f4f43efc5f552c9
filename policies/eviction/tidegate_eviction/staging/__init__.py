"""Caches model files near the server: a bounded directory, into which files are copied before a load."""
