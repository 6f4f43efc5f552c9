"""The environments that there are, and where a model is in one: read from `environments.json`."""

import difflib
import json
import urllib.error
import urllib.request
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError
from tidegate_contracts.environments import DatasetLocation, Environment, Environments, ModelFacts, Plane, ServerFacts
from tidegate_contracts.manifest import is_inside

from .errors import NotFoundError, UnreachableError, UsageError
from .settings import DATASETS, DOMINO_API, ENVIRONMENTS, Settings, settings

DOMINO_ROOTS = ("/domino/datasets/local", "/mnt/data", "/domino/datasets", "/mnt/imported/data")
"""Where Domino mounts a project's datasets: file-system projects, Git projects, and what each of them imports."""
_ANSWER_SECONDS = 10.0
_ANSWER_BYTES = 1 << 20


@dataclass(frozen=True)
class Home:
    """Where a model is served: one server of the environment, on one data plane."""

    plane: Plane
    server: ServerFacts
    model: ModelFacts


def load(path: Path | None = None) -> Environments:
    """Read the file, which TIDEGATE_ENVIRONMENTS names where no path is given. Raises UsageError."""
    path = path or settings().environments
    ask = f"ask your platform admin for the file, which `make environments` makes, and set {ENVIRONMENTS} to its path"
    if path is None:
        raise UsageError("it is not known which environments there are", why=f"{ENVIRONMENTS} is not set", do=ask)
    if path.exists() and not path.is_file():
        raise UsageError("is no file", where=str(path), do=ask)  # a pipe would be waited for
    try:
        return Environments.model_validate_json(path.read_bytes())
    except OSError as error:
        raise UsageError("cannot be read", where=str(path), why=error.strerror or str(error), do=ask) from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise UsageError(
            "describes no environments that this client understands",
            where=str(path),
            why=f"{place}: {first['msg']}" if place else first["msg"],
            do="make it anew with `make environments`; if it is newer than this client, install the newest client",
        ) from None


def environment(name: str, known: Environments) -> Environment:
    """Return the environment of this name. Raises NotFoundError with the nearest one."""
    for each in known.environments:
        if each.name == name:
            return each
    names = [each.name for each in known.environments]
    raise NotFoundError(f"there is no environment {name!r}", do=nearest(name, names, "environments"))


def homes(of: Environment, model: str) -> tuple[Home, ...]:
    """Return where the environment serves the model, data planes of lower waves first.

    Raises NotFoundError where the definition does not name the model there.
    """
    found = [
        Home(plane, server, facts)
        for plane in sorted(of.planes, key=lambda plane: plane.wave)
        for facts in plane.models
        for server in plane.servers
        if facts.name == model and facts.server == server.name
    ]
    if not found:
        names = sorted({facts.name for plane in of.planes for facts in plane.models})
        raise NotFoundError(
            f"the environment {of.name} has no model {model!r}",
            why="the stack definition says which models an environment serves, and on which server",
            do=f"{nearest(model, names, 'models')}; or have the platform admin add it to `models` of the definition:\n"
            f"      - {{name: {model}, server: {_server(of)}}}",
        )
    return tuple(found)


def folder_of(home: Home, of: Environment, known: Environments, said: Settings) -> Path:
    """Return the folder of a server's model repository, which is in a dataset, as it is mounted here.

    TIDEGATE_DATASETS says it by `environment/plane/dataset`, `environment/dataset` or `dataset`, the most exact first;
    else Domino does. Raises UsageError, which names everything that was tried, and UnreachableError where Domino does
    not answer.
    """
    location = home.server.location
    assert isinstance(location, DatasetLocation)
    if location.path and not is_inside(location.path):
        raise UsageError(f"the path {location.path!r} in the dataset {location.dataset} leaves it")
    keys = _keys(of.name, home.plane.name, location.dataset)
    if (key := _said(keys, said)) is not None:
        _means_one_volume(key, location, known, said)
        return _there(location, keys[0], [(said.datasets or {})[key]], "")
    unnamed = f"{DATASETS} names none of {', '.join(keys)}"
    if location.domino_dataset_id is None:
        raise _nowhere(location, keys[0], unnamed)
    if said.domino_api is None:
        raise _nowhere(location, keys[0], f"{unnamed}; and {DOMINO_API} is not set: this is no run of Domino's")
    name = _domino_name(location.domino_dataset_id, said.domino_api)
    roots = [Path(root, name) for root in DOMINO_ROOTS]
    return _there(location, keys[0], roots, f" (in Domino it is called {name})")


