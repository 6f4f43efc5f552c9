"""The engines behind the OpenAI API: command, model, probes and metrics of each.

Their options and variables are in their own documentation. Those of Dynamo are for version 1.4.
"""

from collections.abc import Callable
from functools import partial
from typing import Any, Final, TypeVar

import pulumi_kubernetes as k8s
from tidegate_contracts import dynamo, openai

from stacks.definition.openai import (
    CustomSettings,
    DynamoSettings,
    EngineSettings,
    NimSettings,
    SglangSettings,
    VllmSettings,
)

from .. import pods
from ..args import ObjectStoreRepositoryArgs, PoolArgs, PoolContext, ServerArgs, repository_root
from ..gpu_placement import NO_GPU
from ..server_pool import mounts
from ..values import either, equals, flat, if_true, joined, none_if_empty, of_kind, of_kinds, when
from .frontends import NAMESPACE, discovery
from .relay import HOME

Made = TypeVar("Made")
Variables = list[k8s.core.v1.EnvVarArgs] | None

_DISK = "128Mi"  # For the log of a frontend.
_IN_THE_POD: Final = {
    "DYN_DISCOVERY_BACKEND": "file",
    "DYN_FILE_KV": "/tmp/dynamo",
    "DYN_TCP_RPC_HOST": "127.0.0.1",
    "DYN_TCP_RESPONSE_STREAM_HOST": "lo",  # A network interface.
    **dynamo.MESSAGES,
}
"""A frontend and its worker find each other in a directory of their pod, unless frontends are shared."""


class EngineSpec:
    """The model of a pool: its served name, and the files that its engine loads."""

    def __init__(self, name: str, folder: str, server: ServerArgs, settings: EngineSettings) -> None:
        self.name, self._folder, self._server, self._settings = name, folder, server, settings

    def loaded(self, make: Callable[[str], Made]) -> Made | None:
        """Return the result of `make` for the model's directory or URL, or for `source` of the settings."""

        def of_repository() -> Made | None:
            return repository_root(self._server, openai.REPOSITORY_ROOT, lambda root: make(f"{root}/{self._folder}"))

        return either(self._settings.source, make, of_repository)

    def streamed(self, make: Callable[[], Made]) -> Made | None:
        """Return the result of `make` if the model is in object storage."""

        def of_repository() -> Made | None:
            return of_kind(self._server.repository, ObjectStoreRepositoryArgs, lambda _: make())

        return either(self._settings.source, lambda _: None, of_repository)


def of_model(
    pool: PoolArgs, server: ServerArgs, settings: EngineSettings, make: Callable[[EngineSpec], Made]
) -> list[Made]:
    """Return the result of `make` for the model of a pool, which has at most one version."""

    def served(name: str, folder: str) -> list[Made]:
        return [make(EngineSpec(name, folder, server, settings))]

    return flat(
        pool.models,
        lambda model: either(
            none_if_empty(model.versions),
            lambda versions: flat(
                versions,
                lambda share: served(openai.served_as(model.name, share.version), f"{model.name}/{share.version}"),
            ),
            lambda: served(model.name, model.name),
        ),
    )


class Engine:
    """An engine that serves the API itself, set up by arguments alone. Its methods' arguments may be placeholders."""

    settings: type[EngineSettings]
    port = ("http", openai.HTTP_PORT)  # Name and number of the port for its probes.
    words: list[str] | None = None  # The words of its command.
    places = ("/health", "/health")  # It listens once its model is loaded.
    metrics_place = "/metrics"

    def command(self, it: Any) -> list[str] | None:  # noqa: ARG002
        """Return its command, or None for that of its image."""
        return self.words

    def arguments(self, it: Any, served: EngineSpec) -> list[str]:
        raise NotImplementedError

    def variables(self, it: Any, served: EngineSpec) -> Variables:  # noqa: ARG002
        """Return environment variables in addition to those of the definition."""
        return None

    def paths(self, it: Any) -> tuple[str, str]:  # noqa: ARG002
        """Return the paths of the liveness probe and of the readiness probe."""
        return self.places

    def metrics(self, it: Any, make: Callable[[list[str]], Made]) -> Made | None:  # noqa: ARG002
        """Return the result of `make` for the URLs of its metrics within its pod."""
        return make([_address(self.metrics_place)])

    def frontends(self, it: Any, pool: PoolContext) -> list[k8s.core.v1.ContainerArgs] | None:  # noqa: ARG002
        """Return the containers in front of it in its pod, which serve the API."""
        return None


