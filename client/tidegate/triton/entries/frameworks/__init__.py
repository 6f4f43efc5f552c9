"""One module per framework, which reads its files without running or unpickling anything."""
