"""Servers of kind `triton`, NVIDIA Triton: the settings of its process."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from .base import CHOOSES_GPUS, DnsLabel, EnvironmentName, Without, form, without_ours
from .servers import AzureIdentity, ContainerVariables, SecretVariable, Server, ServerTls

OLDEST_TRITON: Final = "25.06"
"""The oldest supported release. A cancelled gRPC call can crash older ones: the fixes are in 24.12 (server #7840),
25.04 (#8034, fixed by #8078) and 25.06 (#8220)."""


# Argument of tritonserver → the key that sets it, or an empty string.
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
# The proxy and the policy rely on these addresses, ports, TLS settings and restrictions of the control APIs.
OWNED_PREFIXES = (
    "http-restricted", "grpc-restricted", "http-port", "http-address", "reuse-http-port", "grpc-port", "grpc-address",
    "reuse-grpc-port", "metrics-port", "metrics-address", "grpc-use-ssl", "grpc-server-", "grpc-root-cert",
    "allow-sagemaker", "allow-vertex-ai", "sagemaker-", "vertex-ai-",
)  # fmt: skip


class _WithoutInSchema(Without):
    """Refuses only in schemas, because the validator of the settings has a better message."""

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
    """An environment variable of Triton with its value in a Secret of the environment's namespace."""

    name: Annotated[EnvironmentName, without_ours(), CHOOSES_GPUS]
    """Name of the variable."""


class TritonSettings(ContainerVariables):
    """Settings of the Triton process."""

    exit_timeout_seconds: Annotated[int, Field(ge=1, le=3600)] = 30
    """Seconds that requests in flight have to end when a replica stops."""
    grpc_tls: ServerTls | None = None
    """Certificate for gRPC between proxy and Triton. Triton's HTTP endpoint has no TLS."""
    extra_arguments: tuple[ExtraArgument, ...] = ()
    """Additional arguments, such as --log-verbose=1, except those that Tidegate sets."""
    environment: Annotated[dict[EnvironmentName, str], without_ours(), CHOOSES_GPUS] = Field(default_factory=dict)
    """Environment variables. Never a secret."""
    secret_environment: tuple[TritonSecret, ...] = ()
    """Environment variables from Secrets, such as AWS_SECRET_ACCESS_KEY."""

    @model_validator(mode="after")
    def _extra_arguments_leave_ours_alone(self) -> Self:
        """Refuse arguments that the proxy, the policy or probes rely on."""
        for argument in self.extra_arguments:
            option = argument.removeprefix("--").partition("=")[0]
            # Triton uses getopt_long, which accepts a prefix of an option's name.
            begun = any(owned.startswith(option) for owned in (*OWNED_ARGUMENTS, *OWNED_PREFIXES))
            if begun or option in OWNED_ARGUMENTS or option.startswith(OWNED_PREFIXES):
                source = f", from {OWNED_ARGUMENTS[option]}" if OWNED_ARGUMENTS.get(option) else ""
                raise ValueError(f"extraArguments cannot set --{option}: Tidegate sets it itself{source}. Remove it")
        return self


class TritonServer(Server):
    """NVIDIA Triton."""

    bound_to_image: ClassVar[str] = "TensorRT plans, TensorRT-LLM engines, packed Python environments and own backends"

    kind: Literal["triton"] = "triton"
    """Kind of the server."""
    image: DnsLabel = "triton"
    """Name of its image under `images`."""
    triton: TritonSettings = TritonSettings()
    """Settings of the Triton process."""

    @model_validator(mode="after")
    def _environment_leaves_the_identity_alone(self) -> Self:
        """Refuse another authentication if the server has an Azure identity."""
        if isinstance(self.identity, AzureIdentity) and "AZURE_STORAGE_AUTH_TYPE" in self.variables.values():
            raise ValueError("triton.environment sets AZURE_STORAGE_AUTH_TYPE, but identity is of Azure: remove one")
        return self
