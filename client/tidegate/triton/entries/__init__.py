"""Entries of a Triton model repository: creates them from models, reads and checks them."""
