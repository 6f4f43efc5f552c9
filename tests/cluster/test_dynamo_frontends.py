"""Real Dynamo frontends and workers find each other through a real API server. Only their pods are simulated."""

import http.client
import json
import os
import re
import signal
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

import openai
import pytest
import yaml
from tidegate_contracts import dynamo, proxy_process, routing
from tidegate_proxy.access.api_keys import new_key

from components.evaluate import KubernetesObject
from lab.local_cluster import LocalCluster
from lab.local_cluster.stand_ins import prepare, stand_ins
from lab.local_plane.dynamo import GLIBC, LOOPBACK, write_model
from lab.local_plane.process import HOST, Process, free_ports, running
from lab.local_plane.proxy import proxy, write_tables
from lab.local_plane.wheels import environment
from rollout.kubectl import Kubectl, as_list
from rollout.preflight import lacks
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.resolve import resolve
from stacks.stack import Stack
from stacks.validate import validate
from tests.charts.rendering import declared
from tests.components.objects import named
from tests.processes import until
from tests.proxy.openai.tables import access
from tests.proxy.rigs.pytest_rigs import not_run
from tests.proxy.rigs.tables import write_key

pytestmark = pytest.mark.thorough

SERVER, ACCOUNT = "talk", "openai-talk"
TOKENS = 400  # Of a long response, which takes about three seconds.
DEFINITION = """
images:
  - {name: dynamo, repository: registry.example.com/dynamo, tag: 1.4.2}
  - {name: proxy, repository: registry.example.com/proxy, tag: "1.0"}
  - {name: eviction-policy, repository: registry.example.com/eviction-policy, tag: "1.0"}
datasets: [{name: models, kind: nfs, server: nfs.test, path: /models, writers: [anna]}]
servers:
  - name: talk
    kind: openai
    image: dynamo
    repository: {dataset: models}
    openai: {engine: dynamo, worker: mocker, frontends: {replicas: 2}, exitTimeoutSeconds: 60}
    pools:
      - {name: large, loading: {mode: preload}, replicas: 2}
      - {name: small, loading: {mode: preload}}
models:
  - {name: big, server: talk, pool: large, versions: [{version: 3, weight: 100}]}
  - {name: tiny, server: talk, pool: small}
proxy: {access: [{name: all, principals: [anna], servers: [talk]}]}
network: {reach: [{name: kubernetes, server: talk, cidr: 192.0.2.10/32, ports: [443]}]}
environments: [{name: dev, namespace: dynamo-frontends}]
dataPlanes: [{name: lab, environments: [dev]}]
"""


