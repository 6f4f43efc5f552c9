"""What callers are told of models that are loaded on demand, over HTTP and gRPC alike."""

from ..problems import Kind, Problem

AGAIN_SECONDS = 1.0
"""Seconds that a caller is told to wait where it is not known how long it takes."""


def no_answer(seconds: float) -> str:
    """Return what is said when the time is up."""
    return f"There was no answer within {seconds:g} s."


def still_loading(seconds: float) -> Problem:
    """Return what is told when the time is up before the model is there: nothing was done yet."""
    return Problem(Kind.BUSY, f"The model was not loaded within {seconds:g} s; it may be soon.", AGAIN_SECONDS)


def lost(model: str) -> Problem:
    """Return what is told when a replica turns out to have lost a model that it had."""
    return Problem(
        Kind.BUSY, f"The inference server has just lost the model {model}; it is loaded anew.", AGAIN_SECONDS
    )
