"""`tidegate predict` and `tidegate status`."""

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from typer import Exit, Option

from ..errors import ExitCode, UsageError, hints_once
from ..output import Json, Text, Texts, exit_codes, note, print_json, print_table, printable
from .completion import environment_option, model_argument

if TYPE_CHECKING:
    from ..calling.tensors import Answer
    from ..status import AskedPlane, ModelStatus, PlaneStatus

_SHOWN = 8  # values of an output in the table
_LONGEST = 200  # characters of a text in the table
Only = Annotated[Text, model_argument(help="Show only this model.")]
Environment = Annotated[Text, environment_option("--environment", "-e", help="The environment. Default: all.")]
Plane = Annotated[Text, Option(help="The data plane. Default: all.")]
Proxy = Annotated[Text, Option(help="A proxy's address, instead of an environment.")]


def predict(
    model: Annotated[str, model_argument(help="A model: fraud, fraud@3 (version).")],
    data: Annotated[
        Text, Option("--data", "-d", help="Inputs: a .json, .npy, .npz or .csv file, or - for JSON from stdin.")
    ] = None,
    inputs: Annotated[Texts, Option("--input", "-i", help="An input: NAME=VALUE in JSON. Can be repeated.")] = None,
    environment: Annotated[
        Text, environment_option("--environment", "-e", help="The environment. Default: DOMINO_INFERENCE_PROXY.")
    ] = None,
    plane: Plane = None,
    proxy: Proxy = None,
    server: Annotated[Text, Option(help="The server, if several have the model.")] = None,
    sticky: Annotated[Text, Option(help="Calls with the same word get the same version.")] = None,
    timeout: Annotated[float, Option(min=0.01, max=999999, help="Seconds to wait, including retries.")] = 60.0,
    json: Json = False,
) -> None:
    """Call a model, and show its outputs and the version that answered."""
    with exit_codes():
        from ..calling.model import Model
        from ..status import proxy_of

        name, _, version = model.partition("@")
        found = proxy_of(name, environment, plane, proxy)
        name = found.own_name(name)
        with found.client(timeout) as client:
            called = Model(client, name, server=server, version=version or None)
            given = _given(data, inputs or [])
            kind = found.kind_of(server) if server is not None else found.kind_of_model(name)
            if not kind.speaks_v2:
                if not isinstance(given, dict):
                    what = f"{name} takes one request of OpenAI's API, as a JSON object"
                    raise UsageError(what, do="pass one object, or use OpenAI's own client to stream")
                answered = kind.ask(client, name, given, server=server, version=version or None, deadline=timeout)
                if json:
                    print_json(answered)
                else:
                    print(*answered["outputs"][0]["data"], sep="\n")
                return
            began = time.monotonic()
            answer = called.ask(given, {"sticky": sticky, "deadline": timeout})
            _show_answer(answer, time.monotonic() - began, json)


def _given(data: str | None, words: list[str]) -> Any:
    from ..calling import files

    if (data is None) == (not words):
        raise UsageError("pass inputs with either --data or --input", do="run `tidegate status MODEL` to see them")
    return files.read_words(words) if data is None else files.read_inputs(data)


def _show_answer(answer: "Answer", seconds: float, json: bool) -> None:
    from ..calling.files import plain, shown
    from ..calling.tensors import type_of

    if json:
        document = {"model": answer.model, "version": answer.version, "seconds": round(seconds, 6)}
        print_json(document | {"outputs": plain(answer)})
        return
    rows = []
    for name, array in answer.outputs.items():
        values = ", ".join(_short(value) for value in shown(array, _SHOWN)) + (", …" if array.size > _SHOWN else "")
        rows.append((name, type_of(array, name), "×".join(map(str, array.shape)), values))
    which = f", version {answer.version}" if answer.version else ""
    print_table(("OUTPUT", "TYPE", "SHAPE", "VALUES"), rows, f"{answer.model}{which}, {seconds * 1000:.1f} ms")


def _short(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)[:_LONGEST].replace("\n", "\ufffd")


def status(
    model: Only = None, environment: Environment = None, plane: Plane = None, proxy: Proxy = None, json: Json = False
) -> None:
    """List models: their state, their server, and the versions that answer. Loads nothing.

    For one model that is in memory, also its inputs and outputs.
    """
    with exit_codes():
        from ..status import collect, proxies

        found = collect(proxies(environment, plane, proxy), model)
        if json:
            print_json(found)
        else:
            for each in found:
                _show(each, signatures=model is not None)
        end(found, json)


def end(planes: "Sequence[AskedPlane]", json: bool) -> None:
    """Exit with an error if a proxy failed: its exit code, or UNREACHABLE if the codes differ.

    Prints the errors unless `json`, because the JSON has them.
    """
    if failed := [each for each in planes if each.error]:
        messages = (each.error if each.error.startswith(each.at) else f"{each.at}: {each.error}" for each in failed)
        for text in () if json else hints_once(messages):
            note(text)
        codes = {each.exit_code for each in failed}
        raise Exit(codes.pop() if len(codes) == 1 else ExitCode.UNREACHABLE)


def _show(plane: "PlaneStatus", *, signatures: bool) -> None:
    if plane.error:
        return
    columns = "MODEL", "SERVER", "STATE", "TRAFFIC", "VERSION"
    rows = [row for model in plane.models for row in _rows(model)]
    at = plane.at
    print_table(columns, rows, f"{at}: {plane.proxy} (you are {plane.caller})")
    for model in plane.models if signatures else ():
        if model.inputs or model.outputs:
            batch = f", up to {model.max_batch} rows" if model.max_batch else ""
            words = f"inputs: {', '.join(model.inputs)}{batch}. Outputs: {', '.join(model.outputs)}"
            print(printable(f"{model.model} ({at}) {words}"))
    models_by_reason: dict[str, list[str]] = {}
    for model in plane.models:
        if model.why:
            models_by_reason.setdefault(model.why, []).append(model.model)
    for why, models in models_by_reason.items():
        note(f"{at}: {', '.join(models)}: {why}")


def _rows(model: "ModelStatus") -> list[tuple[object, ...]]:
    versions = {*model.named, *(version for place in model.places for version in place.versions)}
    shown = [f"{each} (not ready)" if each in model.missing else str(each) for each in sorted(versions)] or [""]
    head = model.model, f"{model.server}/{model.pool}", model.state, model.traffic
    return [(*head, shown[0]), *(("", "", "", "", each) for each in shown[1:])]
