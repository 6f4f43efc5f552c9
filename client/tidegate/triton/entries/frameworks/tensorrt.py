"""TensorRT plans, which only TensorRT can read."""

from pathlib import Path

from .reading import Reading, config_of

PLAN = "model.plan"


def read(source: Path) -> Reading:
    """Accept a plan. Triton reads its tensors when it loads it, and completes the configuration."""
    notes = (
        "Triton reads the plan's tensors when it loads it. To declare them now, pass --input and --output",
        "a plan runs only on the kind of GPU and with the TensorRT version that it was built for",
    )
    return Reading(config_of("tensorrt", "tensorrt_plan"), ((PLAN, source),), notes=notes)
