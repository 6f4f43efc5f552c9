"""Labels of pods and their objects, used in selectors."""

from typing import Final

ROLE: Final = "tidegate.dev/role"
LOADING: Final = "tidegate.dev/loading"
SERVER: Final = "tidegate.dev/server"
POOL: Final = "tidegate.dev/pool"
