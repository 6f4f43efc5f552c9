"""A stack's state under another name: what Pulumi knows of objects goes with the stack that was given a new name.

`pulumi stack rename` leaves the names of resources, and the cluster's identifier, as they are; both follow the stack's
name, and Pulumi would delete every object to make it anew under the other one.
"""

import json
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from stacks.stack import Home

from ..terminal import note
from . import pulumi_cli
from .pulumi_cli import PulumiCli


def moved(cli: PulumiCli, stack: Home) -> dict[str, int]:
    """Return the stacks that there are, as `pulumi_cli.stacks` does, once a former name of this one is gone.

    It can be done again wherever it was stopped: the stack has its new name last.
    """
    found = pulumi_cli.stacks(cli, stack)
    for former in (each.name for each in stack.former() if each.name in found):
        if stack.name in found:
            forget = f"`pulumi stack rm --force --preserve-config {former}`"
            note(f"Pulumi has a stack {former} too, and would delete its objects with it: {forget} forgets it alone.")
            continue
        note(f"Pulumi's stack {former} becomes {stack.name}; no object is touched by that …")
        exported = pulumi_cli.ask(cli, stack, ["stack", "export", "--stack", former])
        with TemporaryDirectory(prefix="tidegate-") as folder:  # nobody else reads it
            file = Path(folder) / "state.json"
            file.write_text(json.dumps(renamed(json.loads(exported), former, stack)), "utf-8")
            pulumi_cli.ask(cli, stack, ["stack", "import", "--stack", former, "--file", str(file)])
        pulumi_cli.ask(cli, stack, ["stack", "rename", stack.name, "--stack", former])
        found[stack.name] = found.pop(former)
    return found


def renamed(state: Any, former: str, stack: Home) -> Any:
    """Return an exported state with the names that the program gives its resources under a stack's name of now."""
    begin = re.compile(rf"^(urn:pulumi:.*::){re.escape(former)}(?=-[^:]*$|$)")

    def walk(part: Any) -> Any:
        if isinstance(part, dict):
            return {walk(key): walk(value) for key, value in part.items()}
        if isinstance(part, list):
            return [walk(item) for item in part]
        return begin.sub(rf"\g<1>{stack.name}", part) if isinstance(part, str) else part

    state = walk(state)
    for resource in (state.get("deployment") or {}).get("resources") or ():
        if resource["type"] == "pulumi:providers:kubernetes":
            for side in ("inputs", "outputs"):
                if "clusterIdentifier" in resource.get(side, {}):
                    resource[side]["clusterIdentifier"] = stack.data_plane.name
    return state