@dataclass
class Place:
    cluster: LocalCluster
    namespace: str
    folder: Path
    objects: list[KubernetesObject]
    stack: ExitStack
    kubeconfig: Path
    ports: dict[str, int] = field(default_factory=dict)  # The port of each pod's API, or of a worker's metrics.
    processes: dict[str, Process] = field(default_factory=dict)

    def pods(self, pool: str) -> list[KubernetesObject]:
        found: list[KubernetesObject] = self.cluster.get("pods", None, self.namespace, f"tidegate.dev/pool={pool}")
        return sorted(found, key=lambda pod: str(pod["metadata"]["name"]))

    def run(self, pod: KubernetesObject) -> None:
        (one,) = pod["spec"]["containers"]
        name = pod["metadata"]["name"]
        env: dict[str, str] = {}
        for each in one["env"]:
            env[each["name"]] = _value(each, pod, env)
        port, answers = free_ports(2)
        env |= {"KUBECONFIG": str(self.kubeconfig), "HOME": str(self.folder), **LOOPBACK}
        env |= {"DYN_SYSTEM_PORT": str(port)} if "DYN_SYSTEM_PORT" in env else {}
        env |= {"DYN_TCP_RESPONSE_STREAM_PORT": str(answers)} if "DYN_TCP_RESPONSE_STREAM_PORT" in env else {}
        words = [re.sub(r"^--http-port=.*", f"--http-port={port}", word) for word in one["args"]]
        words = [re.sub(r"^--model-path=.*", f"--model-path={self.folder / 'model'}", word) for word in words]
        python = environment("dynamo", "a real Dynamo (ai-dynamo)", GLIBC) / "bin" / "python"
        command = [python, *one["command"][1:], *words]
        process = running(name, command, self.folder / f"{name}.log", os.environ | env)
        self.processes[name], self.ports[name] = self.stack.enter_context(process), port

    def request(self, pod: str, path: str, body: dict[str, Any] | None = None) -> tuple[int, str]:
        """Return the status and the text of a response from a pod's process. The status is 0 without a response."""
        asking = http.client.HTTPConnection(HOST, self.ports[pod], timeout=30)
        try:
            headers = {"content-type": "application/json"}
            asking.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
            answer = asking.getresponse()
            return answer.status, answer.read().decode()
        except (OSError, http.client.HTTPException):
            return 0, ""
        finally:
            asking.close()

    def chat(self, frontend: str, model: str, tokens: int = 2, **more: Any) -> tuple[int, str]:
        messages = [{"role": "user", "content": "word1"}]
        sent = {"model": model, "messages": messages, "max_tokens": tokens, **more}
        return self.request(frontend, "/v1/chat/completions", sent)

    def instances(self, frontend: str) -> set[str]:
        known = json.loads(self.request(frontend, "/health")[1] or "{}").get("instances", ())
        return {f"{one['namespace']} {one['instance_id']}" for one in known if one["endpoint"] == "generate"}

    def measured(self, worker: str, what: str = "requests_total") -> int:
        text = self.request(worker, "/metrics")[1]
        found = re.findall(rf'^dynamo_component_{what}{{[^}}]*endpoint="generate"[^}}]*}} (\d+)$', text, re.MULTILINE)
        return sum(map(int, found))

    def is_ready(self, pod: str, ready: bool) -> None:
        status = {"status": {"conditions": [{"type": "Ready", "status": str(ready)}]}}
        self.cluster.kubectl(
            "patch", "pod", pod, "-n", self.namespace, "--subresource=status", "-p", json.dumps(status)
        )

    def all_know(self, workers: int) -> bool:
        """Return whether every frontend knows this number of workers, and their models, which takes longer."""
        models = {"big-v3", "tiny"} if workers == 3 else {"big-v3"}
        return all(len(self.instances(one)) == workers and models <= self.models(one) for one in self.frontends)

    def models(self, frontend: str) -> set[str]:
        return {one["id"] for one in json.loads(self.request(frontend, "/v1/models")[1] or '{"data": []}')["data"]}

    @property
    def frontends(self) -> list[str]:
        return [name for name in self.processes if "-frontends-" in name]

    @contextmanager
    def streaming(self, frontend: str) -> Iterator[tuple[list[str], str]]:
        """Start a long response, and yield the list of its events, complete at the end, and its worker."""
        events: list[str] = []
        work = Thread(target=lambda: events.extend(self.chat(frontend, "big-v3", TOKENS, stream=True)[1].split("\n\n")))
        work.start()
        large = [pod for pod in self.processes if "-large-" in pod and self.processes[pod].popen.poll() is None]
        busy = until("a worker is at it", lambda: [one for one in large if self.measured(one, "inflight_requests")])
        yield events, busy[0]
        work.join()


def _value(each: dict[str, Any], pod: KubernetesObject, before: dict[str, str]) -> str:
    if "value" in each:
        return re.sub(r"\$\((\w+)\)", lambda found: before[found[1]], str(each["value"]))
    path = each["valueFrom"]["fieldRef"]["fieldPath"].removeprefix("metadata.")
    if label := re.fullmatch(r"labels\['(.*)'\]", path):
        return str(pod["metadata"]["labels"][label[1]])
    return str(pod["metadata"][path])


