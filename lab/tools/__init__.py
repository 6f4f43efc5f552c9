"""Programs and files for tests and demos, pinned as Go modules and built once, by `rollout.tools`.

>>> from lab import tools
>>> tools.path("etcd")                      # a pathlib.Path, built if necessary
>>> tools.crd_files("gateway-api", "keda")  # the CRD files of these modules (default: of all)

`python -m lab.tools [NAME…]` does the same and prints `name version path`. It runs before anything is installed, so it
uses only the standard library.
"""

from lab.tools.files import crd_files, module_files, module_folder
from lab.tools.programs import find, path
from rollout.tools.cache import cache_root
from rollout.tools.programs import Found
from rollout.tools.running import ToolError

__all__ = ["Found", "ToolError", "cache_root", "crd_files", "find", "module_files", "module_folder", "path"]
