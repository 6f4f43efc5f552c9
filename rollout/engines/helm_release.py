"""The records that Helm keeps of a release: Secrets in its namespace. A Helm that was killed leaves one pending."""

import hashlib
import subprocess

from stacks.stack import Stack

from ..errors import RolloutError
from ..kubectl import Kubectl, KubernetesObject
from ..refusals import in_words
from ..terminal import note

_LONGEST_NAME = 53
_SECONDS = 600


def release_name(stack: Stack) -> str:
    """Return the name of a stack's release: its own, or where that is too long for Helm, its begin and a hash."""
    if len(stack.name) <= _LONGEST_NAME:
        return stack.name
    digest = hashlib.sha256(stack.name.encode()).hexdigest()[:8]
    return f"{stack.name[: _LONGEST_NAME - 9].rstrip('-')}-{digest}"


def records(kube: Kubectl, stack: Stack) -> list[KubernetesObject]:
    """Return Helm's records of a stack's release, oldest first."""
    selector = f"owner=helm,name={release_name(stack)}"
    found = kube.find(["secrets"], "-n", stack.namespace, "-l", selector)
    return sorted(found, key=lambda item: int(item["metadata"]["labels"]["version"]))


def recover(helm: str, kube: Kubectl, stack: Stack) -> None:
    """Put right what a Helm left that was killed. The caller holds the lease: no other one is at work.

    A pending record stops every later upgrade. It is deleted, and the upgrade that follows finishes what was begun: it
    finds the objects that there are already by Helm's own marks. Rolling back first would restart pods twice.
    """
    found = records(kube, stack)
    if not found:
        return
    last = found[-1]
    status = last["metadata"]["labels"].get("status", "")
    if status.startswith("pending-"):
        note(f"revision {last['metadata']['labels']['version']} of {release_name(stack)} was not finished; going on …")
        kube.run("delete", "secret", last["metadata"]["name"], "-n", stack.namespace)
    elif status == "uninstalling":
        note(f"{release_name(stack)} was being taken down, and that was not finished; finishing it …")
        command = [helm, "uninstall", release_name(stack), "--wait", "--timeout", f"{_SECONDS}s"]
        where = ["--namespace", stack.namespace, "--kube-context", kube.context]
        done = subprocess.run([*command, *where], capture_output=True, text=True, timeout=_SECONDS + 60, check=False)
        if done.returncode:
            raise RolloutError(f"{release_name(stack)} cannot be uninstalled: {in_words(done.stderr)}")
