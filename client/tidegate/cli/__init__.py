"""The command line `tidegate`: one module for each group of commands, which hold no work of their own."""
