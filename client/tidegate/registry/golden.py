"""The golden request of a version: a request whose answer is known, asked of every place that it comes to."""

import hashlib
import json
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from reprlib import Repr
from typing import Any

from pydantic import Field, ValidationError
from tidegate_contracts.message import Message

from ..errors import UsageError
from ..failures import plain

_short = Repr()
_short.maxstring = 80


class Golden(Message):
    """A request, and what its answer must be where that is known."""

    request: dict[str, Any]
    """The body of `POST /v2/models/<model>/infer`, as JSON has it; or of a call of OpenAI's API, without the model."""
    outputs: dict[str, list[Any]] | None = None
    """The data that each named output must have, flat or nested; None: any answer will do."""
    tolerance: float = Field(1e-4, ge=0)
    """How far numbers may be off, relative to what they must be, and absolutely about zero."""

    def canonical(self) -> bytes:
        """Return the bytes that its file has."""
        return json.dumps(self.model_dump(by_alias=True), sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> str:
        """Return the SHA-256 of its canonical bytes, in hexadecimal."""
        return hashlib.sha256(self.canonical()).hexdigest()

    def check(self, inputs: Mapping[str, bool], outputs: Collection[str], where: str) -> None:
        """Raise UsageError, which says the place, where tensors are named that the configuration does not have.

        `inputs` says of each whether it may be left out. Without any, or without outputs, Triton finds out itself.
        """
        if not isinstance(self.request.get("inputs"), list):
            do = "write it as POST /v2/…/infer takes it"
            raise UsageError("the request has no list `inputs`", where=where, do=do)
        given = [each.get("name") if isinstance(each, dict) else None for each in self.request.get("inputs", [])]
        wanted = [(f"outputs.{name}", name) for name in self.outputs or ()] + [
            (f"request.outputs[{place}]", each.get("name") if isinstance(each, dict) else None)
            for place, each in enumerate(self.request.get("outputs") or ())
        ]
        named = [(f"request.inputs[{place}]", name) for place, name in enumerate(given)]
        for kind, has, listed in (("input", inputs, named), ("output", outputs, wanted)):
            for place, name in listed if has else ():
                if name not in has:
                    what = f"the golden request names an {kind} {name!r} at {place}, which the model does not have"
                    why = f"config.pbtxt has the {kind}s {', '.join(has)}"
                    raise UsageError(what, where=where, why=why, do="write the names that config.pbtxt has")
        if missing := [name for name, optional in inputs.items() if not optional and name not in given]:
            what = f"the golden request lacks the input {missing[0]} in request.inputs"
            why = "config.pbtxt has it, and does not say that it is optional"
            raise UsageError(what, where=where, why=why, do="give it, with shape, datatype and data")

    def differences(self, answer: Mapping[str, Any]) -> list[str]:
        """Return how an answer of Triton's, as JSON has it, is not what it must be; nothing when it is."""
        if self.outputs is None:
            return []
        data = {output.get("name"): output.get("data") for output in answer.get("outputs", [])}
        return [line for name, wanted in self.outputs.items() for line in self._of(name, wanted, data.get(name))]

    def _of(self, name: str, wanted: Sequence[Any], there: Any) -> Iterator[str]:
        if not isinstance(there, list):
            yield f"output {name} is not in the answer"
            return
        expected, found = list(_flat(wanted)), list(_flat(there))
        if len(expected) != len(found):
            yield f"output {name} has {len(found)} elements, and must have {len(expected)}"
            return
        off = [index for index, pair in enumerate(zip(expected, found, strict=True)) if not self._same(*pair)]
        if off:
            first = off[0]
            yield (
                f"output {name}: {len(off)} of {len(expected)} elements are off by more than {self.tolerance:g}; "
                f"the first is [{first}], {_short.repr(found[first])} in place of {_short.repr(expected[first])}"
            )

    def _same(self, expected: Any, found: Any) -> bool:
        if _is_number(expected) and _is_number(found):
            both_nan = math.isnan(expected) and math.isnan(found)
            return both_nan or math.isclose(expected, found, rel_tol=self.tolerance, abs_tol=self.tolerance)
        return type(expected) is type(found) and bool(expected == found)


def read_golden(text: str | bytes, where: str) -> Golden:
    """Return the golden request of a file: `{"request": …, "outputs": …}`, or the bare request; raises UsageError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("this is no JSON", where=where, why=plain(error)) from None
    if isinstance(document, dict) and "request" not in document:
        document = {"request": document}
    try:
        golden = Golden.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"])) or "the file"
        do = 'write {"request": {"inputs": […]}, "outputs": {"NAME": […]}}, or the request alone'
        raise UsageError("this is no golden request", where=where, why=f"{at}: {first['msg']}", do=do) from None
    asked = golden.request.get("outputs")
    if isinstance(asked, list) and any(isinstance(each, dict) and "data" in each for each in asked):
        what = "the answer stands within the request, where nobody would compare it"
        raise UsageError(what, where=where, do='write {"request": {"inputs": […]}, "outputs": {"NAME": […]}}')
    return golden


def _flat(data: Sequence[Any]) -> Iterator[Any]:
    for each in data:
        if isinstance(each, list):
            yield from _flat(each)
        else:
            yield each


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
