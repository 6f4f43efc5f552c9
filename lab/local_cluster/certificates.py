"""Certificates of what the API server calls, or calls others with: each folder has an authority of its own."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from .control_plane import private

_LASTS = datetime.timedelta(days=30)


def write_pair(folder: Path, *names: str) -> bytes:
    """Write `ca.crt`, `tls.crt` and `tls.key` for a server or client with these names on loopback; return the first."""
    authority_key, key = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    authority = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"authority of {names[0]}")])
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
    own = _certificate(authority, authority, authority_key).add_extension(x509.BasicConstraints(True, None), True)
    also = [*map(x509.DNSName, names), x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    purposes = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    pair = (
        _certificate(authority, name, key)
        .add_extension(x509.SubjectAlternativeName(also), False)
        .add_extension(x509.ExtendedKeyUsage(purposes), False)
    )
    plain = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    signed = [
        each.sign(authority_key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM) for each in (own, pair)
    ]
    for file, pem in (("ca.crt", signed[0]), ("tls.crt", signed[1]), ("tls.key", plain)):
        private(folder / file, pem.decode())
    return signed[0]


def _certificate(issuer: x509.Name, subject: x509.Name, key: ec.EllipticCurvePrivateKey) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder(issuer, subject, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + _LASTS)
    )
