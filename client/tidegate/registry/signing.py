"""Signs a version's manifest and verifies the signature: OpenSSF model signing, with a key.

What is signed is the file `manifest.json`, which holds the digest of every other file, so that nothing is hashed again.
Anybody with the version's files can verify it: `model_signing verify key --signature … --public_key … FOLDER`, with
`manifest.json` alone in FOLDER. https://github.com/sigstore/model-transparency
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
    "give a private key of an elliptic curve (prime256v1, secp384r1 or secp521r1) in PEM, and its password where it "
    "has one"
)
_PUBLIC = "give a public key in PEM"


@dataclass(frozen=True)
class SigningKey:
    """What a version is signed with: an elliptic curve's private key."""

    private_key: Path
    password: str | None = field(default=None, repr=False)


def sign(manifest: Manifest, key: SigningKey) -> bytes:
    """Return the signature of a manifest, a Sigstore bundle in JSON; raises UsageError for a key that cannot sign."""
    with _library(manifest) as (library, folder):
        config = library.signing.Config()
        signature = folder.parent / "signature.json"
        try:
            # Bytes: the library hands it on to one that takes nothing else, whatever its type hint says.
            password = key.password.encode() if key.password is not None else None
            config.use_elliptic_key_signer(private_key=key.private_key, password=password)
            config.sign(folder, signature)
        except Exception as error:  # of a key of another kind, the library raises whatever it stumbles over
            # Its words may hold the key: of those, only the system's own are told.
            why = error.strerror or "" if isinstance(error, OSError) else type(error).__name__
            raise UsageError("the key cannot sign", where=key.private_key, why=why, do=_WANTED) from None
        return signature.read_bytes()


def verify(manifest: Manifest, signature: bytes, public_key: Path, where: str) -> None:
    """Raise IntegrityError when a signature is not of this manifest, or not by this key's other half."""
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
        except Exception as error:  # of a bundle that is none, the library and its libraries raise whatever they like
            why = " ".join(str(error).split())[:300] or type(error).__name__
            do = "deploy nothing of this version; ask who registered it, and with which key"
            raise IntegrityError("the signature does not hold", where=where, why=why, do=do) from None


@contextmanager
def _library(manifest: Manifest) -> Iterator[tuple[Any, Path]]:
    """Yield the library, and a folder in which only the manifest is; its parent is there for more."""
    try:
        import model_signing
        import model_signing.signing
        import model_signing.verifying
    except ImportError as error:
        what = "signatures need the package model-signing, and what it needs"
        raise UsageError(what, why=str(error), do=install("signing")) from None
    with quiet("model_signing"), tempfile.TemporaryDirectory(prefix="tidegate-") as scratch:
        folder = Path(scratch, "manifest")
        folder.mkdir()
        (folder / MANIFEST_FILE).write_bytes(manifest.canonical())
        yield model_signing, folder
