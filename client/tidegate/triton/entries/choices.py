"""What people choose for an entry, in the words of the command line: read into the fields of Triton's configuration."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from tritonclient.grpc.model_config_pb2 import DataType, ModelConfig, ModelInstanceGroup

from ...errors import UsageError
from .frameworks.reading import data_type, in_range

_UNITS = {"": 1, "us": 1, "µs": 1, "ms": 1_000, "s": 1_000_000, "m": 60_000_000}
_KINDS = {"auto": "KIND_AUTO", "gpu": "KIND_GPU", "cpu": "KIND_CPU", "model": "KIND_MODEL"}
_ON_THE_PROCESSOR = frozenset({"openvino"})
"""Accelerators of the processor's; all others are of the GPU's."""


@dataclass(frozen=True)
class Choices:
    """The choices that have nothing to do with how requests wait; texts are as the command line takes them."""

    max_batch_size: int = 0
    inputs: Sequence[str] = ()
    """`NAME:TYPE:DIMS` each: `image:FP32:3,224,224`; TYPE or DIMS may be empty for a tensor that the file tells of."""
    outputs: Sequence[str] = ()
    optional: Sequence[str] = ()
    """Names of inputs that requests may leave out."""
    ragged: Sequence[str] = ()
    """Names of inputs whose requests are batched although their dimensions differ."""
    instances: Sequence[str] = ()
    """`COUNT[:KIND[:GPU,GPU…]]` each, with a KIND of auto, gpu, cpu, model."""
    resources: Sequence[str] = ()
    """`NAME=COUNT[:global]` each, of the rate limiter; they are of every instance group."""
    rate_priority: int = 0
    accelerators: Sequence[str] = ()
    """`NAME[:KEY=VALUE,…]` each: `tensorrt:precision_mode=FP16`."""
    version_policy: str = ""
    """`all`, `latest:N` or `specific:N,N…`."""
    decoupled: bool = False
    response_cache: bool = False
    parameters: Sequence[str] = ()
    """`KEY=VALUE` each."""

    @in_range()
    def settings(self) -> Any:
        """Return them as a ModelConfig; raises UsageError that names the words that make no sense."""
        if self.max_batch_size < 0:
            raise UsageError(f"a batch of {self.max_batch_size} makes no sense", do="say 0 for no batches, or a number")
        config = ModelConfig(max_batch_size=self.max_batch_size)
        for side, texts in ((config.input, self.inputs), (config.output, self.outputs)):
            for text in texts:
                name, kind, dims = tensor(text)
                side.add(name=name, data_type=DataType.Value(f"TYPE_{kind}") if kind else 0, dims=dims)
        for name in self.optional:
            _input(config, name).optional = True
        for name in self.ragged:
            _input(config, name).allow_ragged_batch = True
        for text in self.instances:
            _instances(config, text)
        self._rate_limiter(config)
        for text in self.accelerators:
            _accelerator(config, text)
        _version_policy(config, self.version_policy)
        if self.decoupled:
            config.model_transaction_policy.decoupled = True
        if self.response_cache:
            config.response_cache.enable = True
        for text in self.parameters:
            key, value = pair(text, "--parameter KEY=VALUE")
            config.parameters[key].string_value = value
        return config

    def _rate_limiter(self, config: Any) -> None:
        if not self.resources and not self.rate_priority:
            return
        for group in config.instance_group or [config.instance_group.add()]:
            group.rate_limiter.priority = self.rate_priority
            for text in self.resources:
                name, value = pair(text, "--rate-limiter NAME=COUNT[:global]")
                count, _, everywhere = value.partition(":")
                if everywhere not in ("", "global"):
                    raise _senseless(text, "--rate-limiter NAME=COUNT[:global]")
                resource = group.rate_limiter.resources.add(name=name, count=number(count, text))
                setattr(resource, "global", bool(everywhere))


def tensor(text: str) -> tuple[str, str, tuple[int, ...]]:
    """Return name, Triton's type (or "") and dimensions (or none) of `NAME:TYPE:DIMS`; raises UsageError."""
    parts = text.rsplit(":", 2)
    if len(parts) != 3 or not parts[0]:
        raise _senseless(text, "NAME:TYPE:DIMS, for example image:FP32:3,224,224")
    return parts[0], data_type(parts[1]) if parts[1] else "", dimensions(parts[2], text) if parts[2] else ()


