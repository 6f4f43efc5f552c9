"""The proxy's own image on a real kubelet: it starts, answers, and takes leave, as the components declare it."""

import json
import stat
import subprocess
import sys
from http import HTTPStatus
from pathlib import Path

import pytest
from tidegate_contracts import proxy_process
from tidegate_contracts.proxy_process import READY_PATH, server_ready_path
from tidegate_proxy.access.api_keys import HASH, PREFIX

from .built_images import PROXY, built_image, contents
from .callers import calls, lost, served
from .environment import PATIENCE, PROXIES, Environment, container_status, made_once, until
from .keeper import ROOT
from .machine import Machine

IMAGE = "localhost/inference-proxy:test"
NAMESPACE = "inference-proxied"
DEFINITION = ROOT / "tests" / "definitions" / "real-proxy.yaml"
POOL = "statefulset/preload-main"
INFER = "/v2/models/churn/infer"

ASK = """
import json, sys, urllib.error, urllib.request
url, method, *headers = sys.argv[1:]
headers = dict(header.split(": ", 1) for header in headers)
request = urllib.request.Request(url, b"{}" if method == "POST" else None, headers, method=method)
try:
    answer = urllib.request.urlopen(request, timeout=30)
except urllib.error.HTTPError as error:
    answer = error
print(json.dumps([answer.status, answer.headers.get_content_type(), answer.read().decode()]))
"""
WATCH = """
import http.client, json, sys, time
host, key = sys.argv[1:]
def ask(port, method, path, body, headers):
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
    ready = ask(8082, "GET", "/readyz", None, {})
    infer = ask(8080, "POST", "/v2/models/churn/infer", b"{}", {"x-api-key": key})
    print(json.dumps([ready, infer]), flush=True)
    time.sleep(0.05)
"""


@pytest.fixture(scope="package")
def proxied(node: Machine) -> Environment:
    """An environment with real proxies, on the same node as the other ones."""
    shared = Environment(node, NAMESPACE, DEFINITION)
    made_once(shared.machine.folder / "proxied", lambda: shared.install(POOL))
    return shared


def ask(proxied: Environment, path: str, *headers: str, method: str = "GET", port: int = 0) -> tuple[int, str, str]:
    """Ask one proxy from inside its pod; return status, type and body."""
    url = f"http://127.0.0.1:{port or proxy_process.HTTP_PORT}{path}"
    said = proxied.run(proxied.proxy(), "proxy", "python", "-c", ASK, url, method, *headers)
    status, kind, body = json.loads(said)
    return status, kind, body


@pytest.mark.usefixtures("node")
def test_the_image_adds_the_proxy_to_its_base_and_nothing_of_how_it_was_built() -> None:
    image = contents(built_image(PROXY, IMAGE))
    assert image.names == [IMAGE]
    assert image.configuration["User"] == "1000:1000"
    assert image.configuration["Cmd"] == ["python", "-m", proxy_process.MODULE]
    assert not [setting for setting in image.configuration["Env"] if setting.startswith("PIP_")]
    assert "/opt/tidegate/tidegate_proxy/__main__.py" in image.added
    assert not [name for name in image.added if name.endswith(("pip.conf", "proxy.txt"))]
    assert not [name for name, file in image.added.items() if file.mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)]
    assert sum(file.size for file in image.added.values()) < 100 << 20