class _Vllm(Engine):
    """vLLM. It reads models in object storage with Run:ai's streamer."""

    settings = VllmSettings
    words = ["vllm", "serve"]  # noqa: RUF012

    def arguments(self, it: VllmSettings, served: EngineSpec) -> list[str]:
        return joined(
            served.loaded(lambda model: [model]),
            [f"--served-model-name={served.name}"],
            [f"--tensor-parallel-size={it.tensor_parallel_size}", f"--shutdown-timeout={it.exit_timeout_seconds}"],
            when(it.context_length, lambda tokens: [f"--max-model-len={tokens}"]),
            served.streamed(lambda: ["--load-format=runai_streamer"]),
            it.extra_arguments,
            [f"--port={openai.HTTP_PORT}"],
        )


class _Sglang(Engine):
    """SGLang."""

    settings = SglangSettings
    words = ["python3", "-m", "sglang.launch_server"]  # noqa: RUF012

    def arguments(self, it: SglangSettings, served: EngineSpec) -> list[str]:
        return joined(
            served.loaded(lambda model: [f"--model-path={model}"]),
            [f"--served-model-name={served.name}", "--host=0.0.0.0", f"--port={openai.HTTP_PORT}", "--enable-metrics"],
            [f"--tp-size={it.tensor_parallel_size}"],
            when(it.context_length, lambda tokens: [f"--context-length={tokens}"]),
            it.extra_arguments,
        )


class _Nim(Engine):
    """NIM, which takes most settings as environment variables."""

    settings = NimSettings
    places = ("/v1/health/live", "/v1/health/ready")
    metrics_place = "/v1/metrics"

    def arguments(self, it: NimSettings, served: EngineSpec) -> list[str]:  # noqa: ARG002
        return joined(["nim-serve", f"--tensor-parallel-size={it.tensor_parallel_size}"], it.extra_arguments)

    def variables(self, it: NimSettings, served: EngineSpec) -> Variables:
        return joined(
            _variables(NIM_SERVED_MODEL_NAME=served.name, NIM_SERVER_PORT=f"{openai.HTTP_PORT}"),
            _variables(NIM_CACHE_PATH="/tmp/nim"),
            if_true(it.own_model, lambda: None, lambda: served.loaded(lambda model: _variables(NIM_MODEL_PATH=model))),
            when(it.context_length, lambda tokens: _variables(NIM_MAX_MODEL_LEN=f"{tokens}")),
        )


class _Custom(Engine):
    """Any other engine with the API."""

    settings = CustomSettings

    def command(self, it: CustomSettings) -> list[str]:
        return joined(it.command)

    def arguments(self, it: CustomSettings, served: EngineSpec) -> list[str]:  # noqa: ARG002
        return joined(it.arguments)

    def variables(self, it: CustomSettings, served: EngineSpec) -> Variables:
        return joined(
            served.loaded(lambda model: _variables(MODEL=model)),
            _variables(SERVED_NAME=served.name, HTTP_PORT=f"{openai.HTTP_PORT}"),
            _variables(TENSOR_PARALLEL_SIZE=f"{it.tensor_parallel_size}"),
            when(it.context_length, lambda tokens: _variables(CONTEXT_LENGTH=f"{tokens}")),
        )

    def paths(self, it: CustomSettings) -> tuple[str, str]:
        return it.live_path, it.ready_path

    def metrics(self, it: CustomSettings, make: Callable[[list[str]], Made]) -> Made | None:
        return when(it.metrics_path, lambda path: make([_address(path)]))


