"""The golden request of a version: a request with a known answer, which is sent wherever the version is deployed."""

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
    """A request, and its expected outputs if they are known."""

    request: dict[str, Any]
    """The JSON body of `POST /v2/models/<model>/infer`, or of a request of OpenAI's API without `model`."""
    outputs: dict[str, list[Any]] | None = None
    """The expected data of each named output, flat or nested. None: any answer passes."""
    tolerance: float = Field(1e-4, ge=0)
    """Maximum relative difference of numbers, and absolute difference near 0."""

    def canonical(self) -> bytes:
        return json.dumps(self.model_dump(by_alias=True), sort_keys=True, separators=(",", ":")).encode()

    def digest(self) -> str:
        return hashlib.sha256(self.canonical()).hexdigest()

    def check(self, inputs: Mapping[str, bool], outputs: Collection[str], where: str) -> None:
        """Raise UsageError, with the place, if the request names tensors that the configuration does not have.

        `inputs` has for each input whether it is optional. Empty `inputs` or `outputs` are not checked, because Triton
        generates them.
        """
        if not isinstance(self.request.get("inputs"), list):
            do = "write it in the format of POST /v2/…/infer"
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
                    raise UsageError(what, where=where, why=why, do="use the names in config.pbtxt")
        if missing := [name for name, optional in inputs.items() if not optional and name not in given]:
            what = f"the golden request lacks the input {missing[0]} in request.inputs"
            why = "config.pbtxt has it, and it is not optional"
            raise UsageError(what, where=where, why=why, do="add it, with shape, datatype and data")

    def differences(self, answer: Mapping[str, Any]) -> list[str]:
        """Return the differences between Triton's answer, as JSON, and the expected outputs."""
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
            yield f"output {name} has {len(found)} elements instead of {len(expected)}"
            return
        off = [index for index, pair in enumerate(zip(expected, found, strict=True)) if not self._same(*pair)]
        if off:
            first = off[0]
            yield (
                f"output {name}: {len(off)} of {len(expected)} elements differ by more than {self.tolerance:g}. "
                f"The first is [{first}], {_short.repr(found[first])} instead of {_short.repr(expected[first])}"
            )

    def _same(self, expected: Any, found: Any) -> bool:
        if _is_number(expected) and _is_number(found):
            both_nan = math.isnan(expected) and math.isnan(found)
            return both_nan or math.isclose(expected, found, rel_tol=self.tolerance, abs_tol=self.tolerance)
        return type(expected) is type(found) and bool(expected == found)


def read_golden(text: str | bytes, where: str) -> Golden:
    """Parse a golden request: `{"request": …, "outputs": …}`, or only the request. Raises UsageError."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError("not valid JSON", where=where, why=plain(error)) from None
    if isinstance(document, dict) and "request" not in document:
        document = {"request": document}
    try:
        golden = Golden.model_validate(document)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        at = ".".join(map(str, first["loc"])) or "the file"
        do = 'write {"request": {"inputs": […]}, "outputs": {"NAME": […]}}, or the request alone'
        raise UsageError("not a golden request", where=where, why=f"{at}: {first['msg']}", do=do) from None
    requested = golden.request.get("outputs")
    if isinstance(requested, list) and any(isinstance(each, dict) and "data" in each for each in requested):
        what = "the expected outputs are inside the request, where they would not be compared"
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
