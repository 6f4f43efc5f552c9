"""Calls one model with tables, arrays or lists, and returns the same kind. Does not import MLflow."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy

from ..errors import UnreachableError, UsageError
from .inputs import Signature, is_frame, requests, signature_of, take
from .proxy import ProxyClient, Version
from .tensors import Answer, Array

_OWN: Final = ("version", "sticky", "deadline")
_TO_TRITON: Final = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout")
"""Parameters of a call that are sent to Triton."""
LONGEST: Final = 1e6  # seconds, the limit of a call's timeout


@dataclass(frozen=True)
class _Call:
    """The parameters of a call, with one deadline for all its requests."""

    version: Version
    sticky: str | None
    parameters: dict[str, Any]  # for Triton
    end: float  # monotonic time

    @property
    def left(self) -> float:
        """Seconds left. The proxy's client raises an error if there are none."""
        return self.end - time.monotonic()

    def step(self, place: int, parts: int) -> "_Call":
        """Return the parameters of one part of several: a sequence starts with the first and ends with the last."""
        if parts == 1 or "sequence_id" not in self.parameters:
            return self
        begins, ends = (bool(self.parameters.get(name)) for name in ("sequence_start", "sequence_end"))
        which = {"sequence_start": begins and place == 0, "sequence_end": ends and place == parts - 1}
        return replace(self, parameters=self.parameters | which)


class Model:
    """Calls one model. Safe for several threads."""

    def __init__(self, proxy: ProxyClient, name: str, *, server: str | None = None, version: Version = None) -> None:
        """Send nothing yet. `server` is required if several servers have a model of this name."""
        self.proxy, self.name, self.server, self.version = proxy, name, server, version
        self._signatures: dict[str, Signature] = {}  # by version

    def predict(self, given: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return the outputs by name as arrays with one row for each input row, or as a table if `given` is a table.

        `given` is a DataFrame, a dict of arrays or lists, a list of dicts, or an array for the only input. The columns
        of a DataFrame are inputs, or features of the only input. `params` are `version`, `sticky`, `deadline` (seconds
        for all requests), and Triton's `sequence_id`, `sequence_start`, `sequence_end`, `priority`, `timeout`.
        """
        return _as_given(given, self.ask(given, params).outputs)

    def ask(self, given: Any, params: Mapping[str, Any] | None = None) -> Answer:
        """Like `predict`, but always return arrays, with the version or versions that answered."""
        call = self._checked(params)
        version = str(call.version or "")
        signature = self._signatures.get(version) or self._look(call)
        answered: list[Answer] = []
        try:
            return self._answer(given, signature, call, answered)
        except UsageError:
            self._signatures.pop(version, None)  # another version with other inputs may be served by now
            if not answered or (newer := self._look(call)) == signature:
                raise
        what = f"the model {self.name} changed while its rows were sent"
        why = f"responses before the change: {len(answered)}. The model now takes {newer}"
        do = "call it again with the new inputs. The client does not send rows twice"
        raise UnreachableError(what, where=self.proxy.url, why=why, do=do)

    def _answer(self, given: Any, signature: Signature, call: _Call, found: list[Answer]) -> Answer:
        """Return the whole answer. `found` gets the answers to its parts, even if one of them fails."""
        if signature.decoupled:
            why = "its `model_transaction_policy` is decoupled: a request can have any number of responses"
            do = 'call it with tritonclient.grpc, or POST to generate_stream (docs/proxy-api.md, "Streams")'
            raise UsageError(f"the model {self.name} streams its responses", why=why, do=do)
        taken = take(given, signature)
        parts = list(requests(taken, signature))
        for place, inputs in enumerate(parts):
            step = call.step(place, len(parts))
            answer = self.proxy.infer(
                self.name, inputs, step.parameters,
                server=self.server, version=step.version, sticky=step.sticky, deadline=step.left,
            )  # fmt: skip
            found.append(answer)
        if not found:
            raise UsageError("there are no input rows")
        if taken.rows is None or (taken.batched and len(found) == 1):
            return found[0]
        return _joined(found, numpy.concatenate if taken.batched else numpy.stack)

    def _checked(self, params: Mapping[str, Any] | None) -> _Call:
        given = {name: value for name, value in (params or {}).items() if value is not None}
        if unknown := sorted(given.keys() - {*_OWN, *_TO_TRITON}):
            known = ", ".join((*_OWN, *_TO_TRITON))
            raise UsageError(f"there is no parameter {unknown[0]!r}", do=f"use {known}")
        deadline = given.get("deadline", self.proxy.seconds)
        if "deadline" in given and (not isinstance(deadline, int | float) or not 0 <= deadline < LONGEST):
            raise UsageError(f"the deadline {deadline!r} is not a duration", do="write seconds, such as 2.5")
        parameters: dict[str, Any] = {name: given[name] for name in _TO_TRITON if name in given}
        version, end = given.get("version", self.version), time.monotonic() + deadline
        return _Call(version, given.get("sticky"), parameters, end)

    def _look(self, call: _Call) -> Signature:
        try:
            config = self.proxy.config(self.name, server=self.server, version=call.version, deadline=call.left)
            found = signature_of(config)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            what = f"the configuration of {self.name} is not valid"
            raise UnreachableError(what, where=self.proxy.url) from None
        self._signatures[str(call.version or "")] = found
        return found


def _joined(found: list[Answer], join: Callable[[list[Array]], Array]) -> Answer:
    versions = ", ".join(sorted({each.version for each in found}))
    try:
        outputs = {name: join([each.outputs[name] for each in found]) for name in found[0].outputs}
    except (KeyError, ValueError):
        why = "the answers to its parts differ in shape"
        raise UnreachableError("the parts of the answer cannot be joined", why=why) from None
    return Answer(outputs, found[0].model, versions)


def _as_given(given: Any, outputs: dict[str, Array]) -> Any:
    plain = {name: _text(array) for name, array in outputs.items()}
    if not is_frame(given) or any(not array.ndim or array.shape[0] != len(given) for array in plain.values()):
        return plain
    columns = {name: list(each) if each.size > each.shape[0] else each.reshape(-1) for name, each in plain.items()}
    return type(given)(columns, index=given.index)


def _text(array: Array) -> Array:
    if array.dtype != object:
        return array
    texts = numpy.empty(array.shape, object)
    try:
        texts.reshape(-1)[:] = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    except UnicodeDecodeError:
        return array
    return texts
