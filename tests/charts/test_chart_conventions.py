"""What Helm, Artifact Hub and those who install charts expect of one."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from tidegate_contracts import proxy_process

from charts import CHART
from charts.arguments import arguments, is_list
from charts.folder import contents, default_values, scenarios
from charts.packaging import ROOT, version
from components import EnvironmentArgs
from policies.guardrails.objects import pods
from policies.guardrails.rules.pod_security import violations
from rollout.needs import needs_of

from .rendering import helm

SCENARIOS = sorted(scenarios())


def template(*arguments: str | Path) -> list[dict[str, Any]]:
    done = helm(["template", "release", CHART, *arguments])
    assert done.returncode == 0, done.stderr
    return [item for item in yaml.safe_load_all(done.stdout) if item]


def hooks(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [item for item in objects if "helm.sh/hook" in item["metadata"].get("annotations", {})]


def values_of_scenario(name: str) -> list[str | Path]:
    return ["--values", CHART / "ci" / name]


def notes(*arguments: str | Path) -> str:
    """What `helm install` says, without a cluster."""
    done = helm(["install", "release", CHART, "--dry-run=client", "--namespace", "here", *arguments])
    assert done.returncode == 0, done.stderr
    return done.stdout.partition("\nNOTES:\n")[2]


def test_lint_finds_nothing_with_the_charts_own_values() -> None:
    done = helm(["lint", "--strict", CHART])
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stdout
    assert "ERROR" not in done.stdout


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_scenario_is_linted_and_its_objects_carry_the_usual_labels_and_selectors_no_version(
    scenario: str,
) -> None:
    done = helm(["lint", "--strict", CHART, *values_of_scenario(scenario)])
    assert done.returncode == 0, done.stdout + done.stderr
    objects = template(*values_of_scenario(scenario), "--kube-version", "1.33.0")
    names = [(item["kind"], item["metadata"].get("namespace"), item["metadata"]["name"]) for item in objects]
    assert len(names) == len(set(names))
    assert {"Namespace", "Deployment", "StatefulSet"} <= {item["kind"] for item in objects}
    for item in objects:
        labels = item["metadata"]["labels"]
        assert labels["app.kubernetes.io/part-of"] == "tidegate", item["kind"]
        assert {"app.kubernetes.io/name", "app.kubernetes.io/instance", "app.kubernetes.io/managed-by"} <= labels.keys()
        selector = yaml.safe_dump(item.get("spec", {}).get("selector", {}))
        assert "helm.sh/chart" not in selector
        assert "version" not in selector
    assert_helm_test_asks(objects, yaml.safe_load((CHART / "ci" / scenario).read_text("utf-8")))


def assert_helm_test_asks(objects: list[dict[str, Any]], values: dict[str, Any]) -> None:
    """Its pod asks the proxy and each server."""
    (pod,) = (item for item in hooks(objects) if item["kind"] == "Pod")
    (container,) = pod["spec"]["containers"]
    host, port, *paths = container["args"]
    assert host == f"inference-proxy-headless.{values['namespace']['name']}.svc"
    assert port == str(proxy_process.ADMIN_PORT)
    servers = [server["name"] for server in values["servers"]]
    assert paths == [proxy_process.READY_PATH, *map(proxy_process.server_ready_path, servers)]
    assert container["image"] == values["proxy"]["image"]
    assert container["command"][:2] == ["python", "-c"]
    assert container["command"][2] == (ROOT / "charts" / "smoke_test_program.py").read_text("utf-8")
    assert pod["spec"]["restartPolicy"] == "Never"
    assert [violation for each in pods([pod]) for violation in violations(each)] == []


def test_lint_refuses_what_the_schema_refuses() -> None:
    done = helm(["lint", "--strict", CHART, "--set", "proxy.replicas=many", "--set", "proxy.colour=blue"])
    assert done.returncode != 0
    assert "at '/proxy/replicas': got string, want null or integer" in done.stdout + done.stderr
    assert "additional properties 'colour' not allowed" in done.stdout + done.stderr


def test_an_older_kubernetes_is_refused() -> None:
    done = helm(["template", "release", CHART, "--kube-version", "1.32.9"])
    assert done.returncode != 0
    assert ">=1.33.0-0" in done.stderr


def test_chart_yaml_says_what_is_true() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    assert chart["apiVersion"] == "v2"
    assert chart["version"] == chart["appVersion"] == version()
    assert chart["kubeVersion"] == ">=1.33.0-0"
    annotations = chart["annotations"]
    assert annotations["artifacthub.io/license"] == "Apache-2.0"
    assert (CHART / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
    changes = yaml.safe_load(annotations["artifacthub.io/changes"])
    assert changes
    assert all(change.keys() == {"kind", "description"} for change in changes)
    changelog = " ".join((ROOT / "CHANGELOG.md").read_text("utf-8").split())
    assert all(change["description"] in changelog for change in changes)
    released = re.search(rf"^## \[?{re.escape(version())}\b", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert annotations["artifacthub.io/prerelease"] == ("false" if released else "true")
    # Nothing is named that is not there: no page, no people, no picture.
    assert not chart.keys() & {"home", "sources", "maintainers", "icon"}


def test_the_hooks_are_for_tests_alone_and_the_way_is_open_before_the_pod_starts() -> None:
    found = hooks(template())
    assert sorted(item["kind"] for item in found) == ["NetworkPolicy", "Pod"]
    # `helm test --logs` asks for a pod by the name of each hook, and fails when there is none.
    assert len({item["metadata"]["name"] for item in found}) == 1
    for item in found:
        annotations = item["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
        weight = int(annotations.get("helm.sh/hook-weight", "0"))
        assert weight == (0 if item["kind"] == "Pod" else -1)


def test_the_readme_lists_every_value_and_the_options_that_an_install_needs() -> None:
    text = (CHART / "README.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `([^`]+)` \|", text, re.MULTILINE))

    def keys(owner: type, path: str) -> set[str]:
        found = set()
        for each in arguments(owner):
            here = f"{path}{each.key}"
            below = here + ("[]." if is_list(each.kind) else ".")
            inner = [keys(kind, below) for kind in each.classes]
            found |= set().union(*inner) if inner else {here}
        return found

    assert keys(EnvironmentArgs, "") <= listed
    assert "--create-namespace --take-ownership" in text
    for line in text.splitlines():
        assert not line.startswith("| ") or line.count(" | ") >= 3
    assert "| |" not in text.replace("|---|", "")


def test_notes_tell_what_was_installed_and_how_to_reach_it() -> None:
    text = notes()
    values = default_values()
    assert f"Environment {values['name']} in namespace {values['namespace']['name']}" in text
    assert values["proxy"]["image"] in text
    for server in values["servers"]:
        assert f"  {server['name']}: {server['image']}" in text
        for pool in server["pools"]:
            assert re.search(rf"^    {pool['name']}: \d+ replicas?, {pool['loading']['mode']}, CPU", text, re.MULTILINE)
    assert "port-forward service/inference-proxy 8080:80" in text
    assert "Nobody may call it yet" in text
    assert "helm test release --namespace here" in text
    assert "Helm keeps the release's own record in namespace here" in text


def test_notes_do_not_claim_to_have_asked_a_cluster_that_they_could_not_ask() -> None:
    text = notes(*values_of_scenario("prod-east-values.yaml"))
    assert "no cluster was asked" in text
    assert "missing" not in text
    needed = text.partition("What must be there")[2]
    assert "the Prometheus operator" in needed
    assert "CSIDriver efs.csi.aws.com" in needed
    assert "nvidia.com/mig-1g.10gb" in needed
    assert "nvidia.com/gpu.product=NVIDIA-A100-SXM4-80GB" in needed
    assert "Secret inference-prod/registry-credentials" in needed
    assert len(set(needed.splitlines())) == len(needed.splitlines()), "said twice"


def test_notes_of_everything_name_every_secret_class_and_operator() -> None:
    objects = template(*values_of_scenario("everything-values.yaml"))
    text = notes(*values_of_scenario("everything-values.yaml"))
    for item in objects:
        if item["kind"] in ("Deployment", "StatefulSet"):
            for volume in item["spec"]["template"]["spec"]["volumes"]:
                if "secret" in volume and not volume["secret"]["secretName"].endswith("inference-proxy-tls"):
                    assert f"/{volume['secret']['secretName']}," in text
            if name := item["spec"]["template"]["spec"].get("priorityClassName"):
                assert f"PriorityClass {name}," in text
        if "." in item["apiVersion"].partition("/")[0] and not item["apiVersion"].partition("/")[0].endswith("k8s.io"):
            assert f"brings the kind {item['kind']} of {item['apiVersion']}" in text


@pytest.mark.parametrize(
    "scenario", ["prod-east-values.yaml", "everything-values.yaml", "object-store-values.yaml", "two-kinds-values.yaml"]
)
def test_notes_and_a_preflight_name_the_same_needs(scenario: str) -> None:
    """Notes name nodes, kinds and the metrics server in words of their own."""
    needed = notes(*values_of_scenario(scenario)).partition("What must be there")[2]
    found = needs_of(template(*values_of_scenario(scenario)))
    names = {(need.kind, "/".join(filter(None, (need.namespace, need.name)))) for need in found}
    in_notes = {*re.findall(r"^  - ([A-Z]\w+) (\S+), ", needed, re.MULTILINE)}
    assert {each for each in names if each[0] != "APIService"} == in_notes


def test_every_file_is_readable_text_that_ends_with_a_line_and_scenarios_are_few() -> None:
    assert 5 <= len(SCENARIOS) <= 12
    assert all(len(text) < 45_000 for text in scenarios().values())
    for path, text in contents().items():
        assert text.endswith("\n"), path
        assert "\t" not in text, path
        assert "\r" not in text, path
