"""From the bytes of a file to a plain tree whose every value knows its line; `stacks.load` is the way in."""
