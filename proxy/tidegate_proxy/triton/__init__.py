"""What the proxy knows of Triton: the KServe v2 protocol with Triton's extensions, and what Triton says of models."""
