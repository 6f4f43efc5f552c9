"""The records that Helm keeps of a release: Secrets in its namespace. A Helm that was killed leaves one pending."""

import base64
import gzip
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from stacks.command import CommandError
from stacks.stack import Stack

from .. import processes
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


def records(kube: Kubectl, stack: Stack, *which: str) -> list[KubernetesObject]:
    """Return Helm's records of a stack's release, oldest first; `which` are further conditions on their labels."""
    selector = ",".join(("owner=helm", f"name={release_name(stack)}", *which))
    found = kube.find(["secrets"], "-n", stack.namespace, "-l", selector)
    return sorted(found, key=lambda item: int(item["metadata"]["labels"]["version"]))


def recover(helm: str, kube: Kubectl, stack: Stack) -> tuple[KubernetesObject | None, bool]:
    """Put right what a Helm left that was killed; return its newest record that may stay, and whether anything was.

    The caller holds the lease: no other one is at work. A pending record stops every later upgrade. It is deleted, and
    the upgrade that follows finishes what was begun: it finds the objects that there are already by Helm's own marks.
    Rolling back first would restart pods twice.
    """
    found = records(kube, stack, "status!=superseded")
    if not found:
        return None, False
    last = found[-1]
    status = last["metadata"]["labels"].get("status", "")
    if status.startswith("pending-"):
        note(f"revision {last['metadata']['labels']['version']} of {release_name(stack)} was not finished; going on …")
        kube.run("delete", "secret", last["metadata"]["name"], "-n", stack.namespace)
        return None, True
    if status == "uninstalling":
        note(f"{release_name(stack)} was being taken down, and that was not finished; finishing it …")
        command = [helm, "uninstall", release_name(stack), "--wait", "--timeout", f"{_SECONDS}s"]
        where = ["--namespace", stack.namespace, "--kube-context", kube.context]
        done = processes.run([*command, *where], seconds=_SECONDS + 60)
        if done.returncode:
            raise CommandError(f"{release_name(stack)} cannot be uninstalled: {in_words(done.stderr)}")
        return None, True
    return last, False


def is_of(record: KubernetesObject, chart: Path, values: Mapping[str, Any]) -> bool:
    """Say whether a record tells of a revision that was deployed from this chart, as it is now, with these values.

    Helm would render the same objects and hooks of them again.
    """
    if record["metadata"]["labels"].get("status") != "deployed":
        return False
    try:
        release = json.loads(gzip.decompress(base64.b64decode(base64.b64decode(record["data"]["release"]))))
        made_of = release["chart"]
        templates = {item["name"]: base64.b64decode(item["data"]) for item in made_of["templates"]}
        same_head = made_of["metadata"] == yaml.safe_load((chart / "Chart.yaml").read_bytes())
        same_values = made_of["values"] == yaml.safe_load((chart / "values.yaml").read_bytes())
        config = release.get("config") or {}
    except (ValueError, KeyError, TypeError, AttributeError, OSError, EOFError):  # of a Helm that writes otherwise
        return False
    files = {str(path.relative_to(chart)): path.read_bytes() for path in (chart / "templates").rglob("*.*")}
    return same_head and same_values and templates == files and config == json.loads(json.dumps(values))
