"""`make demo-lifecycle`: the life of a model, from a notebook to production and back, with the real programs."""
