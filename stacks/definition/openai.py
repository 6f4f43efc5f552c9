"""Servers of the kind `openai`, which speak OpenAI's HTTP API: which engine, and the settings of its process."""

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

# Argument of an engine → the key that sets it, where one does.
OWNED_ARGUMENTS: Mapping[str, str] = {
    **dict.fromkeys(("model", "model-path"), "openai.source"),
    **dict.fromkeys(("served-model-name", "model-name"), "models"),
    **dict.fromkeys(("tensor-parallel-size", "tp-size", "tp"), "openai.tensorParallelSize"),
    **dict.fromkeys(("max-model-len", "context-length", "max-seq-len"), "openai.contextLength"),
    "shutdown-timeout": "openai.exitTimeoutSeconds",
    # The proxy, the boundary and the probes rely on these.
    **dict.fromkeys(("host", "port", "uds", "discovery-backend", "request-plane", "event-plane", "config"), ""),
    **dict.fromkeys(("http-host", "http-port", "namespace", "namespace-prefix", "endpoint"), ""),
    **dict.fromkeys(("tls-cert-path", "tls-key-path"), ""),
    **dict.fromkeys(("ssl-keyfile", "ssl-certfile", "ssl-ca-certs"), ""),
    # One replica has one model on its devices: openai.tensorParallelSize says how many.
    **dict.fromkeys(("data-parallel-size", "dp-size", "dp", "pipeline-parallel-size", "pp-size", "pp"), ""),
}
ExtraArgument = Annotated[Text, form(r"^\S(.*\S)?$", "one argument, such as --gpu-memory-utilization=0.85")]
SECRET_OPTION = re.compile("token$|api-?key|password|secret")
"""In the name of an option, with dashes: its value is none that may stand in a manifest."""
_NO_SECRET = "a secret would stand in manifests and state"
_REFUSED: Mapping[str, str] = {
    option: f"Tidegate sets --{option} itself{', from ' * bool(key)}{key}" for option, key in OWNED_ARGUMENTS.items()
} | dict.fromkeys(("api-key", "admin-api-key", "hf-token"), _NO_SECRET)
"""Options of engines that no extra argument may be, or begin, each with why."""
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
    """An environment variable of an engine whose value is in a Secret of the environment's namespace."""

    name: Annotated[EnvironmentName, _OURS, CHOOSES_GPUS]
    """Its name, such as HF_TOKEN or NGC_API_KEY."""


class EngineSettings(ContainerVariables):
    """What the settings of every engine have in common."""

    source: Text | None = None
    """What the engine loads in place of the model's folder in the repository: an id or a path that it knows. Without it
    that folder is the model's name, and below it the version where the model has versions."""
    tensor_parallel_size: Annotated[int, Field(ge=1, le=16)] = 1
    """Devices over which the model is spread: those of one replica."""
    context_length: Annotated[int | None, Field(ge=1, le=2**31 - 1)] = None
    """Tokens of prompt and answer together; what the model can without it."""
    environment: Annotated[dict[EnvironmentName, str], _OURS, CHOOSES_GPUS] = Field(default_factory=dict)
    """Environment variables of the engine's container. Never a secret."""
    secret_environment: tuple[EngineSecret, ...] = ()
    """Those that are secret."""
    exit_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 120
    """How long streams in flight may take to end when a replica stops."""


class ExtraArguments(Section):
    """What has the settings of a process in common that has arguments from Tidegate, too."""

    extra_arguments: tuple[ExtraArgument, ...] = ()
    """Further arguments of its process; not those that Tidegate sets."""

    @model_validator(mode="after")
    def _extra_arguments_leave_ours_alone(self) -> Self:
        """Ports, names and probes are relied on elsewhere, and secrets stand in no definition.

        Engines read their arguments with argparse, which takes the beginning of a name for the name. No message repeats
        what an argument gives an option.
        """
        for argument in self.extra_arguments:
            option = argument.lstrip("-").partition("=")[0].replace("_", "-")  # to vLLM both are one
            begun = (why for each, why in _REFUSED.items() if each.startswith(option))
            why = _NO_SECRET if SECRET_OPTION.search(option) else _REFUSED.get(option) or next(begun, "")
            if argument.startswith("-") and why:
                raise ValueError(f"extraArguments may not set --{option}: {why}")
        return self


class KnownEngineSettings(EngineSettings, ExtraArguments):
    """What the settings of engines have in common whose arguments are known here."""


class FrontendResources(Resources):
    """What a frontend asks of its node. The memory limit equals the request."""

    memory: ByteQuantity = "1Gi"
    """Memory asked for, and its limit."""


FRONTENDS: Final = "frontends"
"""What the objects of shared frontends are called, behind the name of their server."""


