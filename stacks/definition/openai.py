"""Servers of kind `openai`, with OpenAI's HTTP API: the engine, and the settings of its process."""

import re
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, model_validator
from tidegate_contracts import proxy_process

from .base import (
    CHOOSES_GPUS,
    ByteQuantity,
    DnsLabel,
    EnvironmentName,
    Labels,
    Resources,
    Section,
    Text,
    form,
    without_ours,
)
from .pods import Toleration
from .servers import ContainerVariables, SecretVariable, Server

# Argument of an engine → the key that sets it, or an empty string.
OWNED_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(("model", "model-path"), "openai.source"),
    **dict.fromkeys(("served-model-name", "model-name"), "models"),
    **dict.fromkeys(("tensor-parallel-size", "tp-size", "tp"), "openai.tensorParallelSize"),
    **dict.fromkeys(("max-model-len", "context-length", "max-seq-len"), "openai.contextLength"),
    "shutdown-timeout": "openai.exitTimeoutSeconds",
    # The proxy, the network policies and the probes rely on these.
    **dict.fromkeys(("host", "port", "uds", "discovery-backend", "request-plane", "event-plane", "config"), ""),
    **dict.fromkeys(("http-host", "http-port", "namespace", "namespace-prefix", "endpoint"), ""),
    **dict.fromkeys(("tls-cert-path", "tls-key-path"), ""),
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs"), ""),
    # One replica has one model on all its devices. openai.tensorParallelSize is their number.
    **dict.fromkeys(("data-parallel-size", "dp-size", "dp", "pipeline-parallel-size", "pp-size", "pp"), ""),
}
ExtraArgument = Annotated[Text, form(r"^\S(.*\S)?$", "one argument, such as --gpu-memory-utilization=0.85")]
SECRET_OPTION = re.compile("token$|api-?key|password|secret")
"""Matches names of options, with dashes, whose values are secrets."""
_NO_SECRET = "manifests and state would contain a secret"
_REFUSED: Mapping[str, str] = {
    option: f"Tidegate sets --{option} itself{', from ' * bool(key)}{key}" for option, key in OWNED_ARGUMENTS.items()
} | dict.fromkeys(("api-key", "admin-api-key", "hf-token"), _NO_SECRET)
"""Options of engines that no extra argument may set, with the reason."""
COMMAND_VARIABLES: Final = ("MODEL", "SERVED_NAME", "HTTP_PORT", "TENSOR_PARALLEL_SIZE", "CONTEXT_LENGTH")
_OURS = without_ours(
    "USER",
    "POD_(NAME|NAMESPACE|UID)",
    "DYN_(DISCOVERY_BACKEND|FILE_KV|SYSTEM_.*|TCP_.*HOST|.*GRACEFUL_SHUTDOWN.*|NAMESPACE.*|COMPONENT|ENDPOINT"
    "|REQUEST_PLANE|EVENT_PLANE|KUBE_DISCOVERY_MODE|SELF_HOST_METADATA)",
    "NIM_(MODEL_PATH|SERVED_MODEL_NAME|SERVER_PORT|MAX_MODEL_LEN|CACHE_PATH)",
    *COMMAND_VARIABLES,
)


class EngineSecret(SecretVariable):
    """An environment variable of an engine with its value in a Secret of the environment's namespace."""

    name: Annotated[EnvironmentName, _OURS, CHOOSES_GPUS]
    """Variable, such as HF_TOKEN or NGC_API_KEY."""


class EngineSettings(ContainerVariables):
    """Settings of every engine."""

    source: Text | None = None
    """Id or path that the engine loads instead of `<model>`, or `<model>/<version>`, in the repository."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=16)] = 1
    """Devices of a replica, over which the engine spreads the model."""
    context_length: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    """Most tokens of prompt and response together. The default is the model's."""
    environment: Annotated[dict[EnvironmentName, str], _OURS, CHOOSES_GPUS] = Field(default_factory=dict)
    """Environment variables. Never a secret."""
    secret_environment: tuple[EngineSecret, ...] = ()
    """Environment variables from Secrets."""
    exit_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 120
    """Seconds that streams in flight have to end when a replica stops."""


class ExtraArguments(Section):
    """Additional arguments of a process."""

    extra_arguments: tuple[ExtraArgument, ...] = ()
    """Additional arguments, except those that Tidegate sets."""

    @model_validator(mode="after")
    def _extra_arguments_leave_ours_alone(self) -> Self:
        """Refuse arguments that other objects rely on, and secrets. Engines use argparse, which accepts a prefix of an
        option's name. No message contains the value of an argument."""
        for argument in self.extra_arguments:
            option = argument.lstrip("-").partition("=")[0].replace("_", "-")  # vLLM accepts both.
            begun = (why for each, why in _REFUSED.items() if each.startswith(option))
            why = _NO_SECRET if SECRET_OPTION.search(option) else _REFUSED.get(option) or next(begun, "")
            if argument.startswith("-") and why:
                raise ValueError(f"extraArguments cannot set --{option}: {why}. Remove it")
        return self


