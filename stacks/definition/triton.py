"""Servers of the kind `triton`, NVIDIA's Triton: the settings of its process."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from .base import CHOOSES_GPUS, DnsLabel, EnvironmentName, Without, form, without_ours
from .servers import AzureIdentity, ContainerVariables, SecretVariable, Server, ServerTls

OLDEST_TRITON: Final = "25.06"
"""The oldest release that Tidegate supports. Before it a cancelled gRPC call can crash Triton: the fixes are in 24.12
(server #7840), 25.04 (#8034, fixed by #8078) and 25.06 (#8220)."""


# Argument of tritonserver → the key that sets it, where one does.
OWNED_ARGUMENTS: Mapping[str, str] = {
    "model-repository": "repository",
    "model-store": "repository",
    "model-control-mode": "loading.mode",
    "repository-poll-secs": "loading.pollSeconds",
    "load-model": "models[].pinned",
    "exit-on-error": "",
    "exit-timeout-secs": "triton.exitTimeoutSeconds",
    "strict-readiness": "",
    "log-format": "",
    "allow-http": "",
    "allow-grpc": "",
    "allow-metrics": "",
    "allow-gpu-metrics": "",
    "allow-cpu-metrics": "",
}
# Addresses, ports, TLS, and what restricts the control APIs: the proxy and the policy rely on them.
OWNED_PREFIXES = (
    "http-restricted", "grpc-restricted", "http-port", "http-address", "reuse-http-port", "grpc-port", "grpc-address",
    "reuse-grpc-port", "metrics-port", "metrics-address", "grpc-use-ssl", "grpc-server-", "grpc-root-cert",
    "allow-sagemaker", "allow-vertex-ai", "sagemaker-", "vertex-ai-",
)  # fmt: skip


class _WithoutInSchema(Without):
    """Refuses in schemas only: the validator of the settings also knows which key sets an argument."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler(source)


ExtraArgument = Annotated[
    str,
    form(
        r"^--[a-z0-9][a-z0-9-]*(=.*)?$",
        "one argument of tritonserver, such as --pinned-memory-pool-byte-size=268435456",
    ),
    _WithoutInSchema(
        f"^--(({'|'.join(sorted(OWNED_ARGUMENTS))})(=|$)|({'|'.join(OWNED_PREFIXES)}))",
        "is an argument that Tidegate sets itself",
    ),
]


class TritonSecret(SecretVariable):
    """An environment variable of Triton whose value is in a Secret of the environment's namespace."""

    name: Annotated[EnvironmentName, without_ours(), CHOOSES_GPUS]
    """Its name, such as AWS_SECRET_ACCESS_KEY."""


class TritonSettings(ContainerVariables):
    """How the Triton process runs."""

    exit_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """How long requests in flight may take to end when a replica stops."""
    grpc_tls: ServerTls | None = None
    """Encrypts gRPC between the proxy and Triton. (Triton's HTTP endpoint has no TLS.)"""
    extra_arguments: tuple[ExtraArgument, ...] = ()
    """Further arguments of tritonserver, such as --log-verbose=1; not those that Tidegate sets."""
    environment: Annotated[dict[EnvironmentName, str], without_ours(), CHOOSES_GPUS] = Field(default_factory=dict)
    """Environment variables of the Triton container. Never a secret."""
    secret_environment: tuple[TritonSecret, ...] = ()
    """Those that are secret, such as AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY of a store that knows no cloud
    identities."""

    @model_validator(mode="after")
    def _extra_arguments_leave_ours_alone(self) -> Self:
        """Ports, model control, probes and the restricted protocols are relied on elsewhere."""
        for argument in self.extra_arguments:
            option = argument.removeprefix("--").partition("=")[0]
            # Triton reads its arguments with getopt_long, which takes the beginning of a name for the name.
            begun = any(owned.startswith(option) for owned in (*OWNED_ARGUMENTS, *OWNED_PREFIXES))
            if begun or option in OWNED_ARGUMENTS or option.startswith(OWNED_PREFIXES):
                source = f", from {OWNED_ARGUMENTS[option]}" if OWNED_ARGUMENTS.get(option) else ""
                raise ValueError(f"extraArguments may not set --{option}: Tidegate sets it itself{source}")
        return self


class TritonServer(Server):
    """One logical Triton inference server: a model repository and the pools that serve it."""

    bound_to_image: ClassVar[str] = "TensorRT plans, TensorRT-LLM engines, packed Python environments and own backends"

    kind: Literal["triton"] = "triton"
    """Kind of the server."""
    image: DnsLabel = "triton"
    """Its image, by its name under images."""
    triton: TritonSettings = TritonSettings()
    """Settings of the Triton process."""

    @model_validator(mode="after")
    def _environment_leaves_the_identity_alone(self) -> Self:
        """With an identity of Azure, Triton is told to use it."""
        if isinstance(self.identity, AzureIdentity) and "AZURE_STORAGE_AUTH_TYPE" in self.variables.values():
            raise ValueError("triton.environment may not set AZURE_STORAGE_AUTH_TYPE beside an identity of Azure")
        return self
