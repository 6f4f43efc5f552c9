"""Tidegate's client: register models in MLflow, deploy them to dev, promote them to prod, roll back, call them.

| module | what happens there |
|---|---|
| `api`, `cli/` | the commands, as methods of one Python object and on a command line |
| `registry/` | MLflow: versions, their files, digests and signatures |
| `life/` | what becomes of a registered version: deployed, promoted, rolled back, compared, pruned |
| `kinds`, `repository` | model repositories, whatever kind of server serves from them |
| `triton/` | what is true of Triton alone: its entries, publishing, and the commands for them |
| `environments`, `status` | which environments there are; what is served there |
| `calling/` | the client of the proxy, and the MLflow model that does nothing else; light, so it imports little |
| `errors`, `failures`, `findings` | how people are told what is wrong |
| `hashing`, `parallel`, `names` | files and their digests, several at a time; safe names |
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Tidegate

__all__ = ["Tidegate"]
__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import `Tidegate` when it is asked for: what only calls models goes without, and has no module but `calling`."""
    if name != "Tidegate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .api import Tidegate

    return Tidegate
