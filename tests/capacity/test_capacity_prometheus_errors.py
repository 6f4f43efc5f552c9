from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from typer.testing import CliRunner

from capacity.prometheus import AUTHORIZATION_FILE
from cli.app import app
from lab.local_plane.process import free_ports
from lab.local_plane.prometheus import installed, prometheus
from tests.proxy.http.upstream import Received, raw, response, running_upstream
from tests.proxy.rigs.pytest_rigs import not_run

TOO_MUCH = '{"status":"error","errorType":"execution","error":"query processing would load too many samples"}'
EMPTY = '{"status":"success","data":{"resultType":"vector","result":[]}}'


@contextmanager
def answering(status: int, body: str, **headers: str) -> Iterator[tuple[str, list[Received]]]:
    """A server with one response to everything. Yields its address and the requests."""
    with running_upstream(raw(response(body.encode(), status, **headers), end="close")) as server:
        yield f"http://{server.http}", server.requests


def refused(tmp_path: Path, url: str, *more: str, code: int = 1) -> str:
    file = tmp_path / "folder" / "day.csv"
    ran = CliRunner().invoke(app, ["trace", "--out", str(file), "--prometheus", url, *more])
    assert ran.exit_code == code, ran.output
    assert ran.stdout == ""
    assert not file.parent.exists()
    (sentence,) = ran.stderr.splitlines()
    return sentence


@pytest.mark.parametrize(
    ("status", "body", "headers", "why"),
    [
        (401, "", {}, "needs the header Authorization (401)"),
        (403, EMPTY, {}, AUTHORIZATION_FILE),
        (404, "<html>", {}, "returned 404. Check that it is a Prometheus."),
        (302, "", {"Location": "http://login/"}, "a redirect"),
        (200, "<html>", {}, "a text that is not JSON"),
        (200, '{"status":"success","data":{"result":[{"metric":{}}]}}', {}, "Check that it is a Prometheus."),
        (200, "[" * 20_000, {}, "a text that is not JSON"),
        (200, EMPTY, {"Content-Length": "500"}, "does not respond: "),
        (422, TOO_MUCH, {}, "would load too many samples"),
        (503, '{"status":"error","errorType":"timeout","error":"query timed out"}', {}, "query timed out"),
        (200, EMPTY, {}, "no series of Tidegate's proxies in these 2 hours. Check that it scrapes their admin port"),
    ],
)
def test_a_useless_response_is_reported_with_a_remedy(
    tmp_path: Path, status: int, body: str, headers: dict[str, str], why: str
) -> None:
    with answering(status, body, **headers) as (url, received):
        assert why in refused(tmp_path, url, "--hours", "2")
    assert 0 < len(received) < 200


@pytest.mark.parametrize(
    "url", ["prometheus:9090", "ftp://here", "http://", "http://u:secret@here", "http://a:b", "http://ä"]
)
def test_an_invalid_address_is_not_queried_and_shows_no_password(tmp_path: Path, url: str) -> None:
    sentence = refused(tmp_path, url, code=2)
    assert "is not the address of a Prometheus" in sentence
    assert "secret" not in sentence


def test_a_closed_port_is_reported(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    assert "Connection refused" in refused(tmp_path, f"http://127.0.0.1:{port}")


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "9000"])
def test_hours_are_some_and_at_most_a_year(tmp_path: Path, hours: str) -> None:
    assert f"--hours {hours}: it must be more than 0" in refused(tmp_path, "http://here", "--hours", hours, code=2)


def test_a_credential_is_sent_to_this_server_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "authorization").write_text("Bearer abc\n", "utf-8")
    monkeypatch.setenv(AUTHORIZATION_FILE, str(tmp_path / "authorization"))
    with answering(200, EMPTY) as (other, others), answering(302, "", Location=other) as (url, received):
        assert "a redirect" in refused(tmp_path, url)
    assert ([each.headers["authorization"] for each in received], others) == (["Bearer abc"], [])


@pytest.mark.parametrize(
    ("text", "why"), [(None, "No such file"), ("", "is not one line"), ("a\nb", "is not one line")]
)
def test_an_unreadable_credential_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, why: str
) -> None:
    if text is not None:
        (tmp_path / "authorization").write_text(text, "utf-8")
    monkeypatch.setenv(AUTHORIZATION_FILE, str(tmp_path / "authorization"))
    assert why in refused(tmp_path, "http://here", code=2)


def test_a_real_servers_error_about_a_query_is_shown(tmp_path: Path) -> None:
    with not_run("A REAL PROMETHEUS"):
        installed()
    with prometheus(tmp_path / "prometheus") as server:
        assert "parse error" in (message := refused(tmp_path, server.url, "--match", "namespace=prod", code=2))
        assert "Check --match namespace=prod." in message
        match = 'namespace="prod"'
        assert f"no series of Tidegate's proxies with {match} in" in refused(tmp_path, server.url, "--match", match)
