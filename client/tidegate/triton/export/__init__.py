"""Makes entries of models as they were trained: converted by their libraries' own exporters, and then compared."""
