"""`retry`: a command in the policy's container has the running policy take a model out of quarantine, by a file.

It lies below the state folder, which only the policy's container has. The policy deletes it once that is done, and
renames it where the pool has no such model.
"""

import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from .serving.files import write_whole

WAIT_SECONDS = 3.0  # The policy looks each second.
ASKED, UNKNOWN = ".retry", ".unknown"


class RetryError(Exception):
    """Says why a model was not taken out of quarantine."""


def ask(state: Path, model: str) -> None:
    """Have the policy with this state folder let a model out; raises OSError, and RetryError if it does not."""
    if not state.is_dir():
        raise RetryError(
            f"There is no folder {state}, where the policy keeps its state. Run this in the policy's container: "
            f"kubectl exec <pod> -c eviction-policy -- python -m tidegate_eviction retry {model}"
        )
    file = state / f"{secrets.token_hex(8)}{ASKED}"
    write_whole(file, model.encode("utf-8", "replace"))
    end = time.monotonic() + WAIT_SECONDS
    while file.exists() and time.monotonic() < end:
        time.sleep(0.05)
    with suppress(FileNotFoundError):  # it was taken
        file.unlink()
        raise RetryError(
            f"The policy did not take it in {WAIT_SECONDS:g} s, and will not: it does not run with {state}, or hangs. "
            "Read its log, and delete the pod if it does not recover."
        )
    with suppress(FileNotFoundError):
        file.with_suffix(UNKNOWN).unlink()
        raise RetryError(f"The pool has no model {model}.")


def answer(state: Path, retry: Callable[[str], bool]) -> None:
    """Let out every model that is named; blocks, raises OSError. `retry` is False for one that the pool has not."""
    for file in state.glob(f"*{ASKED}"):
        with suppress(FileNotFoundError):  # it was withdrawn
            if retry(file.read_text("utf-8", "replace")):
                file.unlink()
            else:
                file.replace(file.with_suffix(UNKNOWN))
