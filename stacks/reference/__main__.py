"""`python -m stacks.reference` writes the generated pages and the schema."""

from . import files, write

changed = write()
for path in files():
    print(f"{path}: {'written' if path in changed else 'unchanged'}")
