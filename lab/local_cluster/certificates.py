"""A certificate authority for programs that the API server calls or authenticates to, and for tests."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from .control_plane import private

LASTS = datetime.timedelta(days=30)
_USAGES = (
    "digital_signature", "content_commitment", "key_encipherment", "data_encipherment", "key_agreement",
    "key_cert_sign", "crl_sign", "encipher_only", "decipher_only",
)  # fmt: skip
_PURPOSES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.CODE_SIGNING)


class Authority:
    """A certificate authority with a new key."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self._own = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.pem = self._own.public_bytes(serialization.Encoding.PEM)

    def pair(self, *names: str) -> tuple[bytes, bytes]:
        """Return a new key and its certificate as PEM, for a server or client with these names and at loopback."""
        key = ec.generate_private_key(ec.SECP256R1())
        also = [x509.DNSName(name) for name in names] + [x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
        certificate = self._sign(
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])]), key, x509.SubjectAlternativeName(also)
        )
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        pem = serialization.Encoding.PEM
        return key.private_bytes(pem, form, plain), certificate.public_bytes(pem)

    def write(self, folder: Path, *names: str) -> Path:
        """Write `tls.crt`, `tls.key` and `ca.crt` for a server or client with these names, and return the directory."""
        key, certificate = self.pair(*names)
        for name, data in (("tls.key", key), ("tls.crt", certificate), ("ca.crt", self.pem)):
            private(folder / name, data.decode())
        return folder

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + LASTS).add_extension(extension, critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        theirs = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False).add_extension(theirs, critical=False)
        is_root = name == self._name
        usage = dict.fromkeys(_USAGES, False) | {"key_cert_sign": is_root, "digital_signature": not is_root}
        builder = builder.add_extension(x509.KeyUsage(**usage), critical=True)
        if not is_root:
            builder = builder.add_extension(x509.ExtendedKeyUsage(_PURPOSES), critical=False)
        return builder.sign(self._key, hashes.SHA256())
