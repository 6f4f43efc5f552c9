"""All client code that is specific to Triton."""
