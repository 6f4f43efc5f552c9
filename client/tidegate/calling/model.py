"""One model behind a proxy: takes what people have, gives what they expect. No MLflow here."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Literal

import numpy

from ..errors import RefusedError, UnreachableError, UsageError
from .address import Version
from .inputs import is_frame, requests, take
from .proxy import ProxyClient
from .signature import Signature, signature_of
from .tensors import Answer, Array, dtype_of, pack_json, unpack_json, values

Route = Literal["v2", "predict"]
_TO_TRITON: Final = ("sequence_id", "sequence_start", "sequence_end", "priority", "timeout")
"""What of the parameters of a call goes to Triton; the other ones are `version`, `sticky` and `deadline`."""
_HIDDEN_SECONDS: Final = 60.0
"""How long it holds that a caller may not inspect the model, until that is tried again."""
LONGEST: Final = 1e6
"""Seconds that a call may be given."""
_OWN: Final = ("version", "sticky", "deadline")
_END: Final = "end"
"""Among a call's parameters, once they are checked: when its time is up, of the monotonic clock."""


class Model:
    """Calls one model; made for threads."""

    def __init__(
        self,
        proxy: ProxyClient,
        name: str,
        *,
        server: str | None = None,
        version: Version = None,
        route: Route = "v2",
    ) -> None:
        """Ask nothing yet. `server` is needed for `predict`, and where several servers have a model of that name."""
        if route == "predict" and server is None:
            raise UsageError("/predict wants the name of the inference server", do="name it, or call /v2")
        self.proxy = proxy
        self.name = name
        self.server = server
        self.version = version
        self.route: Route = route
        self._lock = threading.Lock()
        self._signatures: dict[str, tuple[Signature | None, float]] = {}
        """By version; each with the time (of the monotonic clock) until which it holds."""

    def signature(self, version: Version = None, deadline: float | None = None) -> Signature | None:
        """Return what the model takes, asked once and kept; None where the caller may not inspect it.

        `deadline`: the seconds that asking may take. Raises NotFoundError, UnreachableError and what else a call does.
        """
        which = self.version if version is None else version
        found, until = self._signatures.get(str(which or ""), (None, 0.0))
        return found if time.monotonic() < until else self._look(which, deadline)

    def predict(self, given: Any, params: Mapping[str, Any] | None = None) -> Any:
        """Return the outputs by name, as arrays with one row for each row that was given; of a table, as a table.

        `given`: a DataFrame (columns are inputs, or features of the only input), a dict of arrays or lists, a
        list of dicts, an array of the only input. `params`: `version`, `sticky`, `deadline` (seconds, for all
        requests that it takes), and what Triton takes: `sequence_id`, `sequence_start`, `sequence_end`,
        `priority`, `timeout`.
        """
        return _as_given(given, self.ask(given, params).outputs)

    def ask(self, given: Any, params: Mapping[str, Any] | None = None) -> Answer:
        """Do the same, and return the outputs as arrays, whatever was given, and the version that answered.

        Where it took several requests, and several versions answered, all are named.
        """
        how = self._checked(params)
        signature = self.signature(how.get("version"), _left(how))
        answered: list[Answer] = []
        try:
            return self._answer(given, signature, how, answered)
        except UsageError:
            # Another version may serve by now, and take something else. Steps of a sequence are not done twice.
            newer = None if "sequence_id" in how else self._look(self._which(how), _left(how))
            if newer is None or newer == signature:
                raise
            if not answered:
                return self._answer(given, newer, how, answered)
        raise UnreachableError(
            f"the model {self.name} was changed while its rows were answered",
            where=self.proxy.url,
            why=f"{len(answered)} requests were answered, and what answers now takes {newer}",
            do="call it again with what it takes now; nothing is sent twice by itself",
        )

    def predict_stream(self, given: Any, params: Mapping[str, Any] | None = None) -> Iterator[dict[str, Any]]:
        """Give the outputs of each answer as it comes: values by the names of outputs. One, if the model has one."""
        how = self._checked(params)
        signature = self.signature(how.get("version"), _left(how))
        if signature is None or not signature.decoupled:
            yield self.predict(given, params)
            return
        names = [each.name for each in signature.outputs]
        for inputs in requests(take(given, signature), signature):
            for said in self._streamed(inputs, how):
                yield {name: said[name] for name in names if name in said}

    # ---
    def _answer(self, given: Any, signature: Signature | None, how: Mapping[str, Any], found: "list[Answer]") -> Answer:
        """Return the whole answer; `found` has those to its parts, also when one of them fails."""
        taken = take(given, signature)
        if signature is not None and signature.decoupled:
            for inputs in requests(taken, signature):
                for said in self._streamed(inputs, {**how, "deadline": _left(how)}):  # it is to end, whatever comes
                    found.append(Answer(_typed(said, signature), self.name, str(said.get("model_version", ""))))
            return _joined(found, numpy.stack) if found else Answer({}, self.name, "")
        parts = list(requests(taken, signature))
        for place, inputs in enumerate(parts):
            found.append(self._call(inputs, _step(how, place, len(parts))))
        if not found:
            raise UsageError("there are no rows to answer")
        if taken.rows is None or (taken.batched and len(found) == 1):
            return found[0]
        return _joined(found, numpy.concatenate if taken.batched else numpy.stack)

    def _call(self, inputs: dict[str, Array], how: Mapping[str, Any]) -> Answer:
        version = self._which(how)
        parameters = {name: how[name] for name in _TO_TRITON if name in how}
        sticky, deadline = how.get("sticky"), _left(how)
        if self.route == "v2":
            return self.proxy.infer(
                self.name,
                inputs,
                server=self.server,
                version=version,
                parameters=parameters,
                sticky=sticky,
                deadline=deadline,
            )
        assert self.server is not None
        payload = pack_json(inputs, parameters)
        said = self.proxy.predict(self.server, self.name, version, payload, sticky=sticky, deadline=deadline)
        return unpack_json(said, f"{self.proxy.url}/predict")

    def _streamed(self, inputs: dict[str, Array], how: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        version = self._which(how)
        body: dict[str, Any] = {name: values(array, name) for name, array in inputs.items()}
        if parameters := {name: how[name] for name in _TO_TRITON if name in how}:
            body["parameters"] = parameters
        sticky, deadline = how.get("sticky"), _left(how) if "deadline" in how else None
        return self.proxy.stream(self.name, body, server=self.server, version=version, sticky=sticky, deadline=deadline)

    def _which(self, how: Mapping[str, Any]) -> Version:
        said: Version = how.get("version")
        return self.version if said is None else said

    def _checked(self, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Return the parameters of a call, and when its time is up: one time for all that it asks of the proxy."""
        how = _checked(params)
        return how | {_END: time.monotonic() + how.get("deadline", self.proxy.seconds)}

    def _look(self, version: Version, deadline: float | None = None) -> Signature | None:
        """Ask what the model takes, and keep it."""
        found, until = None, float("inf")
        try:
            found = signature_of(self.proxy.config(self.name, server=self.server, version=version, deadline=deadline))
        except RefusedError:
            until = time.monotonic() + _HIDDEN_SECONDS  # a caller that may not inspect the model may still call it
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            what = f"the configuration of {self.name} cannot be understood"
            raise UnreachableError(what, where=self.proxy.url) from None
        with self._lock:
            self._signatures[str(version or "")] = found, until
        return found


def _checked(params: Mapping[str, Any] | None) -> dict[str, Any]:
    said = {name: value for name, value in (params or {}).items() if value is not None}
    unknown = sorted(said.keys() - {*_OWN, *_TO_TRITON})
    if unknown:
        known = ", ".join((*_OWN, *_TO_TRITON))
        raise UsageError(f"there is no parameter {unknown[0]!r}", do=f"there are {known}")
    deadline = said.get("deadline", 1.0)
    if not isinstance(deadline, int | float) or not 0 <= deadline < LONGEST:
        raise UsageError(f"the deadline {deadline!r} is no time", do="give seconds, as 2.5")
    return said


def _left(how: Mapping[str, Any]) -> float:
    """Return the seconds that a call has left; with none, the proxy's client says so."""
    return float(how[_END]) - time.monotonic()


def _step(how: Mapping[str, Any], place: int, parts: int) -> Mapping[str, Any]:
    """Return how one part of several is called: a sequence begins with the first and ends with the last."""
    if parts == 1 or "sequence_id" not in how:
        return how
    begins, ends = bool(how.get("sequence_start")), bool(how.get("sequence_end"))
    return {**how, "sequence_start": begins and place == 0, "sequence_end": ends and place == parts - 1}


def _typed(said: Mapping[str, Any], signature: Signature) -> dict[str, Array]:
    """Return an answer of a stream, which is JSON, as arrays of the types that the outputs have."""
    try:
        return {
            each.name: numpy.asarray(said[each.name], dtype_of(each.data_type))
            for each in signature.outputs
            if each.name in said
        }
    except (ValueError, TypeError, OverflowError) as error:
        raise UnreachableError("an answer of the stream is not what the model gives", why=str(error)) from None


def _joined(found: list[Answer], join: Callable[[list[Array]], Array]) -> Answer:
    versions = ", ".join(sorted({each.version for each in found}))
    try:
        outputs = {name: join([each.outputs[name] for each in found]) for name in found[0].outputs}
    except (KeyError, ValueError):
        why = "the answers to its parts are not all of one shape"
        raise UnreachableError("the answer cannot be put together", why=why) from None
    return Answer(outputs, found[0].model, versions)


def _as_given(given: Any, outputs: dict[str, Array]) -> Any:
    plain = {name: _text(array) for name, array in outputs.items()}
    if not is_frame(given) or any(not array.ndim or array.shape[0] != len(given) for array in plain.values()):
        return plain
    columns = {
        name: array.reshape(-1) if array.size == array.shape[0] else list(array) for name, array in plain.items()
    }
    return type(given)(columns, index=given.index)


def _text(array: Array) -> Array:
    """Return texts as such, unless they are no UTF-8."""
    if array.dtype != object:
        return array
    texts = numpy.empty(array.shape, object)
    try:
        texts.reshape(-1)[:] = [each.decode() if isinstance(each, bytes) else each for each in array.flat]
    except UnicodeDecodeError:
        return array
    return texts
