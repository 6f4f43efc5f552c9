"""gRPC over TLS: to callers, with a certificate that changes, and to replicas, for whom an authority vouches."""

import datetime
import ipaddress
from pathlib import Path
from typing import Any

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from .harness import HOST, Rig, infer_request, method, rig, until


class Authority:
    """Signs certificates."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "authority")])
        self._own = self._sign(self._name, self._key, x509.BasicConstraints(ca=True, path_length=None))
        self.pem = self._own.public_bytes(serialization.Encoding.PEM)

    def pair(self, *names: str) -> tuple[bytes, bytes]:
        key = ec.generate_private_key(ec.SECP256R1())
        also = [x509.DNSName(name) for name in names] + [x509.IPAddress(ipaddress.ip_address(HOST))]
        certificate = self._sign(
            x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, names[0])]), key, x509.SubjectAlternativeName(also)
        )
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.PKCS8
        pem = serialization.Encoding.PEM
        return key.private_bytes(pem, form, plain), certificate.public_bytes(pem)

    def _sign(
        self, name: x509.Name, key: ec.EllipticCurvePrivateKey, extension: x509.ExtensionType
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = x509.CertificateBuilder(self._name, name, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now - datetime.timedelta(hours=1))
        builder = builder.not_valid_after(now + datetime.timedelta(hours=1)).add_extension(extension, critical=True)
        own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
        theirs = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        builder = builder.add_extension(own, critical=False).add_extension(theirs, critical=False)
        return builder.sign(self._key, hashes.SHA256())


def infer(running: Rig, credentials: grpc.ChannelCredentials | None = None) -> Any:
    call = method(running.channel(credentials=credentials), "ModelInfer")
    return call(infer_request("echo", b"x" * 300_000), metadata=running.metadata(), timeout=5)


def test_callers_are_served_over_tls_and_a_new_certificate_is_taken_over(tmp_path: Path) -> None:
    first, second = Authority(), Authority()
    folder = tmp_path / "tls"
    folder.mkdir()

    def write(pair: tuple[bytes, bytes]) -> None:
        (folder / "tls.key").write_bytes(pair[0])
        (folder / "tls.crt").write_bytes(pair[1])

    write(first.pair("proxy"))
    with rig(tmp_path, tls=True) as running:
        channel = running.channel(credentials=grpc.ssl_channel_credentials(first.pem))
        call = method(channel, "ModelInfer")
        assert bytes(call(infer_request(), metadata=running.metadata(), timeout=5).raw_output_contents[0]) == b"tensor"
        write(second.pair("proxy"))

        def changed() -> bool:
            try:
                infer(running, grpc.ssl_channel_credentials(second.pem))
            except grpc.RpcError:
                return False
            return True

        until(changed, 10)
        call(infer_request(), metadata=running.metadata(), timeout=5)  # the old connection goes on
        with pytest.raises(grpc.RpcError):
            infer(running)


def test_replicas_are_reached_over_tls_if_their_authority_vouches_for_them(tmp_path: Path) -> None:
    good, bad = Authority(), Authority()
    (tmp_path / "ca").mkdir()
    file = tmp_path / "ca" / "main.crt"
    file.write_bytes(good.pem)
    with rig(tmp_path, credentials=grpc.ssl_server_credentials([good.pair("replicas")])) as running:
        assert len(infer(running).raw_output_contents[0]) == 300_000
    file.write_bytes(bad.pem)
    with rig(tmp_path, credentials=grpc.ssl_server_credentials([good.pair("replicas")])) as running:
        with pytest.raises(grpc.RpcError) as error:
            infer(running)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    file.write_bytes(good.pem)
    with rig(tmp_path, credentials=grpc.ssl_server_credentials([good.pair("others")])) as running:
        with pytest.raises(grpc.RpcError):
            infer(running)
        assert running.proxy.meter.upstream_errors["main", "SSLCertVerificationError"] == 1
