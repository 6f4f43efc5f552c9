"""An authority, and a certificate of it for a Triton, as a `kubernetes.io/tls` secret has them."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec


def write(folder: Path, *names: str) -> Path:
    """Write `tls.crt`, `tls.key` and `ca.crt` for a server with these names; return the folder."""
    folder.mkdir(parents=True)
    authority, server = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    ca = _certificate("authority", authority, authority, x509.BasicConstraints(ca=True, path_length=None))
    hosts = x509.SubjectAlternativeName([x509.DNSName(name) for name in names])
    signed = _certificate("triton", server, authority, hosts, issuer="authority")
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(ca.public_bytes(pem))
    (folder / "tls.crt").write_bytes(signed.public_bytes(pem))
    (folder / "tls.key").write_bytes(
        server.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    )
    return folder


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    signer: ec.EllipticCurvePrivateKey,
    extension: x509.ExtensionType,
    issuer: str = "",
) -> x509.Certificate:
    now = datetime.now(UTC)
    called, by = (x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, each)]) for each in (name, issuer or name))
    made = x509.CertificateBuilder().subject_name(called).issuer_name(by).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - timedelta(hours=1))
    made = made.not_valid_after(now + timedelta(days=1)).add_extension(extension, critical=True)
    return made.sign(signer, hashes.SHA256())
