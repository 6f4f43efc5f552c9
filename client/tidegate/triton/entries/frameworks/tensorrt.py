"""Plans of TensorRT, which only TensorRT can read."""

from pathlib import Path

from .reading import Reading, config_of

PLAN = "model.plan"


def read(source: Path) -> Reading:
    """Take a plan; Triton reads the tensors from it when it loads it, and completes the configuration."""
    notes = (
        "Triton reads the plan's tensors when it loads it; --input and --output say them beforehand",
        "a plan runs on the kind of GPU, and with the version of TensorRT, that it was built for",
    )
    return Reading(config_of("tensorrt", "tensorrt_plan"), ((PLAN, source),), notes=notes)
