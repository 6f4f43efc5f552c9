"""What becomes of a model: registered, brought into environments and back, compared, told and tidied up."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from typer import Argument, Exit, Option

from ..api import Tidegate
from ..errors import ExitCode, UsageError
from ..life import WAIT_SECONDS
from .completion import environment_argument, environment_option, model_argument
from .output import File, Json, Text, Trusted, counted, exit_codes, note, print_json, print_table, progress, size

if TYPE_CHECKING:
    from ..life.publish import Outcome
    from ..registry import Record

PASSWORD = "TIDEGATE_SIGNING_KEY_PASSWORD"
Model = Annotated[
    str, model_argument(help="A model, or a model and its version or alias: fraud, fraud@3, fraud@champion.")
]
Name = Annotated[str, model_argument(help="The model.")]
OneModel = Annotated[str | None, model_argument(help="Only this model.")]
Environment = Annotated[str, environment_argument(help="The environment, such as prod.")]
Wait = Annotated[float, Option(min=0, help="Seconds to wait until the version is loaded.")]
PublicKey = Annotated[
    File, Option(envvar="TIDEGATE_PUBLIC_KEY", help="Take only versions signed with this key's other half.")
]


@contextmanager
def _opened(wait: float = WAIT_SECONDS, public_key: Path | None = None) -> Iterator[Tidegate]:
    with (
        exit_codes(),
        Tidegate(public_key=public_key, wait_seconds=wait, tell=note, progress=progress) as tidegate,
    ):
        yield tidegate


def register(
    entry: Annotated[
        Path, Argument(help="Folder of the entry: config.pbtxt and one version folder; or a language model's.")
    ],
    name: Annotated[Text, Option(help="Name of the model; the folder's by default.")] = None,
    server: Annotated[Text, Option(help="Inference server that endpoints name in their calls.")] = None,
    golden: Annotated[
        File, Option(help="JSON file: a request, and the outputs it must have wherever it is deployed.")
    ] = None,
    key: Annotated[File, Option(help=f"Sign with this private key (PEM); its password, if any, in {PASSWORD}.")] = None,
    trusted: Trusted = False,
    json: Json = False,
) -> None:
    """Register an entry in MLflow as a new version, with its digests; the same content is always the same version.

    It is the folder of a Triton model, or of a language model, as `tidegate model check` takes it.
    """
    with _opened() as tidegate:
        from ..registry import SigningKey

        signing = None if key is None else SigningKey(key, os.environ.get(PASSWORD) or None)
        version = tidegate.register(entry, name, server=server, golden=golden, key=signing, trusted=trusted)
        if json:
            print_json(version)
            return
        client = f", and its client model is {version.client_model}" if version.client_model else ""
        print(f"{version.model} is registered as version {version.number}{client}")


def deploy(
    model: Model,
    to: Annotated[Text, environment_option(help="The environment; needed where several take any version.")] = None,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    json: Json = False,
) -> None:
    """Bring a registered version into an environment such as dev: verified, tried, and only then called.

    Of a language model it is published, and tried once the definition names it; until then the exit code is 8.
    """
    with _opened(wait, public_key) as tidegate:
        _show(tidegate.deploy(model, to), json)


def promote(
    model: Model,
    to: Annotated[str, environment_option(help="The environment, such as prod.")],
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    json: Json = False,
) -> None:
    """Bring a version from one environment into the next, such as from dev into prod, by the rules of that one.

    Of a language model it is published, and tried once the definition names it; until then the exit code is 8.
    """
    with _opened(wait, public_key) as tidegate:
        _show(tidegate.promote(model, to), json)


def rollback(
    model: Name,
    environment: Annotated[str, environment_option("--in", help="The environment, such as prod.")],
    version: Annotated[int | None, Option(help="The version to go back to; else the one that was before.")] = None,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    json: Json = False,
) -> None:
    """Go back to the version that an environment had before: nothing is fetched where it is still there.

    Calls of a language model come back to it by their weights in the definition.
    """
    with _opened(wait, public_key) as tidegate:
        _show(tidegate.roll_back(model, environment, version), json)


def undeploy(
    model: Name,
    environment: Annotated[str, environment_option("--from", help="The environment, such as prod.")],
    yes: Annotated[bool, Option("--yes", help="Do it: calls of the model fail there from then on.")] = False,
    wait: Annotated[float, Option(min=0, help="Seconds to wait until nothing serves it.")] = WAIT_SECONDS,
    json: Json = False,
) -> None:
    """Take a model out of an environment: nothing serves it there any more, and `tidegate rollback` brings it back.

    A language model, and one that loads on demand out of a bucket, leave by the definition, and are refused here.
    """
    with _opened(wait) as tidegate:
        if not yes:
            what = f"calls of {model} will fail in {environment}, and nothing was done yet"
            do = f"tidegate why {model} --environment {environment} shows who uses it; --yes does it"
            raise UsageError(what, do=do)
        outcome = tidegate.undeploy(model, environment)
        if json:
            print_json(outcome)
        else:
            print(f"{environment} has no version of {model} any more (before: version {outcome.version})")


def verify(
    environment: Environment,
    models: Annotated[list[str] | None, model_argument(help="Only these models.")] = None,
    json: Json = False,
) -> None:
    """Compare what an environment's repositories hold with the registry, byte for byte.

    Exit code 7 where content is another than was registered, 1 where anything else was found.
    """
    with _opened() as tidegate:
        audit = tidegate.verify(environment, models or ())
        if json:
            print_json(audit)
        else:
            if audit.found:
                rows = ((each.kind, each.model, each.version, each.what, each.where) for each in audit.found)
                print_table(("found", "model", "#version", "what", "where"), rows)
            looked = f"{counted(audit.versions, 'version')}, {size(audit.bytes)}"
            print(f"{audit.environment}: {looked}; {counted(len(audit.found), 'finding')}")
        if audit.found:
            raise Exit(ExitCode.INTEGRITY if audit.content else ExitCode.FOUND)


def history(
    model: Name,
    environment: Annotated[Text, environment_option("--in", help="Only this environment.")] = None,
    json: Json = False,
) -> None:
    """Show what became of a model: who registered, deployed, promoted, took back which version, when and where.

    Attempts that failed, and those that were interrupted, or are under way, are among them.
    """
    with _opened() as tidegate:
        records = tidegate.history(model, environment)
        if json:
            print_json(records)
            return
        rows = (
            (
                each.when.strftime("%Y-%m-%d %H:%M:%SZ"), _what(each), each.version, each.previous, each.environment,
                each.plane, each.source, each.who, (each.manifest_sha256 or "")[:12],
                re.sub("[0-9a-f]{64}", lambda digest: digest[0][:12], each.note),
            )
            for each in records
        )  # fmt: skip
        first = "when", "what", "#version", "#before", "environment", "data plane"
        print_table((*first, "from", "who", "manifest", "note"), rows)


def prune(
    environment: Environment,
    model: OneModel = None,
    yes: Annotated[bool, Option("--yes", help="Remove them; without it they are only shown.")] = False,
    json: Json = False,
) -> None:
    """Show the versions that are not served and no rollback needs, and with --yes remove them.

    The registry keeps them all: `tidegate deploy` and `tidegate promote` bring any of them back.
    """
    with _opened() as tidegate:
        found = tidegate.unserved(environment, model)
        if found and not json:  # before anything is removed
            rows = ((each.model, each.version, size(each.bytes), each.where) for each in found)
            print_table(("model", "#version", "#size", "where"), rows)
        removed = tidegate.prune(environment, found) if yes else []
        if json:
            print_json({"unserved": found, "removed": removed})
            return
        if yes:
            print(f"removed {counted(len(removed), 'version')}, {size(sum(each.bytes for each in removed))}")
        else:
            total = size(sum(each.bytes for each in found))
            more = "; --yes removes them" if found else ""
            print(f"{counted(len(found), 'unserved version')}, {total}{more}")


def _what(record: "Record") -> str:
    return record.what if record.ended == "done" else f"{record.what} ({record.ended})"


def _show(outcome: "Outcome", json: bool) -> None:
    if json:
        print_json(outcome)
        return
    before = f" (before: version {outcome.previous})" if outcome.previous is not None else ""
    does = "has" if outcome.changed else "has already"
    print(f"{outcome.environment} {does} version {outcome.version} of {outcome.model}{before}")
    for each in outcome.notes:
        note(f"note: {each}")
