"""What the client is told by environment variables; the same names work in Domino and outside of it."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from .errors import UsageError

ENVIRONMENTS = "TIDEGATE_ENVIRONMENTS"
"""Path of `environments.json`, which an admin makes with `make environments`."""
DATASETS = "TIDEGATE_DATASETS"
"""Where datasets are mounted: `models=/mnt/models,others=/mnt/others`."""
DOMINO_API = "DOMINO_API_PROXY"
"""Domino's API within a run: it needs no credential there."""


@dataclass(frozen=True)
class Settings:
    """What was said, and nothing guessed."""

    environments: Path | None = None
    datasets: Mapping[str, Path] | None = None
    """Folder of each dataset, by its name in the definition."""
    domino_api: str | None = None


def settings(variables: Mapping[str, str] = os.environ) -> Settings:
    """Read them; an empty variable counts as one that is not there. Raises UsageError."""
    environments = variables.get(ENVIRONMENTS, "").strip()
    return Settings(
        environments=_path(environments, ENVIRONMENTS) if environments else None,
        datasets=_datasets(variables.get(DATASETS, "")),
        domino_api=variables.get(DOMINO_API, "").strip().rstrip("/") or None,
    )


def _datasets(text: str) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, equals, folder = (each.strip() for each in part.partition("="))
        path = _path(folder, DATASETS)
        if not (name and equals and folder and path.is_absolute()):
            raise UsageError(
                f"{part!r} is no dataset with its folder",
                where=DATASETS,
                do="write the name in the definition, =, and an absolute path, with commas between datasets: "
                "models=/mnt/models,others=/mnt/others",
            )
        if name in found:
            raise UsageError(f"the dataset {name} has two folders", where=DATASETS)
        found[name] = path
    return found


def _path(text: str, variable: str) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError:  # `~name` of a user that this machine does not have
        raise UsageError(
            f"{text!r} begins with a home that is not here", where=variable, do="write the path in full"
        ) from None
