from collections.abc import Iterator
from pathlib import Path

import numpy
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tidegate.calling.credentials import Credential
from tidegate.calling.model import Model
from tidegate.calling.proxy import ProxyClient
from tidegate.errors import NotFoundError, UnreachableError, UsageError
from tidegate_proxy.access.api_keys import new_key

from lab.local_cluster.certificates import Authority
from lab.local_plane.process import HOST
from lab.local_plane.proxy import proxy
from lab.local_plane.triton import Triton
from tests.counts import examples
from tests.proxy.rigs.pytest_rigs import Exposed, Front

from .conftest import write_keyed


@pytest.fixture(scope="module")
def calls(front: Front) -> Iterator[ProxyClient]:
    with ProxyClient(f"http://{front.proxy.http}", Credential("a test", ("X-API-Key", front.key))) as made:
        yield made


@settings(parent=examples(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.binary(max_size=300), max_size=5))
def test_texts_come_back_to_the_byte(calls: ProxyClient, texts: list[bytes]) -> None:
    array = numpy.empty(len(texts), object)
    array[:] = texts
    assert calls.infer("echo_bytes", {"INPUT": array}).outputs["OUTPUT"].tolist() == texts


def test_tritons_errors_keep_its_text(calls: ProxyClient) -> None:
    with pytest.raises(UsageError, match="data-type is 'INT64'"):
        calls.infer("echo", {"INPUT": numpy.arange(3)})
    with pytest.raises(NotFoundError, match="version 7"):
        calls.infer("echo", {"INPUT": numpy.zeros(1, numpy.float32)}, version=7)


def test_a_proxy_below_a_path_is_called_by_its_whole_address(exposed: Exposed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOMINO_INFERENCE_PROXY", f"http://{exposed.address}{exposed.path}/")
    monkeypatch.setenv("TIDEGATE_API_KEY", exposed.key)
    with ProxyClient() as calls:
        assert calls.url == f"http://{exposed.address}{exposed.path}"
        assert calls.whoami().principal == "ci"
        numbers = numpy.arange(4, dtype=numpy.float32)
        assert calls.infer("echo", {"INPUT": numbers}).outputs["OUTPUT"].tolist() == [0, 1, 2, 3]
        assert calls.ready("echo")
    with pytest.raises(UnreachableError, match="not a response of an inference proxy"):
        ProxyClient(f"http://{exposed.address}").whoami()


def test_a_host_and_port_are_called_over_tls_if_the_authority_trusts_them(
    real_triton: Triton, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority, key = Authority(), new_key()
    write_keyed(tmp_path, real_triton, ["echo"], key)
    tls = authority.write(tmp_path / "tls", "proxy")
    with proxy(tmp_path, settings={"api_keys": "true", "tls": "true"}) as front:
        monkeypatch.setenv("DOMINO_INFERENCE_PROXY", front.http)
        monkeypatch.setenv("TIDEGATE_API_KEY", key)
        with pytest.raises(UnreachableError, match=r"not trusted(.|\n)*TIDEGATE_PROXY_CA"):
            ProxyClient().whoami()
        with pytest.raises(UnreachableError):
            ProxyClient(f"http://{front.http}", seconds=2).whoami()
        monkeypatch.setenv("TIDEGATE_PROXY_CA", str(tls / "ca.crt"))
        with ProxyClient() as calls:
            assert calls.url == f"https://{front.http}"
            with pytest.raises(UnreachableError, match="not trusted"):  # the certificate is of another name
                ProxyClient(f"https://{front.http.replace(HOST, 'localhost')}").whoami()
            array = numpy.arange(150_000, dtype=numpy.float32)
            for _ in range(3):
                assert calls.infer("echo", {"INPUT": array}).outputs["OUTPUT"].tobytes() == array.tobytes()


def test_rows_for_a_model_with_sequences_are_the_steps_of_one(calls: ProxyClient) -> None:
    model = Model(calls, "accumulate")
    sequence = {"sequence_id": 5, "sequence_start": True, "sequence_end": False}
    assert model.predict([1, 2, 3], sequence)["OUTPUT"].tolist() == [[1], [3], [6]]
    end = {"sequence_id": 5, "sequence_start": False, "sequence_end": True}
    assert model.predict([4, 5], end)["OUTPUT"].tolist() == [[10], [15]]


def test_a_parameter_that_no_call_has_is_refused(calls: ProxyClient) -> None:
    with pytest.raises(UsageError, match="'versoin'"):
        Model(calls, "versions").predict([3], {"versoin": 2})
