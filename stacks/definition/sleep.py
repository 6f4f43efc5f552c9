"""Models that share a slice and sleep by turns, each in a process of its own: vLLM's sleep mode."""

from collections.abc import Mapping

from .base import ByteQuantity, Section

SET_BY_SLEEP: Mapping[str, str] = {
    **dict.fromkeys(("gpu-memory-utilization", "kv-cache-memory-bytes"), ", from each model's footprint"),
    **dict.fromkeys(("enable-sleep-mode", "middleware", "api-server-count", "root-path", "grpc"), ""),
}
"""Arguments of vLLM that may not be said where models sleep: the policy sets them, or relies on what they are; each
with where its value comes from."""


class Sleep(Section):
    """What models that sleep may take. It was never run on a GPU here."""

    host_memory: ByteQuantity
    """What the weights of all sleeping models of a replica may take of its memory: they are there again in a second or
    so (sleep level 1). Those of a model that finds no room there are dropped (level 2), and read again at its wake."""
    kept: ByteQuantity = "1536Mi"
    """What the process of a model keeps of the slice while the model sleeps: CUDA's context, and the like."""
