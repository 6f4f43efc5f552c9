"""Reads `environments.json` and finds mounted datasets. Environment variables configure both, also outside Domino."""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts.environments import DatasetLocation, Environment, Environments
from tidegate_contracts.manifest import is_inside

from .errors import NotFoundError, UnreachableError, UsageError
from .names import nearest_of

ENVIRONMENTS = "TIDEGATE_ENVIRONMENTS"  # path of `environments.json`, which `tidegate environments` writes for an admin
DATASETS = "TIDEGATE_DATASETS"  # mount points of datasets: `models=/mnt/models,others=/mnt/others`
DOMINO_API = "DOMINO_API_PROXY"  # Domino's API inside a run, where it needs no credential
_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class Mounts:
    """The configured mount points of datasets, by the datasets' names in the definition."""

    datasets: Mapping[str, Path] = field(default_factory=dict)
    domino_api: str | None = None
    domino_roots: Sequence[str] = ("/domino/datasets/local", "/mnt/data", "/domino/datasets", "/mnt/imported/data")
    """Mount points of a project's datasets in Domino: file-system projects, Git projects, and the imports of both."""


def load(path: Path | None = None) -> Environments:
    """Read the file at `path`, or the one that TIDEGATE_ENVIRONMENTS names. Raises UsageError."""
    do = f"get the file from your platform admin, who runs `tidegate environments`, and set {ENVIRONMENTS} to its path"
    if path is None:
        text = os.environ.get(ENVIRONMENTS, "").strip()
        if not text:
            do = f"{do}. For a single proxy, set DOMINO_INFERENCE_PROXY"
            raise UsageError("the environments are unknown", why=f"{ENVIRONMENTS} is not set", do=do)
        path = Path(os.path.expanduser(text))
    if path.exists() and not path.is_file():
        raise UsageError("not a file", where=str(path), do=do)  # reading a pipe would block
    try:
        return Environments.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError("cannot be read", where=str(path), why=error.strerror or str(error), do=do) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        what = "not a list of environments that this client understands"
        do = "run `tidegate environments` again. If the file is newer than this client, install the newest client"
        raise UsageError(what, where=str(path), why=why, do=do) from None


def environment(name: str, known: Environments) -> Environment:
    """Return the environment of this name. Raises NotFoundError with the most similar name."""
    by_name = {each.name: each for each in known.environments}
    if name not in by_name:
        raise NotFoundError(f"there is no environment {name!r}", do=nearest_of(name, by_name, "environments"))
    return by_name[name]


def mounts(variables: Mapping[str, str] = os.environ) -> Mounts:
    """Return the datasets' mount points and Domino's API. An empty variable counts as unset. Raises UsageError."""
    found: dict[str, Path] = {}
    for part in filter(None, (each.strip() for each in variables.get(DATASETS, "").split(","))):
        name, _, folder = (each.strip() for each in part.partition("="))
        path = Path(os.path.expanduser(folder))
        if not (name and path.is_absolute()):
            do = "write the definition's dataset names with absolute paths: models=/mnt/models,others=/mnt/others"
            raise UsageError(f"{part!r} is not a dataset with a directory", where=DATASETS, do=do)
        if name in found:
            raise UsageError(f"the dataset {name} has two directories", where=DATASETS)
        found[name] = path
    return Mounts(found, variables.get(DOMINO_API, "").strip().rstrip("/") or None)


def folder_of(location: DatasetLocation, environment: str, plane: str, known: Environments, mounted: Mounts) -> Path:
    """Return the mounted directory of a model repository in a dataset.

    TIDEGATE_DATASETS names the dataset as `environment/plane/dataset`, `environment/dataset` or `dataset`. The most
    specific one wins. Otherwise Domino is queried. Raises UsageError, which lists what was tried, and UnreachableError.
    """
    if location.path and not is_inside(location.path):
        raise UsageError(f"the path {location.path!r} leads out of the dataset {location.dataset}")
    keys = _keys(environment, plane, location.dataset)

    def nowhere(why: str) -> UsageError:
        what = f"the mount point of the dataset {location.dataset} is unknown"
        return UsageError(what, why=why, do=f"mount it, and set {DATASETS}={keys[0]}=/path/of/the/dataset")

    unnamed, called = f"{DATASETS} has none of {', '.join(keys)}", ""
    if (key := _given_key(keys, mounted)) is not None:
        _means_one_volume(key, location, known, mounted)
        roots = [mounted.datasets[key]]
    elif location.domino_dataset_id is None:
        raise nowhere(unnamed)
    elif mounted.domino_api is None:
        raise nowhere(f"{unnamed}, and {DOMINO_API} is not set because this is not a Domino run")
    else:
        name = _domino_name(location.domino_dataset_id, mounted.domino_api)
        roots, called = [Path(root, name) for root in mounted.domino_roots], f" (its name in Domino is {name})"
    root = next((root for root in roots if root.is_dir()), None)
    if root is None:
        raise nowhere(f"there is no {', no '.join(map(str, roots))}{called}")
    if not (folder := root / location.path).is_dir():
        do = "create the directory, or correct the path of the repository in the stack definition"
        raise UsageError(f"the dataset {location.dataset} has no directory {location.path}", where=str(root), do=do)
    return folder


def _keys(environment: str, plane: str, dataset: str) -> tuple[str, str, str]:
    return f"{environment}/{plane}/{dataset}", f"{environment}/{dataset}", dataset


def _given_key(keys: tuple[str, ...], mounted: Mounts) -> str | None:
    return next((key for key in keys if key in mounted.datasets), None)


def _means_one_volume(key: str, location: DatasetLocation, known: Environments, mounted: Mounts) -> None:
    """Refuse a key that names two volumes: a version for prod must not be published to dev."""
    for of, plane in ((each, at) for each in known.environments for at in each.planes):
        for other in (server.location for server in plane.servers):
            if not isinstance(other, DatasetLocation) or other.volume == location.volume:
                continue
            if _given_key(_keys(of.name, plane.name, other.dataset), mounted) == key:
                what = f"the dataset {key} is one volume here and another in {of.name} on {plane.name}"
                do = f"set them apart, as {of.name}/{plane.name}/{other.dataset}=/path"
                raise UsageError(what, where=DATASETS, do=do)


def _domino_name(dataset: str, api: str) -> str:
    address = f"{api}/v4/datasetrw/datasets/{dataset}"
    failed = f"Domino did not return the name of the dataset {dataset}"
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS) as answer:
            name = json.loads(answer.read(_ANSWER_BYTES)).get("name")
    except urllib.error.HTTPError as error:
        do = "mount the dataset in this project, or get access from its owner"
        raise UnreachableError(f"{failed}: HTTP {error.code}", where=address, do=do) from None
    except (OSError, ValueError, AttributeError) as error:
        do = f"try again, or set its mount point in {DATASETS}"
        raise UnreachableError(failed, where=address, why=str(error), do=do) from None
    if not isinstance(name, str) or not name or "/" in name or not is_inside(name):
        raise UnreachableError(f"Domino returned an invalid name of the dataset {dataset}", where=address)
    return name
