"""Fetches what MLflow's clients log, by the addresses that MLflow gives it: `models:/…` and `runs:/…`.

MLflow's own download tries for minutes when a path does not exist, because a server with a store behind it answers
500. So everything is listed before it is fetched.
"""

import re
from pathlib import Path
from typing import Any, Final

from tidegate_contracts.manifest import is_inside

from ..errors import NotFoundError, UnreachableError, UsageError
from ..parallel import in_parallel
from .artifacts import Artifacts
from .server import Server, quiet

ADDRESS: Final = re.compile(r"(models|runs):/")
_FORMS: Final = "write models:/NAME/VERSION, models:/NAME@ALIAS or runs:/RUN_ID/PATH"


def fetched(address: str, folder: Path) -> Path:
    """Fetch a file, or everything below a folder, into a new folder; return its path there. Raises TidegateError."""
    server = Server(None, None)
    where, cannot = server.where, f"{address} cannot be fetched"
    kind, _, rest = address.partition(":/")
    with server.doing(cannot), quiet():
        uri, path = (_run if kind == "runs" else _model)(server, rest.strip("/"), cannot)
    artifacts = server.artifacts(uri)
    files = _below(artifacts, path)
    if not files:
        there, folders = artifacts.list("")
        why = f"it has no artifact {path!r}; it has {', '.join(sorted([*there, *folders])) or 'none'}"
        raise NotFoundError(cannot, where=where, why=why, do=_FORMS)
    folder.mkdir()
    for each in files:
        if not is_inside(each):
            raise UnreachableError(cannot, where=where, why=f"the server lists an artifact {each!r}")
        (folder / each).parent.mkdir(parents=True, exist_ok=True)
    in_parallel(lambda each: artifacts.download(each, folder / each), files)
    return folder / path


def _below(artifacts: Artifacts, path: str) -> list[str]:
    """Return a file, or every file below a folder; nothing if neither exists."""
    files, folders = artifacts.list(path)
    found = [*files, *(each for folder in folders for each in _below(artifacts, folder))]
    return found or [each for each in artifacts.list(path.rpartition("/")[0])[0] if each == path]


def _run(server: Server, rest: str, cannot: str) -> tuple[str, str]:
    """Return the URI and the path of a run's artifact, or of the model that was logged under its name."""
    number, _, path = rest.partition("/")
    if not path:
        raise UsageError(cannot, why="it names no artifact of the run", do=_FORMS)
    run: Any = server.client.get_run(number)
    if _below(server.artifacts(run.info.artifact_uri), path):
        return str(run.info.artifact_uri), path
    name, _, below = path.partition("/")
    logged = server.client.search_logged_models([run.info.experiment_id], f"name = '{name}'")
    here = [each for each in logged if each.source_run_id == number]
    return (str(here[0].artifact_location), below) if here else (str(run.info.artifact_uri), path)


def _model(server: Server, rest: str, cannot: str) -> tuple[str, str]:
    """Return the URI and the path of a registered version, or of a logged model."""
    client: Any = server.client
    name, _, path = rest.partition("/")
    if not name:
        raise UsageError(cannot, why="it names no model", do=_FORMS)
    if "@" in name:
        name, _, alias = name.partition("@")
        version = client.get_model_version_by_alias(name, alias)
    elif not path:
        return str(client.get_logged_model(name).artifact_location), ""
    else:
        which, _, path = path.partition("/")
        if which.isdecimal():
            version = client.get_model_version(name, which)
        elif which == "latest":
            version = max(server.versions(name), key=lambda each: int(each.version), default=None)
        else:
            version = next(iter(client.get_latest_versions(name, [which])), None)
        if version is None:
            numbers = ", ".join(sorted((str(each.version) for each in server.versions(name)), key=int)) or "none"
            what = "no version" if which == "latest" else f"no version in the stage {which}"
            raise NotFoundError(
                cannot, where=server.where, why=f"{name} has {what}; its versions: {numbers}", do=_FORMS
            )
    uri = str(client.get_model_version_download_uri(name, version.version))
    if ADDRESS.match(uri):  # the version is of a logged model
        uri = str(client.get_logged_model(uri.partition(":/")[2].partition("/")[0]).artifact_location)
    return uri, path
