"""The pinned command-line tools, and pinned files out of Go modules, each made once into the user's cache folder.

>>> from lab import tools
>>> tools.path("helm")                      # a pathlib.Path; built when it is not there yet
>>> tools.crd_files("gateway-api", "keda")  # the CRD files of these modules, of all modules by default

`python -m lab.tools [NAME…]` does the same and prints `name version path`. Only the standard library is used: this runs
before anything is installed. Everything lies under `${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/tidegate}`, which may
be deleted at any time. With a warm cache no Go command is run and no network is needed. `TIDEGATE_TOOLS=built` ignores
tools on the PATH.
"""

from lab.tools.cache import cache_root
from lab.tools.files import crd_files, module_files, module_folder
from lab.tools.programs import Found, find, missing, path
from lab.tools.running import ToolError

__all__ = ["Found", "ToolError", "cache_root", "crd_files", "find", "missing", "module_files", "module_folder", "path"]
