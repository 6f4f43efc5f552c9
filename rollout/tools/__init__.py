"""Helm, kubectl and crane: those on the PATH if their versions fit, else built once into the user's cache directory.

>>> from rollout import tools
>>> tools.path(tools.HELM)  # a pathlib.Path, built if it does not exist yet

Go modules pin their versions. Uses only the standard library. All files are in
`${TIDEGATE_CACHE:-${XDG_CACHE_HOME:-~/.cache}/tidegate}`, which you may delete at any time. With a warm cache this runs
no Go command and needs no network.
"""

from rollout.tools.cache import cache_root
from rollout.tools.programs import CRANE, HELM, KUBECTL, Found, find, path
from rollout.tools.running import ToolError

__all__ = ["CRANE", "HELM", "KUBECTL", "Found", "ToolError", "cache_root", "find", "path"]
