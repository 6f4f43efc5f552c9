"""Tidegate's client: register models in MLflow, deploy them to dev, promote them to prod, roll back, call them.

| module | contents |
|---|---|
| `api`, `cli/` | the commands, as methods of one Python object and on a command line |
| `registry/` | MLflow: versions, their files, digests and signatures |
| `life/` | deploying, promoting, rolling back, comparing and removing registered versions |
| `kinds`, `repository` | model repositories, for every kind of server |
| `triton/` | all that is specific to Triton: its entries, publishing, and commands |
| `environments`, `status` | the environments, and what they serve |
| `calling/` | the client of the proxy, and the client model of MLflow. It imports little |
| `errors`, `failures`, `findings` | messages |
| `hashing`, `parallel`, `names` | files and their digests, threads, safe names |
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .api import Tidegate

__all__ = ["Tidegate"]
__version__ = "0.2.0"


def __getattr__(name: str) -> object:
    """Import `Tidegate` on first use: a client model installs only `calling`."""
    if name != "Tidegate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from .api import Tidegate

    return Tidegate