def dimensions(text: str, whole: str) -> tuple[int, ...]:
    """Return `3,-1` as numbers; raises UsageError that names the whole text."""
    dims = text.strip("[]").split(",")
    if not all(re.fullmatch(r"\s*(-1|[1-9]\d*)\s*", each) for each in dims):
        raise UsageError(f"{whole!r}: {text!r} are no dimensions", do="say numbers with commas; -1 is any size")
    return tuple(int(each) for each in dims)


def microseconds(text: str) -> int:
    """Return a time such as `5ms`, `2s` or `500us` in microseconds; raises UsageError."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zµ]*)", text.strip())
    if not found or found[2] not in _UNITS:
        raise UsageError(f"{text!r} is no time", do="say 500us, 5ms, 2s or 1m")
    return round(float(found[1]) * _UNITS[found[2]])


def number(text: str, whole: str) -> int:
    """Return a number of 1 or more; raises UsageError that names the whole text."""
    if not re.fullmatch(r"[1-9]\d{0,8}", text):
        raise UsageError(f"{whole!r}: {text!r} is no number", do="say a whole number from 1 on")
    return int(text)


def pair(text: str, form: str) -> tuple[str, str]:
    """Return both sides of the first `=`; raises UsageError."""
    key, sign, value = text.partition("=")
    if not sign or not key:
        raise _senseless(text, form)
    return key, value


def one_of(text: str, known: Sequence[str], what: str) -> str:
    """Return the text, which must be one of these; raises UsageError with the nearest."""
    if text not in known:
        near = get_close_matches(text, known, 1)
        raise UsageError(
            f"there is no {what} {text!r}", do=f"say {near[0]}" if near else f"say one of {', '.join(known)}"
        )
    return text


def _input(config: Any, name: str) -> Any:
    return next((each for each in config.input if each.name == name), None) or config.input.add(name=name)


def _instances(config: Any, text: str) -> None:
    count, _, rest = text.partition(":")
    kind, _, gpus = rest.partition(":")
    group = config.instance_group.add(count=number(count, text))
    if kind:
        group.kind = ModelInstanceGroup.Kind.Value(_KINDS[one_of(kind.lower(), list(_KINDS), "kind of instance")])
    if gpus:
        if not all(each.isdigit() for each in gpus.split(",")):
            raise _senseless(text, "COUNT[:KIND[:GPU,GPU…]], for example 1:gpu:0,1")
        group.gpus.extend(int(each) for each in gpus.split(","))


def _accelerator(config: Any, text: str) -> None:
    name, _, rest = text.partition(":")
    if not name:
        raise _senseless(text, "NAME[:KEY=VALUE,…], for example tensorrt:precision_mode=FP16")
    all_of_them = config.optimization.execution_accelerators
    side = "cpu" if name in _ON_THE_PROCESSOR else "gpu"
    accelerator = getattr(all_of_them, f"{side}_execution_accelerator").add(name=name)
    for each in filter(None, rest.split(",")):
        key, value = pair(each, "--accelerator NAME:KEY=VALUE,…")
        accelerator.parameters[key] = value


def _version_policy(config: Any, text: str) -> None:
    kind, _, rest = text.partition(":")
    if kind == "all" and not rest:
        config.version_policy.all.SetInParent()
    elif kind == "latest":
        config.version_policy.latest.num_versions = number(rest or "1", text)
    elif kind == "specific":
        config.version_policy.specific.versions.extend(number(each, text) for each in rest.split(","))
    elif text:
        raise _senseless(text, "all, latest:N or specific:N,N…")


def _senseless(text: str, form: str) -> UsageError:
    return UsageError(f"{text!r} makes no sense here", do=f"write it so: {form}")
