"""`python -m stacks.reference` writes the generated pages and the schema."""

import argparse

from . import files, write

argparse.ArgumentParser(prog="python -m stacks.reference", description=__doc__).parse_args()
changed = write()
for path in files():
    print(f"{path}: {'written' if path in changed else 'unchanged'}")
