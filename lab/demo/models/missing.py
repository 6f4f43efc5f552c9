"""A model that was published without its weights: it fails to load, and says why."""

import triton_python_backend_utils as triton


class TritonPythonModel:
    """What Triton's Python backend looks for."""

    def initialize(self, _: dict[str, str]) -> None:
        """Look for the weights."""
        raise triton.TritonModelException("horn.npy, its weights, is not in its folder")
