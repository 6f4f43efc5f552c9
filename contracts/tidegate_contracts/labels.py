"""Labels of pods, and of what belongs to them, by which everybody finds them."""

from typing import Final

ROLE: Final = "tidegate.dev/role"
LOADING: Final = "tidegate.dev/loading"
SERVER: Final = "tidegate.dev/server"
POOL: Final = "tidegate.dev/pool"
