"""Pod templates as the API server keeps them: what it adds or rewrites makes no new pods.

Two texts of a template can mean the same to it: `cpu: 1000m` and `cpu: "1"`, a probe with and without the time-out that
it would have anyway. Only what is left different after that starts pods anew. Defaults are those of `core/v1`.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

Tree = Mapping[str, Any]

_POD = {
    "restartPolicy": "Always",
    "dnsPolicy": "ClusterFirst",
    "schedulerName": "default-scheduler",
    "terminationGracePeriodSeconds": 30,
    "enableServiceLinks": True,
    "securityContext": {},
}
_CONTAINER = {
    "terminationMessagePath": "/dev/termination-log",
    "terminationMessagePolicy": "File",
    "resources": {},
}
_PROBE = {"timeoutSeconds": 1, "periodSeconds": 10, "successThreshold": 1, "failureThreshold": 3}
_FILES = {"defaultMode": 0o644}
_SIZES = {"": 0, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 1, "Mi": 2, "Gi": 3, "Ti": 4, "Pi": 5, "Ei": 6}
_QUANTITY = re.compile(r"(?P<number>[+-]?[0-9]*\.?[0-9]+)(?P<unit>[numkMGTPE]|[KMGTPE]i)?")


def settled(template: Any) -> Any:
    """Return a pod template in which two that mean the same to the API server are equal."""
    if not isinstance(template, Mapping):
        return template
    return {key: _pod(value) if key == "spec" else _kept(value) for key, value in template.items()}


def _pod(spec: Any) -> Any:
    if not isinstance(spec, Mapping):
        return spec
    out = {**_POD, **_present(spec)}
    if "serviceAccount" in out:  # the old name of the field, which the API server still writes
        out.setdefault("serviceAccountName", out.pop("serviceAccount"))
    for kind in ("initContainers", "containers"):
        if isinstance(out.get(kind), list):
            out[kind] = [_container(container) for container in out[kind]]
    if isinstance(out.get("volumes"), list):
        out["volumes"] = [_volume(volume) for volume in out["volumes"]]
    return out


def _container(container: Any) -> Any:
    if not isinstance(container, Mapping):
        return container
    out = {**_CONTAINER, "imagePullPolicy": _pull_policy(container.get("image")), **_present(container)}
    for kind in ("startupProbe", "readinessProbe", "livenessProbe"):
        if isinstance(out.get(kind), Mapping):
            out[kind] = {**_PROBE, **out[kind], **_scheme(out[kind])}
    if isinstance(out.get("ports"), list):
        out["ports"] = [{"protocol": "TCP", **port} if isinstance(port, Mapping) else port for port in out["ports"]]
    if isinstance(out["resources"], Mapping):
        out["resources"] = _resources(out["resources"])
    return out


def _pull_policy(image: Any) -> str:
    name = str(image).rpartition("/")[2]
    fixed = "@" in name or (":" in name and not name.endswith(":latest"))
    return "IfNotPresent" if fixed else "Always"


def _scheme(probe: Tree) -> dict[str, Any]:
    get = probe.get("httpGet")
    return {"httpGet": {"scheme": "HTTP", **get}} if isinstance(get, Mapping) else {}


def _resources(resources: Tree) -> dict[str, Any]:
    out = dict(resources)
    for kind in ("limits", "requests"):
        if isinstance(out.get(kind), Mapping):
            out[kind] = {name: _quantity(amount) for name, amount in out[kind].items()}
    if isinstance(out.get("limits"), Mapping):  # what is limited and not requested is requested as much
        out["requests"] = {**out["limits"], **(out.get("requests") or {})}
    return out


def _volume(volume: Any) -> Any:
    if not isinstance(volume, Mapping):
        return volume
    out = _present(volume)
    for kind in ("configMap", "secret", "projected", "downwardAPI"):
        if isinstance(out.get(kind), Mapping):
            out[kind] = {**_FILES, **out[kind]}
    if isinstance(out.get("emptyDir"), Mapping) and "sizeLimit" in out["emptyDir"]:
        out["emptyDir"] = {**out["emptyDir"], "sizeLimit": _quantity(out["emptyDir"]["sizeLimit"])}
    return out


def _quantity(amount: Any) -> Any:
    """Return a quantity as number and notation: the API server rewrites `1024Mi` to `1Gi`, but not to `1073741824`."""
    found = _QUANTITY.fullmatch(str(amount))
    if isinstance(amount, bool) or found is None or found["unit"] in ("n", "u"):
        return amount
    unit = found["unit"] or ""
    if unit in _BINARY:
        return "binary", Decimal(found["number"]) * 1024 ** _BINARY[unit]
    return "decimal", Decimal(found["number"]).scaleb(_SIZES[unit])


def _present(tree: Tree) -> dict[str, Any]:
    return {key: value for key, value in tree.items() if value is not None and value != []}


def _kept(value: Any) -> Any:
    """Return a template's metadata without what the API server writes for a template without a date of birth."""
    return {key: inner for key, inner in value.items() if inner} if isinstance(value, Mapping) else value
