"""Signs a version's manifest and verifies the signature: OpenSSF model signing, with a key.

The signed file is `manifest.json`. It has the digest of every other file, so nothing is hashed again. To verify it with
the library, run `model_signing verify key --signature … --public_key … FOLDER`, with only `manifest.json` in FOLDER.
https://github.com/sigstore/model-transparency
"""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tidegate_contracts.manifest import Manifest

from ..errors import IntegrityError, UsageError, install
from .server import quiet
from .version import MANIFEST_FILE

_WANTED = (
    "use a private key of an elliptic curve (prime256v1, secp384r1 or secp521r1) in PEM format, with its password if "
    "it has one"
)
_PUBLIC = "use a public key in PEM format"


@dataclass(frozen=True)
class SigningKey:
    """An elliptic curve's private key, with its password."""

    private_key: Path
    password: str | None = field(default=None, repr=False)


def sign(manifest: Manifest, key: SigningKey) -> bytes:
    """Return the signature of a manifest, a Sigstore bundle in JSON. Raises UsageError for an unusable key."""
    with _library(manifest) as (library, folder):
        config = library.signing.Config()
        signature = folder.parent / "signature.json"
        try:
            # Bytes, despite the type hint: the library passes it to one that accepts nothing else.
            password = key.password.encode() if key.password is not None else None
            config.use_elliptic_key_signer(private_key=key.private_key, password=password)
            config.sign(folder, signature)
        except Exception as error:  # the library raises various exceptions for keys of other kinds
            # Its text may contain the key. Only the operating system's texts are shown.
            why = error.strerror or "" if isinstance(error, OSError) else type(error).__name__
            raise UsageError("the key cannot sign", where=key.private_key, why=why, do=_WANTED) from None
        return signature.read_bytes()


def verify(manifest: Manifest, signature: bytes, public_key: Path, where: str) -> None:
    """Raise IntegrityError if a signature does not match the manifest and the public key."""
    with _library(manifest) as (library, folder):
        file = folder.parent / "signature.json"
        file.write_bytes(signature)
        config = library.verifying.Config()
        try:
            config.use_elliptic_key_verifier(public_key=public_key)
        except Exception as error:
            raise UsageError("the public key cannot be read", where=public_key, why=str(error), do=_PUBLIC) from None
        try:
            config.verify(folder, file)
        except Exception as error:  # the library raises various exceptions for an invalid bundle
            why = " ".join(str(error).split())[:300] or type(error).__name__
            do = "do not deploy this version. Find out who registered it, and with which key"
            raise IntegrityError("the signature is invalid", where=where, why=why, do=do) from None


@contextmanager
def _library(manifest: Manifest) -> Iterator[tuple[Any, Path]]:
    """Yield the library, and a directory with only the manifest. Its parent is free for other files."""
    try:
        import model_signing
        import model_signing.signing
        import model_signing.verifying
    except ImportError as error:
        what = "signatures need the package model-signing and its dependencies"
        raise UsageError(what, why=str(error), do=install("signing")) from None
    with quiet("model_signing"), tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
        folder = Path(scratch, "manifest")
        folder.mkdir()
        (folder / MANIFEST_FILE).write_bytes(manifest.canonical())
        yield model_signing, folder