def whole(events: Sequence[str]) -> bool:
    parts = [json.loads(event.removeprefix("data: ")) for event in events if event.startswith("data: {")]
    return len(parts) >= TOKENS and events[-2] == "data: [DONE]" and not any("error" in one for one in parts)


def rendered() -> tuple[Stack, list[KubernetesObject]]:
    (stack,) = validate(parse(DEFINITION, "shared.yaml"), ImagesLock()).stacks
    return stack, declared(resolve(stack, ImagesLock()))


def test_a_cluster_without_the_kind_is_reported_before_anything_is_created(kube: Kubectl) -> None:
    def hard() -> list[str]:
        found = lacks(kube, [rendered()])[rendered()[0].name]
        return [lack.what for lack in found if lack.hard and "CustomResourceDefinition" in lack.what]

    (what,) = hard()
    assert what.startswith(f"CustomResourceDefinition {dynamo.CRD} does not exist: workers exit immediately")
    kube.run("apply", "--server-side", "-f", "-", stdin=as_list(stand_ins(rendered()[1])))
    until("it is there", lambda: not hard())


@pytest.fixture(scope="module")
def place(cluster: LocalCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder, (stack_of_cluster, objects) = tmp_path_factory.mktemp("dynamo"), rendered()
    namespace = stack_of_cluster.namespace
    with not_run("A REAL DYNAMO"):
        environment("dynamo", "a real Dynamo (ai-dynamo)", GLIBC)
    write_model(folder / "model")
    prepare(cluster, objects)
    cluster.apply(objects)
    token = cluster.kubectl("create", "token", ACCOUNT, "-n", namespace).stdout.strip()
    user = json.loads(cluster.kubeconfig.read_text("utf-8"))
    user["users"][0]["user"] = {"token": token}
    (folder / "kubeconfig").write_text(json.dumps(user), "utf-8")
    with ExitStack() as stack:
        made = Place(cluster, namespace, folder, objects, stack, folder / "kubeconfig")

        def every() -> list[KubernetesObject]:
            found = [pod for pool in ("frontends", "large", "small") for pod in made.pods(pool)]
            return found if len(found) == 5 and all(_is_ready(pod) for pod in found) else []

        for pod in until("all pods are ready", every):
            made.run(pod)
        until("every frontend knows every worker", lambda: made.all_know(3))
        yield made
    cluster.kubectl("delete", "namespace", namespace, "--wait=false")


def _is_ready(pod: KubernetesObject) -> bool:
    return any(one["type"] == "Ready" and one["status"] == "True" for one in pod["status"].get("conditions", ()))


def test_each_frontend_knows_the_workers_of_every_pool_and_keeps_them_apart(place: Place) -> None:
    for frontend in place.frontends:
        pools = sorted(one.split()[0] for one in place.instances(frontend))
        assert pools == ["talk_large", "talk_large", "talk_small"]
        assert place.models(frontend) == {"big-v3", "tiny"}
    before = {pod: place.measured(pod) for pod in place.processes if pod not in place.frontends}
    for number in range(8):
        assert place.chat(place.frontends[number % 2], "big-v3")[0] == 200
    calls = {pod: place.measured(pod) - before[pod] for pod in before}
    assert calls["talk-small-0"] == 0, "what is called there is another model"
    assert all(calls[pod] > 0 for pod in ("talk-large-0", "talk-large-1")), "each frontend knows both"
    written = {one["metadata"]["name"] for one in place.cluster.get(dynamo.CRD, None, place.namespace)}
    assert written == {"talk-large-0", "talk-large-1", "talk-small-0"}


def test_the_token_is_good_for_nothing_else(place: Place) -> None:
    def may(*words: str) -> bool:
        return place.cluster.kubectl("auth", "can-i", *words, check=False, kubeconfig=place.kubeconfig).returncode == 0

    here, kind = ("-n", place.namespace), dynamo.CRD
    assert all(may(verb, kind, *here) for verb in ("list", "watch", "create", "patch"))
    assert not any(may(verb, kind, *here) for verb in ("get", "update", "delete", "deletecollection"))
    assert not any(may(verb, kind, "-n", "default") for verb in ("list", "patch"))
    assert not any(may("list", what, *here) for what in ("secrets", "pods", "services", "configmaps"))
    assert not may("create", "endpointslices.discovery.k8s.io", *here)


def test_a_worker_that_is_not_ready_gets_no_more_calls_and_ends_the_stream_that_it_has(place: Place) -> None:
    frontend = place.frontends[0]
    with place.streaming(frontend) as (events, worker):
        place.is_ready(worker, ready=False)
        until("no frontend knows it", lambda: place.all_know(2))
        before = place.measured(worker)
        assert {place.chat(one, "big-v3")[0] for one in place.frontends * 4} == {200}
        assert place.measured(worker) == before
    assert whole(events)
    place.is_ready(worker, ready=True)
    until("every frontend knows it again", lambda: place.all_know(3))


def test_a_worker_finishes_its_stream_on_sigterm(place: Place) -> None:
    with place.streaming(place.frontends[0]) as (events, worker):
        os.kill(place.processes[worker].pid, signal.SIGTERM)
        assert {place.chat(one, "big-v3")[0] for one in place.frontends * 4} == {200}
    assert whole(events)
    until("it has ended", lambda: place.processes[worker].popen.poll() is not None)
    assert {place.chat(one, "big-v3")[0] for one in place.frontends * 2} == {200}
    (pod,) = (one for one in place.pods("large") if one["metadata"]["name"] == worker)
    place.run(pod)
    until("every frontend knows the next one", lambda: place.all_know(3))


def test_calls_of_both_models_come_through_the_proxy_by_the_table_that_is_rendered(
    place: Place, tmp_path: Path
) -> None:
    """Both pools have the same frontends. A model without a worker is reported, and the other one still works."""
    data = named(place.objects, "ConfigMap", "inference-proxy-routing")["data"]
    tree = yaml.safe_load(data[proxy_process.ROUTING_FILE])
    pools = tree["servers"][0]["pools"]
    assert [pool["host"] for pool in pools] == [f"talk-frontends.{place.namespace}.svc"] * 2
    for pool in pools:
        pool |= {"host": HOST, "httpPort": place.ports[place.frontends[0]]}
    write_tables(tmp_path, routing.RoutingTable.model_validate(tree), access(("anna", ["*"], ["infer", "inspect"])))
    key = new_key()
    write_key(tmp_path, key, "anna")
    with proxy(tmp_path, settings={"api_keys": "true"}) as running_proxy:
        client = openai.OpenAI(base_url=f"http://{running_proxy.http}/v1", api_key=key, max_retries=0, timeout=30)

        def answered(model: str) -> str:
            messages: Any = [{"role": "user", "content": "word1"}]
            return client.chat.completions.create(model=model, messages=messages, max_tokens=2).model

        assert (answered("big"), answered("tiny")) == ("big-v3", "tiny")
        place.is_ready("talk-small-0", ready=False)
        until("no frontend knows it", lambda: place.all_know(2))
        with pytest.raises(openai.InternalServerError, match="No inference server has the model tiny"):
            answered("tiny")
        assert answered("big") == "big-v3"
        place.is_ready("talk-small-0", ready=True)
        until("every frontend knows it again", lambda: place.all_know(3))

        def is_back() -> bool:
            with suppress(openai.InternalServerError):
                return answered("tiny") == "tiny"
            return False

        until("it is answered again", is_back)


def test_a_frontend_finishes_its_stream_on_sigterm(place: Place) -> None:
    going, staying = place.frontends
    began = time.monotonic()
    with place.streaming(going) as (events, _):
        os.kill(place.processes[going].pid, signal.SIGTERM)
        assert place.chat(staying, "big-v3")[0] == 200
    assert whole(events), time.monotonic() - began
    until("it has ended", lambda: place.processes[going].popen.poll() is not None)
