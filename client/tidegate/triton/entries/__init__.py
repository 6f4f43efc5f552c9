"""Entries of a Triton model repository: made of models, read, checked and shown."""
