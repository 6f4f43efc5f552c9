"""What Pulumi says when it fails, and what people are told."""

import os
import re
import socket

from stacks.problems import escaped, shortened
from stacks.stack import Stack

from ..contexts import context_of
from ..refusals import explained
from ..terminal import make


def is_locked_by_the_dead(said: str) -> bool:
    """Say whether every lock is one of a process of this machine that has ended."""
    if "the stack is currently locked" not in said:
        return False
    locks = re.findall(r"created by \S*@(\S+) \(pid (\d+)\)", said)
    return bool(locks) and all(host == socket.gethostname() and not _lives(int(pid)) for host, pid in locks)


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):
        pass
    return True


def explanation(said: str, stack: Stack) -> str | None:
    """Return what to do about a failure, where that is known."""
    locked = (
        f"stack {stack.name} is locked: somebody else is bringing it up, or was stopped while doing so. Wait;"
        f" if you are sure that nobody is, `pulumi cancel {stack.name}` takes the lock away."
    )
    protected = (
        f"a dataset of stack {stack.name} would be replaced or deleted, and datasets are protected. Instead of changing"
        " one, add a dataset of another name and move the servers to it. To give one up, run `pulumi state unprotect`"
        " for it, as Pulumi says above; its volume and its claim stay in the cluster."
    )
    known = {
        "PULUMI_ACCESS_TOKEN must be set": (
            "Pulumi does not know where to keep its state. Run `pulumi login` once (`pulumi login --local` keeps it on"
            " this machine), or set PULUMI_BACKEND_URL."
        ),
        "passphrase must be set": (
            "Pulumi has no passphrase for the secrets of its state. Set PULUMI_CONFIG_PASSPHRASE, or"
            " PULUMI_CONFIG_PASSPHRASE_FILE; the empty one is a choice too."
        ),
        "incorrect passphrase": (
            f"stack {stack.name} was made with another passphrase. Correct PULUMI_CONFIG_PASSPHRASE."
        ),
        "the stack is currently locked": locked,
        "Another update is currently in progress": locked,
        "as it is currently marked for protection": protected,
        "because it is protected": protected,
        "The resource already exists in the cluster": (
            f"objects of stack {stack.name} are in the cluster, and not in Pulumi's state. To adopt them as they are:"
            f" {make('up', CLUSTER=context_of(stack.data_plane), STACK=stack.name, ENGINE='pulumi', ADOPT='1')}"
        ),
        "configured Kubernetes cluster is unreachable": (
            f"the cluster of stack {stack.name} cannot be reached. Does"
            f" `kubectl --context {stack.data_plane.context or stack.data_plane.name} get namespaces` work?"
        ),
        "no resource plugin 'pulumi-resource-kubernetes": (
            "Pulumi has no Kubernetes provider and could not fetch it: `pulumi plugin install resource kubernetes`."
        ),
    }
    found = next((explanation for words, explanation in known.items() if words in said), None)
    return found or explained(said, context_of(stack.data_plane))


def last_line(said: str) -> str:
    """Return the last line of what a command said."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f'"{escaped(shortened(lines[-1], 300))}"' if lines else "nothing"
