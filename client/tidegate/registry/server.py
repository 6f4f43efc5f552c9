"""MLflow's server, as the registry uses it. All failures become TidegateError, and all requests have a timeout."""

import logging
import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from ..errors import NotFoundError, RefusedError, UnreachableError, UsageError
from ..failures import from_status, message, shown, translated
from ..names import nearest
from .artifacts import Artifacts
from .settings import settings

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion

PAGE = 200
GREETING_SECONDS = 15
PROBE = "/api/2.0/mlflow/registered-models/search?max_results=1"
GATEWAYS = ("INTERNAL_ERROR: Response", "was not in a valid JSON format")
"""Parts of MLflow's errors for a response that is not MLflow's, such as a gateway's 401. They lack the status."""


class Server:
    """A tracking server and its registry, with the address and credentials that MLflow itself would use."""

    def __init__(self, tracking_uri: str | None) -> None:
        """Connect. Raises UsageError if no address is set, and other errors if the server does not respond."""
        with settings():  # some settings are read when MLflow is imported
            import mlflow

        if tracking_uri is None and not mlflow.is_tracking_uri_set():  # type: ignore[no-untyped-call]
            do = "set MLFLOW_TRACKING_URI to the address of the MLflow server, such as https://mlflow.example.com"
            raise UsageError("the address of the registry is not set", do=do)
        self.uri = tracking_uri or str(mlflow.get_tracking_uri())
        self.where = shown(self.uri)
        with translated("the registry could not be opened", self.where):
            self.client: MlflowClient = mlflow.MlflowClient(self.uri)
        self._greet()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Turn exceptions in the block into TidegateError. `what` failed."""
        try:
            with settings(), translated(what, self.where):
                yield
        except UnreachableError as error:
            if any(each in error.why for each in GATEWAYS):
                self._greet(what)
            raise

    def artifacts(self, uri: str) -> Artifacts:
        return Artifacts(uri, self.uri)

    def run_artifacts(self, run_id: str) -> Artifacts:
        with self.doing(f"the run {run_id} could not be read"):
            run = self.client.get_run(run_id)
        return self.artifacts(run.info.artifact_uri)

    def experiment_id(self) -> str:
        """Return the experiment for runs, and create it if necessary. It is that of MLFLOW_EXPERIMENT_ID or
        MLFLOW_EXPERIMENT_NAME, else one of the Domino project, else `tidegate`."""
        if number := os.environ.get("MLFLOW_EXPERIMENT_ID"):
            return number
        name = _experiment_name()
        with self.doing(f"the experiment {name!r} could not be found or created"):
            found = self.client.get_experiment_by_name(name)
            if found is None and (made := _made(lambda: self.client.create_experiment(name))) is not None:
                return str(made)
            found = found or self.client.get_experiment_by_name(name)
        if found is None:
            raise RefusedError(f"the experiment {name!r} belongs to another user", where=self.where)
        if found.lifecycle_stage != "active":
            do = "restore it (`mlflow experiments restore`), or name another one with MLFLOW_EXPERIMENT_NAME"
            raise UsageError(f"the experiment {name!r} was deleted", where=self.where, do=do)
        return str(found.experiment_id)

    def make_model(self, name: str, tags: dict[str, str]) -> None:
        """Create a registered model with these tags, or add the tags to an existing one."""
        with self.doing(f"the model {name} could not be created"):
            if _made(lambda: self.client.create_registered_model(name, tags)) is None:
                for key, value in tags.items():
                    self.client.set_registered_model_tag(name, key, value)

    def tag(self, model: str, number: str, key: str, value: str) -> None:
        with self.doing(f"version {number} of {model} could not be tagged"):
            self.client.set_model_version_tag(model, number, key, value)

    def model(self, name: str) -> Any:
        """Return a registered model. Raises NotFoundError with the most similar name."""
        try:
            with self.doing(f"the model {name!r} could not be read"):
                return self.client.get_registered_model(name)
        except NotFoundError:
            models = self._all("the models could not be listed", self.client.search_registered_models)
            known = [model.name for model in models]
            do = nearest(name, known, "check the spelling, or create it with `tidegate register`")
            raise NotFoundError(f"there is no model {name!r}", where=self.where, do=do) from None

    def versions(self, model: str) -> "list[ModelVersion]":
        search = partial(self.client.search_model_versions, f"name = '{model}'")
        return self._all(f"the versions of {model} could not be listed", search)

    def _all(self, what: str, search: Callable[..., Any]) -> list[Any]:
        from mlflow.utils import get_results_from_paginated_fn

        with self.doing(what):
            pages: Any = get_results_from_paginated_fn
            return list(pages(lambda number, token: search(max_results=number, page_token=token), PAGE))

    def _greet(self, what: str = "the registry does not respond") -> None:
        """Send one request: MLflow's client retries for minutes, and loses the status of a foreign response."""
        from mlflow.utils import credentials, rest_utils

        if not self.uri.lower().startswith(("http:", "https:")):
            return
        known: Any = credentials  # mlflow has no types
        rest: Any = rest_utils
        with settings(), translated(what, self.where):
            host = known.get_default_host_creds(self.uri)
            answer = rest.http_request(
                host, PROBE, "GET", max_retries=0, timeout=GREETING_SECONDS, raise_on_status=False
            )
        if not answer.ok:
            raise from_status(answer.status_code, what, self.where, message(answer))
        if "json" not in answer.headers.get("Content-Type", ""):
            why = "its response is not JSON. Perhaps it is a login page"
            do = "set MLFLOW_TRACKING_URI to the address of the MLflow server, and set its credential"
            raise UsageError("not an MLflow server", where=self.where, why=why, do=do)


def _made(make: Callable[[], Any]) -> Any:
    """Return the new object, or None if it exists: another process may create it at the same time."""
    from mlflow.exceptions import MlflowException

    try:
        return make()
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
        return None


def _experiment_name() -> str:
    """Return the project's experiment. Domino requires names that no other project has."""
    if name := os.environ.get("MLFLOW_EXPERIMENT_NAME"):
        return name
    project = [os.environ.get(f"DOMINO_PROJECT_{what}") for what in ("OWNER", "NAME")]
    return "-".join(["tidegate", *(part for part in project if part)])


@contextmanager
def quiet(name: str = "mlflow") -> Iterator[None]:
    """Log only errors of a library in this block: its warnings are for model authors."""
    logger = logging.getLogger(name)
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with settings(), warnings.catch_warnings(record=True):
            yield
    finally:
        logger.setLevel(level)