class KnownEngineSettings(EngineSettings, ExtraArguments):
    """Settings of engines whose arguments Tidegate knows."""


class FrontendResources(Resources):
    """CPU and memory of a frontend. The memory limit equals the request."""

    memory: ByteQuantity = "1Gi"
    """Memory request and limit."""


FRONTENDS: Final = "frontends"
"""The suffix of the names of shared frontends, after the name of their server."""


class Frontends(ExtraArguments):
    """Frontends of Dynamo that all pools of a server share. They find its workers through Kubernetes.

    They need NVIDIA's CustomResourceDefinition DynamoWorkerMetadata in the cluster, and an entry in network.reach for
    the API server. Workers and frontends get a token that can list and write objects of that kind.
    """

    replicas: Annotated[int, Field(ge=1, le=1000)] = 2
    """Number of replicas."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels of their nodes."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints that the pods tolerate."""


class DynamoSettings(KnownEngineSettings):
    """NVIDIA Dynamo: a worker in each replica, and a frontend there or shared ones."""

    engine: Literal["dynamo"]
    worker: Literal["vllm", "sglang", "trtllm", "mocker"] = "vllm"
    """Engine of the worker. The mocker, for trials, returns random text without a GPU."""
    frontend_resources: FrontendResources = FrontendResources()
    """CPU and memory of a frontend."""
    frontends: Frontends | None = None
    """Shared frontends, which know every worker (docs/openai.md). Without them, each replica has one."""


class VllmSettings(KnownEngineSettings):
    """vLLM's server, `vllm serve`."""

    engine: Literal["vllm"]


class SglangSettings(KnownEngineSettings):
    """SGLang's server."""

    engine: Literal["sglang"]


class NimSettings(KnownEngineSettings):
    """NVIDIA NIM, version 2 or later."""

    engine: Literal["nim"]
    own_model: bool = False
    """Whether the image chooses the model. Most images download it, which needs an entry in network.reach."""

    @model_validator(mode="after")
    def _own_models_have_no_source(self) -> Self:
        if self.own_model and self.source is not None:
            raise ValueError(f"ownModel and source {self.source} exclude each other: remove one")
        return self


_PATH = form(proxy_process.PATH_PATTERN, "a path, such as /health")

MetricName = Annotated[str, form(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", "a Prometheus metric, such as tgi_queue_size")]


class CustomSettings(EngineSettings):
    """Any other server of OpenAI's API. It listens on port 8000.

    The `command` and `arguments` of a custom engine can contain $(MODEL) (its directory or `source`), $(SERVED_NAME),
    $(HTTP_PORT), $(TENSOR_PARALLEL_SIZE) and, if it is set, $(CONTEXT_LENGTH).
    """

    engine: Literal["custom"]
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Command of the container."""
    arguments: tuple[Text, ...] = ()
    """Arguments."""
    live_path: Annotated[str, _PATH] = "/health"
    """Path of the liveness probe: 200 unless the server hangs."""
    ready_path: Annotated[str, _PATH] = "/health"
    """Path of the readiness probe: 200 after the model is loaded."""
    metrics_path: Annotated[str | None, _PATH] = None
    """Path of its metrics. Needs python3 in the image. Without it, Prometheus scrapes none."""
    waiting_metric: MetricName = "vllm:num_requests_waiting"
    """Metric of waiting requests, by which pools can scale."""
    running_metric: MetricName = "vllm:num_requests_running"
    """Metric of requests in progress."""


AnyEngine = Annotated[
    DynamoSettings | VllmSettings | SglangSettings | NimSettings | CustomSettings, Field(discriminator="engine")
]


class OpenaiServer(Server):
    """A server of OpenAI's API. Each pool serves one model."""

    bound_to_image: ClassVar[str] = "engines of TensorRT-LLM and compiled caches"
    loads_whole_repository: ClassVar[bool] = False

    kind: Literal["openai"]
    """Kind of the server."""
    image: DnsLabel
    """Name of its image under `images`."""
    openai: AnyEngine
    """Engine, and settings of its process."""

    @property
    def scales_by_queue(self) -> bool:
        """Return whether its engine has a metric of waiting requests. None is known of TensorRT-LLM."""
        it = self.openai
        is_read = not isinstance(it, CustomSettings) or it.metrics_path is not None
        return is_read and not (isinstance(it, DynamoSettings) and it.worker == "trtllm")

    @property
    def frontends(self) -> Frontends | None:
        return self.openai.frontends if isinstance(self.openai, DynamoSettings) else None

    @property
    def shared_node_selector(self) -> Mapping[str, str]:
        return self.frontends.node_selector if self.frontends else {}
