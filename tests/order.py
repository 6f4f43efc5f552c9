"""The order of tests, and their distribution: tests with shared servers in one process, the longest first."""

from xdist.scheduler import LoadFileScheduling

TOGETHER = {
    "tests/client/life",
    "tests/client/registry",
    "tests/client/status",
    "tests/cluster",
    "tests/node",
}
"""Directories whose tests share servers that start slowly."""
ALONE = {"tests/cluster/test_rollout_planes.py"}  # Files in them with separate servers.
LONGEST = (
    "tests/cluster/test_rollout_planes.py",
    "tests/cluster",
    "tests/node",
    "tests/lab/demo/test_demo_real.py",
    "tests/client/life",
    "tests/docs/test_docs_models.py",
    "tests/lab/demo/test_demo_lifecycle.py",
    "tests/lab/demo/test_demo_llm.py",
    "tests/policies/eviction/real/test_real_churn.py",
    "tests/client/registry",
    "tests/client/triton/entries/test_entries_corpus.py",
    "tests/policies/eviction/real",
    "tests/client",
    "tests/proxy",
    "tests/policies",
)
"""Tests that wait for servers, the longest first."""


def unit(test: str) -> str:
    """Return the unit of a test: its directory if that shares servers, else its file."""
    file = test.partition("::")[0]
    return next((folder for folder in TOGETHER if _is_of(file, folder)), file) if file not in ALONE else file


def place(test: str) -> int:
    """Return the position of a test. The longest come first, so that no process runs them alone at the end."""
    file = test.partition("::")[0]
    return next((rank for rank, path in enumerate(LONGEST) if _is_of(file, path)), len(LONGEST))


def _is_of(file: str, path: str) -> bool:
    return f"{file}/".startswith(f"{path}/")


class Units(LoadFileScheduling):  # type: ignore[misc]  # It has no types.
    """Gives each process of pytest a unit, and the next one when it has nearly finished."""

    def _split_scope(self, nodeid: str) -> str:
        return unit(nodeid)
