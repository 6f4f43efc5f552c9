import re
from pathlib import Path

from rollout.tools.pins import module_version
from stacks.validate import read_definition

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text("utf-8")
VERSIONS = dict(re.findall(r"^\| (\w+).*? \| (\d+\.\d+\.\d+) \|$", README, re.MULTILINE))


def test_the_versions_are_those_that_the_tests_use() -> None:
    """Pulumi's engine is in no package registry, so only people run it. tests/cluster/test_install.py checks Triton."""
    pins = ROOT / "rollout/tools"
    dynamo = re.search(r"^ai-dynamo==(\S+)$", (ROOT / "requirements/dynamo.in").read_text("utf-8"), re.MULTILINE)
    keda = re.search(r"kedacore/keda/v2 v(\S+)", (ROOT / "lab/tools/scaling/go.mod").read_text("utf-8"))
    assert dynamo
    assert keda
    assert {name: VERSIONS[name] for name in ("Kubernetes", "Helm", "KEDA", "NVIDIA")} == {
        "Kubernetes": module_version("k8s.io/kubernetes/cmd/kubectl", pins),
        "Helm": module_version("helm.sh/helm/v4/cmd/helm", pins),
        "KEDA": keda[1],
        "NVIDIA": dynamo[1],
    }


def test_the_picture_of_the_definition_has_its_stacks() -> None:
    shown = re.findall(">([^<]+)</text>", (ROOT / "docs/pictures/definition.svg").read_text("utf-8"))
    for stack in read_definition(ROOT / "stacks/inference.yaml").stacks:
        assert {stack.name, stack.namespace, f"Cluster {stack.data_plane.name}"} <= {*shown}


def test_the_readme_fits_on_a_few_screens() -> None:
    assert len(README.splitlines()) <= 150
