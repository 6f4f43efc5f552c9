import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
import yaml
from typer.testing import CliRunner

from cli.app import app
from lab import tools
from lab.bench.iac import checkout
from lab.local_cluster import LocalCluster
from lab.local_cluster.nodes import cpu_node, mig_layouts
from rollout.changes.compare import ObjectChange, compare
from rollout.live import Live, live_objects
from rollout.render import Rendered, render
from stacks.stack import Definition
from stacks.validate import read_definition
from tests.processes import until
from tests.rollout.conftest import Ended

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "stacks" / "inference.yaml"
DEFINITIONS = ROOT / "tests" / "definitions"
EVERYTHING = DEFINITIONS / "everything.yaml"
Object = dict[str, Any]


def objects_of(definition: Definition, *names: str) -> list[Object]:
    """Return the objects of these stacks (by default all), in the order in which they can be applied."""
    stacks = [stack for stack in definition.stacks if not names or stack.name in names]
    return [item for stack in stacks for item in render(stack, definition).objects]


def roomy_nodes() -> list[Object]:
    """Return nodes for a dozen environments like the reference's at the same time."""
    slices = {"3g.40gb": 1, "2g.20gb": 1, "1g.10gb": 2}
    gpus = [mig_layouts(f"gpu-{number}", "NVIDIA-A100-SXM4-80GB", 8, [(8, slices)]) for number in range(1, 4)]
    return [*gpus, *(cpu_node(f"cpu-{number}", cpu=256, memory_gi=1000) for number in range(1, 4))]


def user_with(cluster: LocalCluster, name: str, *rules: tuple[str, str, str]) -> Path:
    """Return the kubeconfig of a user with these rights (API groups, resources, verbs), who can list namespaces."""
    group = "rbac.authorization.k8s.io"
    head = {"apiVersion": f"{group}/v1", "metadata": {"name": name}}
    parts = ("apiGroups", "resources", "verbs")
    granted = [dict(zip(parts, (part.split(",") for part in rule), strict=True)) for rule in rules]
    of = {
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": group, "kind": "User", "name": name}],
    }
    cluster.apply([{**head, "kind": "ClusterRole", "rules": granted}, {**head, "kind": "ClusterRoleBinding", **of}])
    user, question = cluster.user(name), ("auth", "can-i", "get", "namespaces")
    until("the binding counts", lambda: cluster.kubectl(*question, check=False, kubeconfig=user).returncode == 0)
    return user


def settled(cluster: LocalCluster, *namespaces: str) -> None:
    """Wait until every workload of these namespaces has all its pods, updated and available."""

    def done() -> bool:
        found = (cluster.get("deployments,statefulsets", namespace=namespace) for namespace in namespaces)
        return all(_done(item) for items in found for item in items)

    until("every workload is available", done, 900)


def _done(item: Object) -> bool:
    status, wanted = item["status"], item["spec"]["replicas"]
    seen = status.get("observedGeneration") == item["metadata"]["generation"]
    counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")]
    return seen and counts == [wanted] * 4


# ---- dev and prod, with the command line and each engine ----

COMMON = """\
images:
  - {{name: triton, repository: registry.test/triton, tag: "1"}}
  - {{name: proxy, repository: registry.test/proxy, tag: "1"}}
  - {{name: eviction-policy, repository: registry.test/eviction-policy, tag: "1"}}
proxy:
  replicas: 1
  auth: {{oidc: [{{issuer: "https://idp.test", audiences: [tidegate]}}]}}
  access: [{{name: all, principals: [ci], servers: [{server}]}}]
network:
  callers: [{{name: ci, namespaceLabels: {{kubernetes.io/metadata.name: ci}}}}]
  reach: [{{name: idp, cidr: 10.20.30.40/32, ports: [443], by: [proxy]}}]
datasets:
  - {{name: models, kind: nfs, server: nfs.test, path: /models}}
"""
DEFINITION = (
    COMMON
    + """\
  - {{name: spare, kind: nfs, server: nfs.test, path: /spare}}
servers:
  - name: small
    repository: {{dataset: models}}
    pools:
      - {{name: main, loading: {{mode: on-demand}}, replicas: 1}}
      - {{name: extra, loading: {{mode: on-demand, capacity: 1Gi}}, replicas: 1}}
models:
  - {{name: one, server: small, pool: main}}
environments:
  - {{name: dev, namespace: {prefix}-dev}}
  - name: prod
    namespace: {prefix}-prod
    production: true
    datasets: [{{name: models, path: /prod}}, {{name: spare, path: /prod-spare}}]
    proxy: {{replicas: null, autoscaling: {{min: 3, max: 12}}}}
dataPlanes:
  - {{name: lab, context: {context}, environments: [dev, prod]}}
"""
)
KINDS = "sa,pv,pvc,cm,netpol,svc,deploy,sts,pdb,hpa"
ENGINES = ("helm", "pulumi")
HELM, PULUMI = (pytest.mark.parametrize("site", [engine], indirect=True) for engine in ENGINES)
"""Marks for tests of one engine."""


