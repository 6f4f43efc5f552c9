import json
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import pytest
from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_process import READY_PATH, SERVER_READY_PATH
from tidegate_proxy.access.api_keys import HASH, PREFIX

from tests.processes import until

from .environment import PATIENCE, Environment, calls, container_status, lost, served

ENVIRONMENT = "proxied"
INFER = "/v2/models/churn/infer"
WATCH = """
import http.client, json, sys, time
host, key = sys.argv[1:]
def call(port, method, path, body, headers):
    try:
        connection = http.client.HTTPConnection(host, port, timeout=10)
        connection.request(method, path, body, headers)
        return connection.getresponse().status
    except (OSError, http.client.HTTPException):
        return 0
    finally:
        connection.close()
ready = 1
while ready:
    ready = call(8082, "GET", "/readyz", None, {})
    infer = call(8080, "POST", "/v2/models/churn/infer", b"{}", {"x-api-key": key})
    print(json.dumps([ready, infer]), flush=True)
    time.sleep(0.05)
"""


def request(proxied: Environment, path: str, *headers: str, method: str = "GET", port: int = 0) -> tuple[int, str, str]:
    url = f"http://127.0.0.1:{port or proxy_process.HTTP_PORT}{path}"
    return proxied.request(proxied.proxy(), "proxy", url, *headers, method=method)


def test_it_becomes_ready_with_the_tables_of_the_components_and_writes_nothing(environment: Environment) -> None:
    for path, status in (
        (READY_PATH, HTTPStatus.OK),
        (f"{SERVER_READY_PATH}/preload", HTTPStatus.OK),
        (f"{SERVER_READY_PATH}/none", HTTPStatus.NOT_FOUND),
    ):
        assert request(environment, path, port=proxy_process.ADMIN_PORT)[0] == status
    pod = environment.proxy()
    assert environment.run(pod, "proxy", "python", "-c", "import os; print(os.listdir('/tmp'))").strip() == "[]"
    assert container_status(environment.pod(pod), "proxy")["restartCount"] == 0


def test_the_proxy_forwards_calls_with_a_key_and_refuses_all_others(environment: Environment) -> None:
    """Its log has lines of JSON, and contains no key."""
    key = f"x-api-key: {environment.key}"
    status, _, body = request(environment, INFER, key, method="POST")
    assert status == HTTPStatus.OK, body
    assert json.loads(body)["served_by"].startswith("preload-main-")
    for headers in ((), ("x-api-key: no-key",), (key[:-1],), (f"x-api-key: {PREFIX}{'0' * 49}",)):
        status, kind, body = request(environment, INFER, *headers, method="POST")
        assert (status, kind) == (HTTPStatus.UNAUTHORIZED, "application/problem+json"), body
    status, kind, body = request(environment, "/v2/models/other/infer", key, method="POST")
    assert (status, kind) == (HTTPStatus.NOT_FOUND, "application/problem+json"), body

    pod = environment.pod(environment.proxy())
    lines = environment.log(pod, "proxy", container_status(pod, "proxy")["restartCount"]).lines()
    read = [json.loads(line) for line in lines]
    assert all({"time", "level", "message"} <= set(line) for line in read)
    assert [line for line in read if line.get("principal") == "tests"], "calls"
    for secret in (PREFIX, HASH, environment.key[8:-8]):
        assert secret not in "\n".join(lines)


@pytest.mark.thorough
def test_a_rolling_restart_under_load_loses_no_call_and_stopping_proxies_serve_late_callers(
    environment: Environment, tmp_path: Path
) -> None:
    """Callers that keep their connection, callers with a new connection for each call, and one that uses an address."""
    old = names(environment)
    pod = environment.pod(environment.proxy())
    key, watched = environment.key, tmp_path / "watched"
    watch = [*environment.machine.prefix, sys.executable, "-c", WATCH, pod["status"]["podIP"], key]
    log = environment.log(pod, "proxy")
    with (
        calls(environment, "churn", f"x-api-key: {key}", name="caller-new") as renewed,
        calls(environment, "churn", f"x-api-key: {key}", "keep-alive", name="caller-kept") as kept,
        watched.open("w") as file,
        subprocess.Popen(watch, stdout=file) as watching,
    ):
        try:
            until("responses", lambda: len(watched.read_text().splitlines()) > 5)
            until("calls that are answered", lambda: min(served(renewed)[0], served(kept)[0]) > 100)
            environment.kubectl("rollout", "restart", "deployment/inference-proxy")
            environment.wait_until_ready()
            until("the old proxies to be gone", lambda: not old & names(environment))
            before = served(renewed)[0], served(kept)[0]
            until("more calls", lambda: served(renewed)[0] > before[0] + 100)
            until("more calls", lambda: served(kept)[0] > before[1] + 100)
            watching.wait(PATIENCE)
        finally:
            watching.kill()
    assert len(names(environment)) == len(old) == 2
    assert lost(renewed) == []
    assert lost(kept) == []

    responses = [tuple(json.loads(line)) for line in watched.read_text().splitlines()]
    leaving = next(number for number, (ready, _) in enumerate(responses) if ready != HTTPStatus.OK)
    ready, after = responses[:leaving], responses[leaving:]
    assert {infer for _, infer in ready} == {HTTPStatus.OK}
    assert after[0] == (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK)
    assert after.count((HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK)) > 10, after
    events = [json.loads(line)["message"] for line in log.lines()]
    assert [text for text in events if text.startswith("stopping")]
    assert events[-1] == "stopped"


def names(proxied: Environment) -> set[str]:
    found = proxied.machine.get("pods", namespace=proxied.namespace)
    return {name for pod in found if (name := pod["metadata"]["name"]).startswith("inference-proxy")}
