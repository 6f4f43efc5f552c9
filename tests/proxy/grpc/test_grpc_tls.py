from pathlib import Path
from typing import Any

import grpc
import pytest

from lab.local_cluster.certificates import Authority

from .harness import Rig, infer_request, method, rig, until


def infer(running: Rig, credentials: grpc.ChannelCredentials | None = None) -> Any:
    call = method(running.channel(credentials=credentials), "ModelInfer")
    return call(infer_request("echo", b"x" * 300_000), metadata=running.metadata(), timeout=5)


def test_callers_are_served_over_tls_and_a_new_certificate_is_taken_over(tmp_path: Path) -> None:
    first, second = Authority(), Authority()
    first.write(tmp_path / "tls", "proxy")
    with rig(tmp_path, tls=True) as running:
        channel = running.channel(credentials=grpc.ssl_channel_credentials(first.pem))
        call = method(channel, "ModelInfer")
        assert bytes(call(infer_request(), metadata=running.metadata(), timeout=5).raw_output_contents[0]) == b"tensor"
        second.write(tmp_path / "tls", "proxy")

        def changed() -> bool:
            try:
                infer(running, grpc.ssl_channel_credentials(second.pem))
            except grpc.RpcError:
                return False
            return True

        until(changed, 10)
        call(infer_request(), metadata=running.metadata(), timeout=5)  # the old connection still works
        with pytest.raises(grpc.RpcError):
            infer(running)


def test_replicas_are_reached_over_tls_if_their_authority_vouches_for_them(tmp_path: Path) -> None:
    good, bad = Authority(), Authority()
    (tmp_path / "upstream-ca").mkdir()
    file = tmp_path / "upstream-ca" / "main.crt"
    file.write_bytes(good.pem)
    with rig(tmp_path, credentials=grpc.ssl_server_credentials([good.pair("pool.test")])) as running:
        assert len(infer(running).raw_output_contents[0]) == 300_000
    file.write_bytes(bad.pem)
    with rig(tmp_path, credentials=grpc.ssl_server_credentials([good.pair("pool.test")])) as running:
        with pytest.raises(grpc.RpcError) as error:
            infer(running)
        assert error.value.code() == grpc.StatusCode.UNAVAILABLE
    file.write_bytes(good.pem)
    with rig(tmp_path, credentials=grpc.ssl_server_credentials([good.pair("others")])) as running:
        with pytest.raises(grpc.RpcError):
            infer(running)
        assert running.proxy.meter.upstream_errors["main", "SSLCertVerificationError"] == 1
