"""One module for each framework: what its files tell of a model, read without running or unpickling anything."""