class Frontends(ExtraArguments):
    """Frontends of Dynamo that all pools of a server share. They find its workers through Kubernetes.

    The cluster has NVIDIA's CustomResourceDefinition DynamoWorkerMetadata, workers and frontends have a token that may
    list and write objects of that kind, and network.reach tells where the API server is.
    """

    replicas: Annotated[int, Field(ge=1, le=1000)] = 2
    """How many."""
    node_selector: Labels = Field(default_factory=dict)
    """Labels that their nodes must carry; they need no GPU."""
    tolerations: tuple[Toleration, ...] = ()
    """Taints to tolerate."""


class DynamoSettings(KnownEngineSettings):
    """NVIDIA Dynamo: a worker in each replica, and a frontend before it, or frontends that all replicas share."""

    engine: Literal["dynamo"]
    worker: Literal["vllm", "sglang", "trtllm", "mocker"] = "vllm"
    """What computes; the mocker needs no GPU and answers nonsense, for trials."""
    frontend_resources: FrontendResources = FrontendResources()
    """CPU and memory of a frontend."""
    frontends: Frontends | None = None
    """Frontends that know every worker of the server. Without them each replica has one of its own beside its worker,
    which it finds by files."""


class VllmSettings(KnownEngineSettings):
    """vLLM's own server, `vllm serve`."""

    engine: Literal["vllm"]


class SglangSettings(KnownEngineSettings):
    """SGLang's own server."""

    engine: Literal["sglang"]


class NimSettings(KnownEngineSettings):
    """NVIDIA NIM, from version 2 on."""

    engine: Literal["nim"]
    own_model: bool = False
    """Whether the image knows which model to load, which most of them download when they start, network.reach letting
    them; then nothing of the repository is loaded."""

    @model_validator(mode="after")
    def _own_models_have_no_source(self) -> Self:
        """An image that knows its model is told of no other."""
        if self.own_model and self.source is not None:
            raise ValueError(f"ownModel and source {self.source} say both what to load: take one of them away")
        return self


_PATH = form(proxy_process.PATH_PATTERN, "a path, such as /health")

MetricName = Annotated[str, form(r"^[a-zA-Z_:][a-zA-Z0-9_:]*$", "a name of Prometheus, such as tgi_queue_size")]


class CustomSettings(EngineSettings):
    """Any other server of OpenAI's API. It listens at port 8000.

    Its command and arguments may hold $(MODEL), the model's folder or `source`, $(SERVED_NAME), the name that it has to
    answer to, $(HTTP_PORT), $(TENSOR_PARALLEL_SIZE) and, where it is said, $(CONTEXT_LENGTH).
    """

    engine: Literal["custom"]
    command: Annotated[tuple[Text, ...], Field(min_length=1)]
    """Command of the container."""
    arguments: tuple[Text, ...] = ()
    """Its arguments, all of them."""
    live_path: Annotated[str, _PATH] = "/health"
    """Where it answers 200 for as long as it is not hung."""
    ready_path: Annotated[str, _PATH] = "/health"
    """Where it answers 200 once its model is loaded."""
    metrics_path: Annotated[str | None, _PATH] = None
    """Where it has metrics, at the same port; its image has python3 then. They are not read without it."""
    waiting_metric: MetricName = "vllm:num_requests_waiting"
    """Which of them says how many requests wait, by which its pools may scale."""
    running_metric: MetricName = "vllm:num_requests_running"
    """Which says how many it computes together."""


AnyEngine = Annotated[
    DynamoSettings | VllmSettings | SglangSettings | NimSettings | CustomSettings, Field(discriminator="engine")
]


class OpenaiServer(Server):
    """One logical server of OpenAI's API: pools of which each serves one model."""

    bound_to_image: ClassVar[str] = "engines of TensorRT-LLM and compiled caches"
    loads_whole_repository: ClassVar[bool] = False

    kind: Literal["openai"]
    """Kind of the server."""
    image: DnsLabel
    """Its image, by its name under images."""
    openai: AnyEngine
    """Which engine it is, and the settings of its process."""

    @property
    def scales_by_queue(self) -> bool:
        """Say whether its engine tells how many requests wait for it: of TensorRT-LLM's metrics none is known."""
        it = self.openai
        is_read = not isinstance(it, CustomSettings) or it.metrics_path is not None
        return is_read and not (isinstance(it, DynamoSettings) and it.worker == "trtllm")

    @property
    def frontends(self) -> Frontends | None:
        """Frontends that its pools share, where they do."""
        return self.openai.frontends if isinstance(self.openai, DynamoSettings) else None

    @property
    def shared_node_selector(self) -> Mapping[str, str]:
        """Labels that the nodes of shared frontends must carry."""
        return self.frontends.node_selector if self.frontends else {}