@dataclass
class Site:
    cluster: LocalCluster
    prefix: str
    engine: str
    folder: Path
    environment: Mapping[str, str]
    checkout: Path = ROOT
    started: list["subprocess.Popen[str]"] = field(default_factory=list)

    @property
    def definition(self) -> Path:
        return self.folder / "definition" / "two.yaml"

    def edit(self, old: str, new: str) -> None:
        text = self.definition.read_text("utf-8")
        assert old in text, old
        self.write(text.replace(old, new))

    def write(self, text: str) -> None:
        self.definition.write_text(text, "utf-8")
        names = [f"{image['repository']}:{image['tag']}" for image in yaml.safe_load(text)["images"]]
        digests = [f"  - image: {name}\n    digest: sha256:{name[-1] * 64}\n" for name in sorted(names)]
        (self.definition.parent / "images.lock").write_text("images:\n" + "".join(digests), "utf-8")

    def run(self, *arguments: str, ok: bool = True) -> Ended:
        with patch.dict(os.environ, self.environment):
            result = CliRunner().invoke(app, [arguments[0], str(self.definition), *arguments[1:]])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        ended = Ended(result.exit_code, result.stdout, result.stderr)
        assert not ok or ended.code == 0, ended.text
        return ended

    def up(self, *arguments: str, stack: str | None = "dev-lab", ok: bool = True, engine: str = "") -> Ended:
        """Run `up` of a stack, or of all stacks with None."""
        only = ["--stack", stack] if stack else []
        where = ["--cluster", self.cluster.context, "--engine", engine or self.engine]
        return self.run("up", *where, *only, *arguments, ok=ok)

    def down(self, *arguments: str, stack: str | None = "dev-lab", ok: bool = True) -> Ended:
        only = ["--stack", stack] if stack else []
        return self.run("down", "--cluster", self.cluster.context, *only, *arguments, ok=ok)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        where = ["--cluster", self.cluster.context, "--engine", self.engine, "--stack", "dev-lab"]
        return self.launch("up", *where, *arguments)

    def launch(self, command: str, *arguments: str) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-m", "cli", command, str(self.definition), *arguments],
            cwd=self.checkout,
            env={
                **os.environ,
                **self.environment,
                "PYTHONPATH": os.pathsep.join([str(self.checkout), str(self.checkout / "contracts")]),
                "PYTHONUNBUFFERED": "1",
            },
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.started.append(process)
        return process

    def live(self, stack: str = "dev-lab") -> Live:
        with patch.dict(os.environ, self.environment):
            return live_objects(self.cluster.context, [self.rendered(stack)])[stack]

    def changes(self, stack: str = "dev-lab") -> list[ObjectChange]:
        live = self.live(stack)
        return compare(live.before, live.after)

    def rendered(self, stack: str) -> Rendered:
        read = read_definition(self.definition)
        return render(next(one for one in read.stacks if one.name == stack), read)

    def objects(self, kinds: str = KINDS) -> dict[tuple[str, str, str], Any]:
        found = self.cluster.get(kinds, selector="app.kubernetes.io/part-of=tidegate")
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item
            for item in found
            if item["metadata"].get("namespace", item["metadata"]["name"]).startswith(self.prefix)
        }

    def written(self) -> dict[tuple[str, str, str], Any]:
        """Return the objects without fields that controllers keep writing, such as an autoscaler's status."""
        objects = self.objects()
        for item in objects.values():
            item.pop("status", None)
            del item["metadata"]["resourceVersion"]
        return objects

    def state(self, what: str, kinds: str = KINDS) -> dict[tuple[str, str, str], Any]:
        return {key: item["metadata"].get(what) for key, item in self.objects(kinds).items()}

    def kubectl(self, *arguments: str, **more: Any) -> "subprocess.CompletedProcess[str]":
        return self.cluster.kubectl("--namespace", f"{self.prefix}-dev", *arguments, **more)

    def helm(self, *arguments: str, ok: bool = True) -> Ended:
        return self._by_hand(str(tools.path("helm")), *arguments, ok=ok)

    def pulumi(self, *arguments: str) -> Ended:
        return self._by_hand("pulumi", *arguments, "--non-interactive", ok=True)

    def _by_hand(self, *command: str, ok: bool) -> Ended:
        done = subprocess.run(
            command,
            cwd=self.checkout,
            env={**os.environ, **self.environment},
            capture_output=True,
            text=True,
            timeout=900,
            check=False,
        )
        assert not ok or done.returncode == 0, done.stderr
        return Ended(done.returncode, done.stdout, done.stderr)

    def release(self, stack: str = "dev-lab") -> str:
        """Return the status of a stack's Helm release, or an empty text."""
        namespace = f"{self.prefix}-{stack.partition('-')[0]}"
        answer = self.helm("status", stack, "--namespace", namespace, "--output", "json", ok=False)
        return str(json.loads(answer.out)["info"]["status"]) if answer.code == 0 else ""

    def end(self) -> None:
        for process in self.started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()


def site_in(cluster: LocalCluster, prefix: str, engine: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Site:
    """Return a site in a cluster. Pulumi gets a copy of the checkout, because it writes into its project."""
    (folder / "definition").mkdir()
    own = cluster.environment()
    environment = {name: own[name] for name in own if own[name] != os.environ.get(name)}
    site = Site(cluster, prefix, engine, folder, environment)
    site.write(DEFINITION.format(prefix=prefix, context=cluster.context, server="small"))
    if engine == "pulumi":
        site.checkout, settings = checkout_for_pulumi(folder)
        site.environment = environment | settings
        for place in ("ROOT", "PROJECT"):
            monkeypatch.setattr(f"rollout.engines.pulumi_cli.{place}", site.checkout)
    return site


def checkout_for_pulumi(folder: Path) -> tuple[Path, dict[str, str]]:
    """Return a copy of the checkout, into which Pulumi writes the configuration of stacks, and Pulumi's settings."""
    (folder / "state").mkdir()
    return checkout(folder), {"PULUMI_BACKEND_URL": (folder / "state").as_uri(), "PULUMI_CONFIG_PASSPHRASE": ""}


def read_until(process: "subprocess.Popen[str]", words: str) -> str:
    assert process.stderr
    output = ""
    while words not in output:
        line = process.stderr.readline()
        assert line, output
        output += line
    return output
