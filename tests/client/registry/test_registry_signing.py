"""A signature tells whose version it is, and holds for nothing else."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tidegate.errors import IntegrityError, UsageError
from tidegate.registry.manifest import manifest_of
from tidegate.registry.signing import SigningKey, Trust, sign, verify
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
    """Write a private key and its public key."""
    key = ec.generate_private_key(ec.SECP256R1())
    public = folder / f"{name}.pub"
    form = serialization.PublicFormat.SubjectPublicKeyInfo
    public.write_bytes(key.public_key().public_bytes(serialization.Encoding.PEM, form))
    return write_key(key, folder / f"{name}.key", password), public


def test_a_signature_by_a_key_holds_for_its_manifest_and_that_key_only(manifest: Manifest, tmp_path: Path) -> None:
    private, public = pair(tmp_path, "mine")
    _, other = pair(tmp_path, "other")
    signature = sign(manifest, SigningKey(private))
    verify(manifest, signature, Trust(public), "here")
    with pytest.raises(IntegrityError, match="does not hold"):
        verify(manifest, signature, Trust(other), "here")
    changed = manifest.model_copy(update={"model": "another"})
    with pytest.raises(IntegrityError, match="does not hold"):
        verify(changed, signature, Trust(public), "here")
    for broken in (b"", b"{}", signature[:-20], b"\xff" * 100, signature.replace(b"a", b"b", 40)):
        with pytest.raises(IntegrityError, match="does not hold"):
            verify(manifest, broken, Trust(public), "here")


def test_a_key_with_a_password_wants_it_and_never_shows_it(manifest: Manifest, tmp_path: Path) -> None:
    private, public = pair(tmp_path, "locked", PASSWORD)
    verify(manifest, sign(manifest, SigningKey(private, PASSWORD)), Trust(public), "here")
    for wrong in (None, "wr0ng-pass"):
        with pytest.raises(UsageError, match="the key cannot sign") as told:
            sign(manifest, SigningKey(private, wrong))
        assert "wr0ng" not in str(told.value)
    assert PASSWORD not in repr(SigningKey(private, PASSWORD))


def test_what_is_no_key_is_told(manifest: Manifest, tmp_path: Path) -> None:
    rsa_key = write_key(rsa.generate_private_key(65537, 2048), tmp_path / "rsa.key")
    (tmp_path / "text").write_text("no key")
    for file in (tmp_path / "missing", tmp_path / "text", rsa_key):
        with pytest.raises(UsageError, match="the key cannot sign"):
            sign(manifest, SigningKey(file))
    private, _ = pair(tmp_path, "mine")
    with pytest.raises(UsageError, match="cannot be read"):
        verify(manifest, sign(manifest, SigningKey(private)), Trust(tmp_path / "missing"), "here")
    for wrong in ({}, {"public_key": private, "roots": (private,)}):
        with pytest.raises(UsageError, match="say one of them"):
            Trust(**wrong)  # type: ignore[arg-type]


def certificates(folder: Path) -> tuple[Path, Path, Path]:
    """Write a root, and a key with a certificate of that root's for signing code."""
    now = datetime.now(UTC)

    def certificate(
        subject: str, key: ec.EllipticCurvePrivateKey, issuer: str, signer: ec.EllipticCurvePrivateKey
    ) -> Path:
        is_root = subject == issuer
        others = "content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "crl_sign"
        usage = dict.fromkeys((*others, "encipher_only", "decipher_only"), False)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, subject)]))
            .issuer_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, issuer)]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(days=1))
            .not_valid_after(now + timedelta(days=30))
            .add_extension(x509.BasicConstraints(ca=is_root, path_length=None), critical=True)
            .add_extension(x509.KeyUsage(digital_signature=not is_root, key_cert_sign=is_root, **usage), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
        )
        if not is_root:
            builder = builder.add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
        file = folder / f"{subject}.crt"
        file.write_bytes(builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
        return file

    root_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    root = certificate("root", root_key, "root", root_key)
    return root, write_key(key, folder / "signer.key"), certificate("signer", key, "root", root_key)


def test_a_signature_by_a_certificate_holds_for_its_root_only(manifest: Manifest, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).mkdir()
    root, private, certificate = certificates(tmp_path / "ours")
    other_root, _, _ = certificates(tmp_path / "theirs")
    signature = sign(manifest, SigningKey(private, certificate=certificate, chain=(root,)))
    verify(manifest, signature, Trust(roots=(root,)), "here")
    with pytest.raises(IntegrityError, match="does not hold"):
        verify(manifest, signature, Trust(roots=(other_root,)), "here")


def test_a_version_is_signed_when_it_is_registered_or_afterwards(world: World, tmp_path: Path) -> None:
    registry = world.registry()
    private, public = pair(tmp_path, "mine")
    _, other = pair(tmp_path, "other")
    root = entry(tmp_path, "signed-version")
    version = registry.register(root, registered_by="anna")
    with pytest.raises(IntegrityError, match="is not signed"):
        registry.verify_signature(version, Trust(public))
    again = registry.register(root, registered_by="anna", key=SigningKey(private))
    assert (again.number, again.signed, version.signed) == (1, True, False)
    registry.verify_signature(again, Trust(public))
    with pytest.raises(IntegrityError, match="does not hold"):
        registry.verify_signature(again, Trust(other))
    (root / "1/model.py").write_bytes(program(2))
    second = registry.register(root, registered_by="anna", key=SigningKey(private))
    registry.verify_signature(second, Trust(public))
    stolen = second.model_copy(update={"tags": second.tags | {"tidegate.signature.sha256": "0" * 64}})
    with pytest.raises(IntegrityError, match="not in the artifact store"):
        registry.verify_signature(stolen, Trust(public))
