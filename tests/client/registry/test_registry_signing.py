from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from tidegate.errors import IntegrityError, UsageError
from tidegate.registry.manifest import manifest_of
from tidegate.registry.signing import SigningKey, sign, verify
from tidegate_contracts.manifest import Manifest

from .conftest import World
from .entries import entry, program

PASSWORD = "pass-w0rd"


@pytest.fixture
def manifest(tmp_path: Path) -> Manifest:
    return manifest_of(entry(tmp_path, "signed"))


def write_key(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, file: Path, password: str | None = None) -> Path:
    hidden = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    file.write_bytes(key.private_bytes(pem, form, hidden))
    return file


def pair(folder: Path, name: str, password: str | None = None) -> tuple[Path, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    public = folder / f"{name}.pub"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return write_key(key, folder / f"{name}.key", password), public


def test_a_signature_by_a_key_holds_for_its_manifest_and_that_key_only(manifest: Manifest, tmp_path: Path) -> None:
    private, public = pair(tmp_path, "mine")
    _, other = pair(tmp_path, "other")
    signature = sign(manifest, SigningKey(private))
    verify(manifest, signature, public, "here")
    with pytest.raises(IntegrityError, match="the signature is invalid"):
        verify(manifest, signature, other, "here")
    changed = manifest.model_copy(update={"model": "another"})
    with pytest.raises(IntegrityError, match="the signature is invalid"):
        verify(changed, signature, public, "here")
    for broken in (b"", b"{}", signature[:-20], b"\xff" * 100, signature.replace(b"a", b"b", 40)):
        with pytest.raises(IntegrityError, match="the signature is invalid"):
            verify(manifest, broken, public, "here")


def test_a_key_with_a_password_wants_it_and_never_shows_it(manifest: Manifest, tmp_path: Path) -> None:
    private, public = pair(tmp_path, "locked", PASSWORD)
    verify(manifest, sign(manifest, SigningKey(private, PASSWORD)), public, "here")
    for wrong in (None, "wr0ng-pass"):
        with pytest.raises(UsageError, match="the key cannot sign") as caught:
            sign(manifest, SigningKey(private, wrong))
        assert "wr0ng" not in str(caught.value)
    assert PASSWORD not in repr(SigningKey(private, PASSWORD))


def test_an_invalid_key_is_refused(manifest: Manifest, tmp_path: Path) -> None:
    rsa_key = write_key(rsa.generate_private_key(65537, 2048), tmp_path / "rsa.key")
    (tmp_path / "text").write_text("no key")
    for file in (tmp_path / "missing", tmp_path / "text", rsa_key):
        with pytest.raises(UsageError, match="the key cannot sign"):
            sign(manifest, SigningKey(file))
    private, _ = pair(tmp_path, "mine")
    with pytest.raises(UsageError, match="cannot be read"):
        verify(manifest, sign(manifest, SigningKey(private)), tmp_path / "missing", "here")


def test_a_version_is_signed_when_it_is_registered_or_afterwards(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    private, public = pair(tmp_path, "mine")
    _, other = pair(tmp_path, "other")
    root = entry(tmp_path, "signed-version")
    version = registry.register(root, registered_by="anna")
    with pytest.raises(IntegrityError, match="is not signed"):
        registry.verify_signature(version, public)
    again = registry.register(root, registered_by="anna", key=SigningKey(private))
    assert again.number == version.number == 1
    registry.verify_signature(again, public)
    with pytest.raises(IntegrityError, match="the signature is invalid"):
        registry.verify_signature(again, other)
    (root / "1/model.py").write_bytes(program(2))
    second = registry.register(root, registered_by="anna", key=SigningKey(private))
    registry.verify_signature(second, public)
    stolen = second.model_copy(update={"tags": second.tags | {"tidegate.signature.sha256": "0" * 64}})
    with pytest.raises(IntegrityError, match="missing in the artifact store"):
        registry.verify_signature(stolen, public)
