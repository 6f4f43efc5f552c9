"""Triton: the KServe v2 protocol with Triton's extensions, and Triton's reports about models."""
