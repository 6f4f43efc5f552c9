import copy
from collections.abc import Callable

from .platform import Tree

NOW = "-now"


def renamed(tree: Tree) -> Tree:
    """Return a tree in which environments, planes, servers, pools and datasets have other names, and a past."""
    new = copy.deepcopy(tree)
    _platform(new, _with_past)
    for environment in new["environments"]:
        _platform(environment, _without_past)
        _with_past(environment)
        for part, key in (("promotion", "from"), ("rollout", "canary")):
            if key in environment.get(part, {}):
                environment[part][key] += NOW
    for plane in new["dataPlanes"]:
        _platform(plane, _without_past)
        _with_past(plane)
        plane["environments"] = [name + NOW for name in plane["environments"]]
    return new


def _with_past(item: Tree) -> None:
    item["formerly"] = [item["name"]]
    _without_past(item)


def _without_past(item: Tree) -> None:
    """Rename an item of an overlay: the item below it has the past."""
    item["name"] += NOW


def _platform(part: Tree, rename: Callable[[Tree], None]) -> None:
    for dataset in part.get("datasets", ()):
        rename(dataset)
    for server in part.get("servers", ()):
        rename(server)
        if "dataset" in server.get("repository", {}):
            server["repository"]["dataset"] += NOW
        for pool in server.get("pools", ()):
            rename(pool)
    for model in part.get("models", ()):
        for key in {"server", "pool"} & model.keys():
            model[key] += NOW
        for share in model.get("versions", ()):
            if "pool" in share:
                share["pool"] += NOW
    for reach in part.get("network", {}).get("reach", ()):
        if "server" in reach:
            reach["server"] += NOW
    for rule in part.get("proxy", {}).get("access", ()):
        if "servers" in rule:
            rule["servers"] = [glob if "*" in glob else glob + NOW for glob in rule["servers"]]
