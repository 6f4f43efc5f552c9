"""The commands that register, deploy, promote, roll back, compare and remove versions."""

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
from ..output import File, Json, Text, Trusted, counted, exit_codes, note, print_json, print_table, progress, size
from .completion import environment_argument, environment_option, model_argument

if TYPE_CHECKING:
    from ..life.publish import Outcome
    from ..registry import Record

PASSWORD = "TIDEGATE_SIGNING_KEY_PASSWORD"
Model = Annotated[str, model_argument(help="A model: fraud, fraud@3 (version), fraud@champion (alias).")]
Name = Annotated[str, model_argument(help="The model.")]
OneModel = Annotated[str | None, model_argument(help="Only this model.")]
Environment = Annotated[str, environment_argument(help="The environment.")]
Wait = Annotated[float, Option(min=0, help="Seconds to wait for the load.")]
PublicKey = Annotated[File, Option(envvar="TIDEGATE_PUBLIC_KEY", help="Accept only versions that this key verifies.")]


@contextmanager
def _opened(wait: float = WAIT_SECONDS, public_key: Path | None = None) -> Iterator[Tidegate]:
    with exit_codes(), Tidegate(public_key=public_key, wait_seconds=wait, tell=note, progress=progress) as tidegate:
        yield tidegate


def register(
    entry: Annotated[Path, Argument(help="The entry: config.pbtxt and one version directory, or a language model.")],
    name: Annotated[Text, Option(help="Name of the model. Default: the directory's.")] = None,
    server: Annotated[Text, Option(help="Server that model endpoints name in their calls.")] = None,
    golden: Annotated[File, Option(help="A request with its outputs (JSON), which every deployment must pass.")] = None,
    key: Annotated[File, Option(help=f"Sign with this private key (PEM). Its password is in {PASSWORD}.")] = None,
    trusted: Trusted = False,
    json: Json = False,
) -> None:
    """Register an entry in MLflow as a new version, with digests. The same content always gives the same version.

    `tidegate model check` describes entries.
    """
    with _opened() as tidegate:
        from ..registry import SigningKey

        signing = None if key is None else SigningKey(key, os.environ.get(PASSWORD) or None)
        version = tidegate.register(entry, name, server=server, golden=golden, key=signing, trusted=trusted)
        if json:
            print_json(version)
            return
        client = f". Its client model is {version.client_model}" if version.client_model else ""
        print(f"{version.model} is registered as version {version.number}{client}")


def deploy(
    model: Model,
    to: Annotated[Text, environment_option(help="The environment. Required if several accept any version.")] = None,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    json: Json = False,
) -> None:
    """Deploy a registered version to an environment such as dev. Callers reach it after verification and tests.

    A language model is published first. Until the definition names the version, the exit code is 8.
    """
    with _opened(wait, public_key) as tidegate:
        _show(tidegate.deploy(model, to), json)


def promote(
    model: Model,
    to: Annotated[str, environment_option(help="The environment.")],
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    json: Json = False,
) -> None:
    """Promote a version to the next environment, under its rules.

    A language model is published first. Until the definition names the version, the exit code is 8.
    """
    with _opened(wait, public_key) as tidegate:
        _show(tidegate.promote(model, to), json)


def rollback(
    model: Name,
    environment: Annotated[str, environment_option("--in", help="The environment.")],
    version: Annotated[int | None, Option(help="The version. Default: the previous one.")] = None,
    wait: Wait = WAIT_SECONDS,
    public_key: PublicKey = None,
    json: Json = False,
) -> None:
    """Go back to the previous version of an environment. Fetches nothing if its files are still there.

    For a language model, the weights in the definition decide which version gets calls.
    """
    with _opened(wait, public_key) as tidegate:
        _show(tidegate.roll_back(model, environment, version), json)


def undeploy(
    model: Name,
    environment: Annotated[str, environment_option("--from", help="The environment.")],
    yes: Annotated[bool, Option("--yes", help="Confirm. Calls of the model then fail.")] = False,
    wait: Annotated[float, Option(min=0, help="Seconds to wait.")] = WAIT_SECONDS,
    json: Json = False,
) -> None:
    """Remove a model from an environment, and wait until no server has it. `tidegate rollback` restores it.

    Refuses language models and on-demand models in a bucket. Remove those from the definition instead.
    """
    with _opened(wait) as tidegate:
        if not yes:
            what = f"calls of {model} will fail in {environment}. Nothing was changed yet"
            do = f"run `tidegate why {model} --environment {environment}` to see its users, then repeat with --yes"
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
    """Compare an environment's repositories with the registry, byte for byte.

    Exit code 7 if content differs, 1 for other findings.
    """
    with _opened() as tidegate:
        audit = tidegate.verify(environment, models or ())
        if json:
            print_json(audit)
        else:
            if audit.found:
                rows = ((each.kind, each.model, each.version, each.what, each.where) for each in audit.found)
                print_table(("found", "model", "#version", "what", "where"), rows)
            audited = f"{counted(audit.versions, 'version')}, {size(audit.bytes)}"
            print(f"{audit.environment}: {audited}, {counted(len(audit.found), 'finding')}")
        if audit.found:
            raise Exit(ExitCode.INTEGRITY if audit.content else ExitCode.FOUND)


def history(
    model: Name,
    environment: Annotated[Text, environment_option("--in", help="Only this environment.")] = None,
    json: Json = False,
) -> None:
    """Show who registered, deployed, promoted or rolled back which version.

    Includes failed, interrupted and running attempts.
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
    yes: Annotated[bool, Option("--yes", help="Remove them.")] = False,
    json: Json = False,
) -> None:
    """List versions that are not served and that no rollback needs. With --yes, remove them.

    The registry keeps all versions: `tidegate deploy` and `tidegate promote` restore them.
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
            more = ". Pass --yes to remove them" if found else ""
            print(f"{counted(len(found), 'unserved version')}, {total}{more}")


def _what(record: "Record") -> str:
    return record.what if record.ended == "done" else f"{record.what} ({record.ended})"


def _show(outcome: "Outcome", json: bool) -> None:
    if json:
        print_json(outcome)
        return
    before = f" (before: version {outcome.previous})" if outcome.previous is not None else ""
    does = "has" if outcome.changed else "already has"
    print(f"{outcome.environment} {does} version {outcome.version} of {outcome.model}{before}")
    for each in outcome.notes:
        note(f"note: {each}")