def test_the_image_holds_no_tool_that_installs_or_builds_and_runs_as_nobody_in_particular(
    proxied: Environment,
) -> None:
    look = "import importlib.util as u, os; print([n for n in ('pip', 'setuptools', 'wheel') if u.find_spec(n)])"
    with proxied.alone(PROXIES, POOL):
        pod = proxied.proxy()
        assert proxied.run(pod, "proxy", "python", "-c", look).strip() == "[]"
        told = proxied.pod(pod)["spec"]
        assert told["containers"][0]["image"] == IMAGE
        assert told["containers"][0]["securityContext"]["readOnlyRootFilesystem"] is True
        status = proxied.run(pod, "proxy", "python", "-c", "print(open('/proc/1/status').read())")
        (user,) = [line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")]
        assert user == ["1000"] * 4


def test_it_becomes_ready_with_the_tables_of_the_components_and_writes_nothing(proxied: Environment) -> None:
    with proxied.alone(PROXIES, POOL):
        assert ask(proxied, READY_PATH, port=proxy_process.ADMIN_PORT)[0] == HTTPStatus.OK
        assert ask(proxied, server_ready_path("preload"), port=proxy_process.ADMIN_PORT)[0] == HTTPStatus.OK
        assert ask(proxied, server_ready_path("none"), port=proxy_process.ADMIN_PORT)[0] == HTTPStatus.NOT_FOUND
        pod = proxied.proxy()
        assert proxied.run(pod, "proxy", "python", "-c", "import os; print(os.listdir('/tmp'))").strip() == "[]"
        write = "open('/opt/tidegate/written', 'w')"
        assert "Read-only file system" in proxied.run(pod, "proxy", "python", "-c", write, check=False)
        assert container_status(proxied.pod(pod), "proxy")["restartCount"] == 0


def test_it_passes_calls_of_those_with_a_key_to_the_pool_and_refuses_all_others(proxied: Environment) -> None:
    with proxied.alone(PROXIES, POOL):
        key = f"x-api-key: {proxied.key}"
        status, _, body = ask(proxied, INFER, key, method="POST")
        assert status == HTTPStatus.OK, body
        assert json.loads(body)["served_by"].startswith("preload-main-")
        for headers in ((), ("x-api-key: no-key",), (f"x-api-key: {PREFIX}{'0' * 49}",)):
            status, kind, body = ask(proxied, INFER, *headers, method="POST")
            assert (status, kind) == (HTTPStatus.UNAUTHORIZED, "application/problem+json"), body
        status, kind, body = ask(proxied, "/v2/models/other/infer", key, method="POST")
        assert (status, kind) == (HTTPStatus.NOT_FOUND, "application/problem+json"), body


def test_its_log_is_json_and_tells_no_key(proxied: Environment) -> None:
    with proxied.alone(PROXIES, POOL):
        ask(proxied, INFER, f"x-api-key: {proxied.key}", method="POST")
        ask(proxied, INFER, f"x-api-key: {proxied.key[:-1]}", method="POST")
        pod = proxied.pod(proxied.proxy())
        said = proxied.log(pod, "proxy").lines()
        read = [json.loads(line) for line in said]
        assert all({"time", "level", "message"} <= set(line) for line in read)
        assert [line for line in read if line.get("principal") == "tests"], "calls"
        for secret in (PREFIX, HASH, proxied.key[8:-8]):
            assert secret not in "\n".join(said)


def test_a_rolling_restart_under_load_loses_no_call(proxied: Environment) -> None:
    """Of callers that keep their connection no more than of those that make a new one for each call."""
    with proxied.alone(PROXIES, POOL):
        old = {pod["metadata"]["name"] for pod in proxied.pods("inference-proxy")}
        key = f"x-api-key: {proxied.key}"
        with (
            calls(proxied, "churn", key, name="caller-anew") as anew,
            calls(proxied, "churn", key, "keep-alive", name="caller-kept") as kept,
        ):
            until(lambda: min(served(anew)[0], served(kept)[0]) > 100, PATIENCE, "calls that are answered")
            proxied.kubectl("rollout", "restart", PROXIES)
            proxied.wait_until_ready(PROXIES)
            until(lambda: not old & names(proxied), PATIENCE, "the old proxies to be gone")
            before = served(anew)[0], served(kept)[0]
            until(lambda: served(anew)[0] > before[0] + 100, PATIENCE, "more calls")
            until(lambda: served(kept)[0] > before[1] + 100, PATIENCE, "more calls")
        assert len(names(proxied)) == len(old) == 2
        assert lost(anew) == []
        assert lost(kept) == []


def names(proxied: Environment) -> set[str]:
    """Return the proxies that are there, also those on their way out."""
    found = proxied.machine.get("pods", f"--namespace={NAMESPACE}")["items"]
    return {name for pod in found if (name := pod["metadata"]["name"]).startswith("inference-proxy")}


def test_told_to_go_it_is_not_ready_first_and_serves_on_whom_the_news_has_not_reached(
    proxied: Environment, tmp_path: Path
) -> None:
    """Asked at its own address, whatever names lead to it."""
    with proxied.alone(PROXIES, POOL):
        pod = proxied.pod(proxied.proxy())
        name, address = pod["metadata"]["name"], pod["status"]["podIP"]
        command = proxied.machine.command(sys.executable, "-c", WATCH, address, proxied.key)
        said = tmp_path / "said"
        with said.open("w") as file, subprocess.Popen(command, stdout=file) as watching:
            try:
                until(lambda: len(said.read_text().splitlines()) > 5, PATIENCE, "answers")
                log = proxied.log(pod, "proxy")
                proxied.kubectl("delete", "pod", name, "--wait=false")
                watching.wait(pod["spec"]["terminationGracePeriodSeconds"] + PATIENCE)
            finally:
                watching.kill()
        answers = [tuple(json.loads(line)) for line in said.read_text().splitlines()]
        proxied.wait_until_ready(PROXIES)
    leaving = next(number for number, (ready, _) in enumerate(answers) if ready != HTTPStatus.OK)
    ready, after = answers[:leaving], answers[leaving:]
    assert {infer for _, infer in ready} == {HTTPStatus.OK}
    assert after[0] == (HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK)
    assert after.count((HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.OK)) > 10, after
    events = [json.loads(line)["message"] for line in log.lines()]
    assert [text for text in events if text.startswith("stopping")]
    assert events[-1] == "stopped"