class _Dynamo(Engine):
    """Dynamo: a worker, and a frontend in the same pod, which stops after it so that streams in flight can end."""

    settings = DynamoSettings
    port = ("system", dynamo.SYSTEM_PORT)
    places = ("/live", "/health")

    def command(self, it: DynamoSettings) -> list[str]:
        return ["python3", "-m", f"dynamo.{it.worker}"]

    def arguments(self, it: DynamoSettings, served: EngineSpec) -> list[str]:
        def written(model: str, name: str, tokens: str, parallel: str | None) -> list[str]:
            return joined(
                served.loaded(lambda loaded: [f"--{model}={loaded}"]),
                [f"--{name}={served.name}"],
                [f"--{parallel}={it.tensor_parallel_size}"] if parallel else None,
                when(it.context_length, lambda length: [f"--{tokens}={length}"]),
            )

        def of(worker: str, *options: str | None, otherwise: Any = lambda: None) -> Any:
            return if_true(equals(it.worker, worker), lambda: written(*options), otherwise)  # type: ignore[arg-type]

        return joined(
            of("vllm", "model", "served-model-name", "max-model-len", "tensor-parallel-size"),
            of("sglang", "model-path", "served-model-name", "context-length", "tp-size"),
            of("trtllm", "model", "served-model-name", "max-seq-len", "tensor-parallel-size"),
            of("mocker", "model-path", "model-name", "max-model-len", None),
            it.extra_arguments,
        )

    def variables(self, it: DynamoSettings, served: EngineSpec) -> Variables:  # noqa: ARG002
        # Workers on a GPU cut requests in flight after this time, and not before: Dynamo 1.4.2,
        # dynamo/common/utils/graceful_shutdown.py. The mocker exits by itself when no request is in flight.
        grace = if_true(equals(it.worker, "mocker"), lambda: "0", lambda: f"{it.exit_timeout_seconds}")
        found = either(
            it.frontends,
            lambda _: discovery({"DYN_NAMESPACE": NAMESPACE}),
            lambda: _variables(**_IN_THE_POD),
        )
        more = pods.variables(
            {
                "DYN_SYSTEM_PORT": f"{dynamo.SYSTEM_PORT}",
                "DYN_SYSTEM_USE_ENDPOINT_HEALTH_STATUS": '["generate"]',
                "DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS": grace,
                "DYN_WORKER_GRACEFUL_SHUTDOWN_TIMEOUT": f"{it.exit_timeout_seconds}",
            }
        )
        return joined(found, more)

    def metrics(self, it: DynamoSettings, make: Callable[[list[str]], Made]) -> Made | None:
        of_engine = _address("/metrics", dynamo.SYSTEM_PORT)  # The worker exports those of its engine.
        return either(it.frontends, lambda _: make([of_engine]), lambda: make([_address("/metrics"), of_engine]))

    def frontends(self, it: DynamoSettings, pool: PoolContext) -> list[k8s.core.v1.ContainerArgs] | None:
        return either(it.frontends, lambda _: None, lambda: self._own_frontend(it, pool))

    def _own_frontend(self, it: DynamoSettings, pool: PoolContext) -> list[k8s.core.v1.ContainerArgs]:
        server = pool.server
        return of_model(
            pool.args,
            server,
            it,
            lambda served: pods.container(
                "frontend",
                server.image,
                pool.every_pod,
                {"http": openai.HTTP_PORT},
                pods.variables({**HOME, **NO_GPU, **_IN_THE_POD}),
                command=["python3", "-m", dynamo.FRONTEND],
                args=[f"--http-port={openai.HTTP_PORT}"],
                restart_policy="Always",
                resources=pods.container_resources(it.frontend_resources, _DISK),
                startup_probe=pods.http_probe("/live", "http", 1, failures=120),
                # It is live without any worker, but then it has no model. Not /ready, which can fail with status 200.
                readiness_probe=pods.http_probe(f"/v1/models/{served.name}", "http", 5, failures=3),
                liveness_probe=pods.http_probe("/live", "http", 10, failures=6, timeout_seconds=10),
                volume_mounts=mounts(server, openai.REPOSITORY_ROOT),
            ),
        )


def by_engine(settings: EngineSettings, make: Callable[[Engine, Any], Made | None]) -> Made | None:
    """Return the result of `make` for the chosen engine and its settings."""
    return of_kinds(settings, {engine.settings: partial(make, engine) for engine in _ENGINES})


_ENGINES: Final[tuple[Engine, ...]] = (_Dynamo(), _Vllm(), _Sglang(), _Nim(), _Custom())


def _address(path: str, port: int = openai.HTTP_PORT) -> str:
    return f"http://127.0.0.1:{port}{path}"


def _variables(**values: str) -> Variables:
    return pods.variables(values)
