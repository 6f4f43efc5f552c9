"""Turns the bytes of a file into a plain tree with the line of every value. Use it through `stacks.load`."""
