"""`tidegate register`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..api import Tidegate
from .output import Json, answering, note, print_json, print_table, progress, size

if TYPE_CHECKING:
    from ..registry import SigningKey

PASSWORD = "TIDEGATE_SIGNING_KEY_PASSWORD"


def register(
    entry: Annotated[Path, typer.Argument(help="Folder of the entry: config.pbtxt and one version folder.")],
    name: Annotated[str | None, typer.Option("--name", help="Name of the model; the folder's by default.")] = None,
    server: Annotated[
        str | None, typer.Option("--server", help="Inference server that endpoints name in their calls.")
    ] = None,
    golden: Annotated[
        Path | None,
        typer.Option("--golden", help="JSON file: a request, and the outputs it must have wherever it is deployed."),
    ] = None,
    key: Annotated[
        Path | None,
        typer.Option("--key", help=f"Sign with this private key (PEM); its password, if any, in {PASSWORD}."),
    ] = None,
    certificate: Annotated[Path | None, typer.Option("--certificate", help="The key's certificate (PEM).")] = None,
    chain: Annotated[
        list[Path] | None, typer.Option("--chain", help="A certificate between that and a root; may be repeated.")
    ] = None,
    experiment: Annotated[
        str | None, typer.Option("--experiment", help="MLflow experiment to make the runs in.")
    ] = None,
    json: Json = False,
) -> None:
    """Register an entry in MLflow as a new version, with its digests; the same content is always the same version."""
    with answering(), Tidegate(tell=note, progress=progress) as tidegate:
        signing = _key(key, certificate, chain)
        version = tidegate.register(entry, name, server=server, golden=golden, key=signing, experiment=experiment)
        if json:
            print_json(version)
            return
        from ..registry import Registry

        manifest = Registry().manifest(version)
        columns = ("Model", "#Version", "#Files", "Size", "Manifest", "Registered by", "Client model")
        row = (
            version.model, version.number, len(manifest.files), size(manifest.size), version.manifest_sha256[:12],
            version.registered_by, version.client_model,
        )  # fmt: skip
        print_table(columns, [row])


def _key(key: Path | None, certificate: Path | None, chain: list[Path] | None) -> "SigningKey | None":
    import os

    from ..errors import UsageError
    from ..registry import SigningKey

    if key is None:
        if certificate is not None or chain:
            raise UsageError("a certificate signs nothing without its key", do="name the key with --key")
        return None
    return SigningKey(key, os.environ.get(PASSWORD) or None, certificate, tuple(chain or ()))
