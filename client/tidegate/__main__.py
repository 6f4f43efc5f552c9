"""`python -m tidegate`: the same as `tidegate`."""

from .cli.app import main

if __name__ == "__main__":
    main()