def nearest(name: str, known: Iterable[str], what: str) -> str:
    """Return what to say of names that there are, the nearest first if one is near."""
    names = list(known)
    near = difflib.get_close_matches(name, names, 1)
    if near:
        return f"did you mean {near[0]}?"
    return f"there are the {what} {', '.join(names)}" if names else f"there are no {what}"


def _server(of: Environment) -> str:
    return next((server.name for plane in of.planes for server in plane.servers), "<server>")


def _keys(environment: str, plane: str, dataset: str) -> tuple[str, str, str]:
    return f"{environment}/{plane}/{dataset}", f"{environment}/{dataset}", dataset


def _said(keys: Iterable[str], said: Settings) -> str | None:
    return next((key for key in keys if key in (said.datasets or {})), None)


def _means_one_volume(key: str, location: DatasetLocation, known: Environments, said: Settings) -> None:
    """Refuse a name that would stand for two volumes: what is meant for prod must not land in dev."""
    for of in known.environments:
        for plane in of.planes:
            for server in plane.servers:
                other = server.location
                if not isinstance(other, DatasetLocation) or other.volume == location.volume:
                    continue
                if _said(_keys(of.name, plane.name, other.dataset), said) == key:
                    raise UsageError(
                        f"the dataset {key} is one volume here and another in {of.name} on {plane.name}",
                        where=DATASETS,
                        do=f"say which is which, as {of.name}/{plane.name}/{other.dataset}=/path",
                    )


def _there(location: DatasetLocation, key: str, roots: list[Path], called: str) -> Path:
    for root in roots:
        if root.is_dir():
            folder = root / location.path if location.path else root
            if folder.is_dir():
                return folder
            raise UsageError(
                f"the dataset {location.dataset} has no folder {location.path}",
                where=str(root),
                do="make the folder, or correct the path of the repository in the stack definition",
            )
    raise _nowhere(location, key, f"there is no {', no '.join(map(str, roots))}{called}")


def _nowhere(location: DatasetLocation, key: str, why: str) -> UsageError:
    return UsageError(
        f"it is not known where the dataset {location.dataset} is mounted here",
        why=why,
        do=f"mount it, and say where: {DATASETS}={key}=/path/of/the/dataset",
    )


def _domino_name(dataset: str, api: str) -> str:
    address = f"{api}/v4/datasetrw/datasets/{dataset}"
    try:
        with urllib.request.urlopen(address, timeout=_ANSWER_SECONDS) as answer:
            name = json.loads(answer.read(_ANSWER_BYTES)).get("name")
    except urllib.error.HTTPError as error:
        raise UnreachableError(
            f"Domino does not tell the name of the dataset {dataset}: HTTP {error.code}",
            where=address,
            do="mount the dataset in this project, or ask its owner for access",
        ) from None
    except (OSError, ValueError, AttributeError) as error:
        raise UnreachableError(
            f"Domino does not tell the name of the dataset {dataset}", where=address, why=str(error),
            do=f"or say where it is mounted with {DATASETS}",
        ) from None  # fmt: skip
    if not isinstance(name, str) or not name or "/" in name or not is_inside(name):
        raise UnreachableError(f"Domino tells no name of the dataset {dataset} that is one", where=address)
    return name
