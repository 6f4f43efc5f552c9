"""The life of a model, from a notebook to production and back, with the real parts: `make demo-lifecycle`."""
