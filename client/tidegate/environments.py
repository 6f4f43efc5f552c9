"""The environments that there are, from `environments.json`, and where the datasets of their repositories are mounted.

Both are said by environment variables, the same in Domino and outside of it.
"""

import json
import os
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts.environments import DatasetLocation, Environment, Environments
from tidegate_contracts.manifest import is_inside

from .errors import NotFoundError, UnreachableError, UsageError
from .names import nearest_of

ENVIRONMENTS = "TIDEGATE_ENVIRONMENTS"  # path of `environments.json`, which an admin makes with `tidegate environments`
DATASETS = "TIDEGATE_DATASETS"  # where datasets are mounted: `models=/mnt/models,others=/mnt/others`
DOMINO_API = "DOMINO_API_PROXY"  # Domino's API within a run: it needs no credential there
DOMINO_ROOTS = ("/domino/datasets/local", "/mnt/data", "/domino/datasets", "/mnt/imported/data")
"""Where Domino mounts a project's datasets: file-system projects, Git projects, and what each of them imports."""
_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class Mounts:
    """What is said of where datasets are, by their names in the definition, and nothing guessed."""

    datasets: Mapping[str, Path] = field(default_factory=dict)
    domino_api: str | None = None


def load(path: Path | None = None) -> Environments:
    """Read the file, which TIDEGATE_ENVIRONMENTS names where no path is given. Raises UsageError."""
    ask = (
        f"ask your platform admin for the file, which `tidegate environments` makes, and set {ENVIRONMENTS} to its path"
    )
    if path is None:
        text = os.environ.get(ENVIRONMENTS, "").strip()
        if not text:
            raise UsageError("it is not known which environments there are", why=f"{ENVIRONMENTS} is not set", do=ask)
        path = Path(os.path.expanduser(text))
    if path.exists() and not path.is_file():
        raise UsageError("is no file", where=str(path), do=ask)  # a pipe would be waited for
    try:
        return Environments.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError("cannot be read", where=str(path), why=error.strerror or str(error), do=ask) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        why = ": ".join(filter(None, (".".join(map(str, first["loc"])), first["msg"])))
        what = "describes no environments that this client understands"
        do = "write it again with `tidegate environments`; if it is newer than this client, install the newest client"
        raise UsageError(what, where=str(path), why=why, do=do) from None


def environment(name: str, known: Environments) -> Environment:
    """Return the environment of this name. Raises NotFoundError with the nearest one."""
    by_name = {each.name: each for each in known.environments}
    if name not in by_name:
        raise NotFoundError(f"there is no environment {name!r}", do=nearest_of(name, by_name, "environments"))
    return by_name[name]


def mounts(variables: Mapping[str, str] = os.environ) -> Mounts:
    """Return what variables say of mounted datasets and of Domino; an empty one counts as unset. Raises UsageError."""
    found: dict[str, Path] = {}
    for part in filter(None, (each.strip() for each in variables.get(DATASETS, "").split(","))):
        name, _, folder = (each.strip() for each in part.partition("="))
        path = Path(os.path.expanduser(folder))
        if not (name and path.is_absolute()):
            do = "write names of the definition with absolute paths: models=/mnt/models,others=/mnt/others"
            raise UsageError(f"{part!r} is no dataset with its folder", where=DATASETS, do=do)
        if name in found:
            raise UsageError(f"the dataset {name} has two folders", where=DATASETS)
        found[name] = path
    return Mounts(found, variables.get(DOMINO_API, "").strip().rstrip("/") or None)


def folder_of(location: DatasetLocation, environment: str, plane: str, known: Environments, mounted: Mounts) -> Path:
    """Return the folder of a model repository, which is in a dataset of an environment, as it is mounted here.

    TIDEGATE_DATASETS says it by `environment/plane/dataset`, `environment/dataset` or `dataset`, the most exact first;
    else Domino does. Raises UsageError, which names all that was tried, and UnreachableError.
    """
    if location.path and not is_inside(location.path):
        raise UsageError(f"the path {location.path!r} in the dataset {location.dataset} leaves it")
    keys = _keys(environment, plane, location.dataset)

    def nowhere(why: str) -> UsageError:
        what = f"it is not known where the dataset {location.dataset} is mounted here"
        return UsageError(what, why=why, do=f"mount it, and say where: {DATASETS}={keys[0]}=/path/of/the/dataset")

    unnamed, called = f"{DATASETS} names none of {', '.join(keys)}", ""
    if (key := _given_key(keys, mounted)) is not None:
        _means_one_volume(key, location, known, mounted)
        roots = [mounted.datasets[key]]
    elif location.domino_dataset_id is None:
        raise nowhere(unnamed)
    elif mounted.domino_api is None:
        raise nowhere(f"{unnamed}; and {DOMINO_API} is not set: this is no run of Domino's")
    else:
        name = _domino_name(location.domino_dataset_id, mounted.domino_api)
        roots, called = [Path(root, name) for root in DOMINO_ROOTS], f" (in Domino it is called {name})"
    root = next((root for root in roots if root.is_dir()), None)
    if root is None:
        raise nowhere(f"there is no {', no '.join(map(str, roots))}{called}")
    if not (folder := root / location.path).is_dir():
        do = "make the folder, or correct the path of the repository in the stack definition"
        raise UsageError(f"the dataset {location.dataset} has no folder {location.path}", where=str(root), do=do)
    return folder


def _keys(environment: str, plane: str, dataset: str) -> tuple[str, str, str]:
    return f"{environment}/{plane}/{dataset}", f"{environment}/{dataset}", dataset


def _given_key(keys: tuple[str, ...], mounted: Mounts) -> str | None:
    return next((key for key in keys if key in mounted.datasets), None)


def _means_one_volume(key: str, location: DatasetLocation, known: Environments, mounted: Mounts) -> None:
    """Refuse a name that would stand for two volumes: what is meant for prod must not land in dev."""
    for of, plane in ((each, at) for each in known.environments for at in each.planes):
        for other in (server.location for server in plane.servers):
            if not isinstance(other, DatasetLocation) or other.volume == location.volume:
                continue
            if _given_key(_keys(of.name, plane.name, other.dataset), mounted) == key:
                what = f"the dataset {key} is one volume here and another in {of.name} on {plane.name}"
                do = f"say which is which, as {of.name}/{plane.name}/{other.dataset}=/path"
                raise UsageError(what, where=DATASETS, do=do)


def _domino_name(dataset: str, api: str) -> str:
    address = f"{api}/v4/datasetrw/datasets/{dataset}"
    untold = f"Domino does not tell the name of the dataset {dataset}"
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS) as answer:
            name = json.loads(answer.read(_ANSWER_BYTES)).get("name")
    except urllib.error.HTTPError as error:
        do = "mount the dataset in this project, or ask its owner for access"
        raise UnreachableError(f"{untold}: HTTP {error.code}", where=address, do=do) from None
    except (OSError, ValueError, AttributeError) as error:
        do = f"or say where it is mounted with {DATASETS}"
        raise UnreachableError(untold, where=address, why=str(error), do=do) from None
    if not isinstance(name, str) or not name or "/" in name or not is_inside(name):
        raise UnreachableError(f"Domino tells no name of the dataset {dataset} that is one", where=address)
    return name
