"""The kinds of inference servers that the policy can stand beside, by the `kind` of its settings."""

from .openai.kind import OpenaiKind
from .server import ServerKind
from .triton.kind import TritonKind

KINDS: dict[str, ServerKind] = {"triton": TritonKind(), "openai": OpenaiKind()}
