"""How a model runs: instances, the devices that they are on, accelerators, the rate limiter."""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from ....findings import Finding, error, warning
from ..entry import Entry
from ..words import nearest, value_name
from .backends import is_ensemble, resolved

_GPU_ACCELERATORS = {
    "onnxruntime": ("cuda", "tensorrt"),
    "tensorflow": ("tensorrt", "auto_mixed_precision", "gpu_io"),
}
_CPU_ACCELERATORS = {"onnxruntime": ("openvino",)}
_ACCELERATORS = "optimization.execution_accelerators"


def check(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield what is wrong with instance groups and optimization."""
    if is_ensemble(config):
        for field, what in (("instance_group", "instances"), ("model_warmup", "warm-up")):
            if getattr(config, field):
                yield error(
                    f"an ensemble has no {what} of its own",
                    entry.where(field),
                    "the models of its steps have",
                    f"move {field} into their configurations",
                )
        if config.HasField("optimization"):
            yield error(
                "an ensemble has no optimization of its own",
                entry.where("optimization"),
                "the models of its steps have",
                "move it into their configurations",
            )
        return
    for number, group in enumerate(config.instance_group):
        yield from _group(entry, f"instance_group[{number}]", group)
    yield from _accelerators(entry, config)


def check_no_gpu(entry: Entry, config: Any) -> Iterator[Finding]:
    """Yield which instances a server without a GPU refuses."""
    for number, group in enumerate(config.instance_group if not is_ensemble(config) else ()):
        where = entry.where(f"instance_group[{number}]")
        if group.kind == ModelInstanceGroup.KIND_GPU:
            yield error("KIND_GPU, and the server has no GPU", where, do="write KIND_AUTO, or choose another server")
        elif group.kind == ModelInstanceGroup.KIND_AUTO and group.gpus:
            yield error(f"gpus: {list(group.gpus)}, and the server has no GPU", where, do="take gpus out")


def _group(entry: Entry, place: str, group: Any) -> Iterator[Finding]:
    kind = value_name(ModelInstanceGroup.Kind, group.kind)
    if kind in ("KIND_CPU", "KIND_MODEL") and group.gpus:
        yield error(f"{kind} and gpus exclude each other", entry.where(f"{place}.gpus"), do="take one of both out")
    elif any(number != 0 for number in group.gpus):
        yield warning(
            f"gpus: {list(group.gpus)}",
            entry.where(f"{place}.gpus"),
            "a server of the platform has one GPU or one slice of one, and its number is 0",
            "take gpus out",
        )
    if group.count < 0:
        yield warning(
            f"count is {group.count}",
            entry.where(f"{place}.count"),
            "Triton then runs the default number",
            "write 1 or more",
        )
    if group.HasField("rate_limiter"):
        yield warning(
            "the rate limiter limits nothing on a server that is started without --rate-limit=execution_count",
            entry.where(f"{place}.rate_limiter"), "that is Triton's default",
        )  # fmt: skip


def _accelerators(entry: Entry, config: Any) -> Iterator[Finding]:
    backend = resolved(entry).name
    for field, known in (
        ("gpu_execution_accelerator", _GPU_ACCELERATORS),
        ("cpu_execution_accelerator", _CPU_ACCELERATORS),
    ):
        for number, one in enumerate(getattr(config.optimization.execution_accelerators, field)):
            where = entry.where(f"{_ACCELERATORS}.{field}[{number}]")
            if backend not in known:
                yield warning(f"the {backend} backend has no {field}", where, "it ignores it", "take it out")
            elif one.name not in known[backend]:
                near = nearest(one.name, known[backend])
                yield warning(
                    f"the {backend} backend has no accelerator '{one.name}'",
                    where,
                    f"it knows {', '.join(known[backend])}, and ignores or refuses others",
                    f"did you mean '{near}'?" if near else "",
                )
