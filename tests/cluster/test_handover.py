import shutil
import subprocess
from pathlib import Path

import pytest
from typer.testing import CliRunner

from charts import CHART
from charts.project import version
from cli.app import app as charts_app
from lab import tools

from .world import HELM, KINDS, PULUMI, ROOT, Site, settled

EVERYTHING = f"{KINDS},pods"


@pytest.mark.thorough
@PULUMI
def test_from_helm_to_pulumi_and_back(site: Site) -> None:
    """Each engine refuses a stack of the other with a message, and adopts it with --adopt."""
    site.up(engine="helm")
    settled(site.cluster, f"{site.prefix}-dev")
    before = site.state("uid", EVERYTHING)
    ended = site.up(engine="pulumi", ok=False)
    assert ended.code == 1
    assert f"dev-lab was applied with Helm, as release dev-lab in namespace {site.prefix}-dev." in ended.err
    assert f"tidegate up {site.definition} --cluster tests --stack dev-lab --engine pulumi --adopt" in ended.err

    site.up("--adopt", engine="pulumi")
    assert site.state("uid", EVERYTHING) == before
    assert site.release() == "", "Helm has forgotten it"
    assert site.changes() == []
    site.up(engine="pulumi")
    assert site.state("uid", EVERYTHING) == before

    ended = site.up(engine="helm", ok=False)
    assert ended.code == 1
    assert "dev-lab was applied with Pulumi." in ended.err
    ended = site.up("--adopt", engine="helm")
    assert "pulumi stack rm --force --preserve-config dev-lab" in ended.err
    assert site.state("uid", EVERYTHING) == before
    assert site.release() == "deployed"
    assert site.changes() == []

    # Either engine removes objects that are no longer declared, because no former owner holds them.
    site.edit("      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}, replicas: 1}\n", "")
    site.edit("proxy:\n  replicas: 1", "proxy:\n  autoscaling: {min: 2, max: 6}")
    site.up(engine="helm")
    assert site.changes() == []


def apply_rendered(site: Site) -> None:
    site.run("render", "--out", str(site.folder / "rendered"), "--stack", "dev-lab")
    options = "--server-side", "--force-conflicts", "--field-manager=helm"
    site.kubectl("apply", *options, "--filename", str(site.folder / "rendered" / "dev-lab"))


@pytest.mark.thorough
@HELM
def test_one_of_two_environments_leaves_helm_and_nothing_is_recreated(site: Site) -> None:
    site.edit("{name: dev, ", "{name: dev, labels: {example.com/owner: me}, ")
    for stack in ("dev-lab", "prod-lab"):
        site.up(stack=stack)
        settled(site.cluster, f"{site.prefix}-{stack.partition('-')[0]}")
    before = site.state("uid")

    apply_rendered(site)
    site.kubectl("delete", "secret", "--selector", "owner=helm,name=dev-lab")
    assert (site.release("dev-lab"), site.release("prod-lab")) == ("", "deployed")
    assert site.state("uid") == before
    assert site.changes("dev-lab") == site.changes("prod-lab") == []

    # Fields that are removed from the definition later disappear, because they have only one owner.
    site.edit("labels: {example.com/owner: me}, ", "")
    apply_rendered(site)
    (namespace,) = (item for item in site.cluster.get("namespaces") if item["metadata"]["name"] == f"{site.prefix}-dev")
    assert "example.com/owner" not in namespace["metadata"]["labels"]
    assert site.state("uid") == before


# ---- the packaged chart, with the commands of docs/helm.md ----

OLDER = "0.0.9"


@pytest.fixture
def values(site: Site) -> Path:
    done = CliRunner().invoke(charts_app, ["values", str(site.definition), "--stack", "dev-lab"])
    assert done.exit_code == 0, done.output
    path = site.folder / "dev-lab.yaml"
    path.write_text(done.stdout, "utf-8")
    return path


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Packages of the current chart and of an older one with rarer probes."""
    folder = tmp_path_factory.mktemp("charts")
    old = folder / "old" / "tidegate"
    shutil.copytree(CHART, old)
    pod = old / "templates" / "triton-pool.yaml"
    assert "periodSeconds: 10" in pod.read_text("utf-8")
    pod.write_text(pod.read_text("utf-8").replace("periodSeconds: 10", "periodSeconds: 20"), "utf-8")
    for chart, number in ((old, OLDER), (CHART, version())):
        command = [str(tools.path("helm")), "package", str(chart), "--version", number, "--destination", str(folder)]
        subprocess.run(command, check=True, capture_output=True, timeout=900)
    return folder / f"tidegate-{OLDER}.tgz", folder / f"tidegate-{version()}.tgz"


@pytest.mark.thorough
@HELM
def test_install_upgrade_from_the_chart_before_rollback_and_uninstall(
    site: Site, values: Path, charts: tuple[Path, Path]
) -> None:
    """Every step with plain Helm. Volumes survive all of them."""
    older, today = charts
    where = ["--namespace", f"{site.prefix}-dev"]
    wait = ["--wait", "--timeout", "900s"]
    site.helm(
        "install", "dev-lab", str(older), *where, "--create-namespace", "--take-ownership", "-f", str(values), *wait
    )
    before = site.objects()
    pool = "StatefulSet", f"{site.prefix}-dev", "small-main"
    assert '"periodSeconds": 20' in str(before[pool]["spec"]).replace("'", '"')

    ended = site.helm("upgrade", "dev-lab", str(today), *where, "-f", str(values), *wait)
    assert "REVISION: 2" in ended.out
    settled(site.cluster, f"{site.prefix}-dev")
    assert site.changes() == [], "what plain Helm installed is what `tidegate up` would"
    after = site.state("uid")
    assert after == {key: item["metadata"]["uid"] for key, item in before.items()}, "nothing was re-created"
    site.up()
    assert site.changes() == []

    site.helm("rollback", "dev-lab", "1", *where, *wait)
    assert '"periodSeconds": 20' in str(site.objects()[pool]["spec"]).replace("'", '"')
    assert site.state("uid") == after
    site.helm("upgrade", "dev-lab", str(today), *where, "-f", str(values), *wait)

    ended = site.helm("uninstall", "dev-lab", *where, "--wait")
    for kind, name in (("PersistentVolumeClaim", "models"), ("Namespace", f"{site.prefix}-dev")):
        assert f"[{kind}] {name}" in ended.out
    left = site.objects()
    assert {key[0] for key in left} == {"PersistentVolume", "PersistentVolumeClaim"}
    assert {key: item["metadata"]["uid"] for key, item in left.items()} == {key: after[key] for key in left}

    site.helm("install", "dev-lab", str(today), *where, "-f", str(values), *wait)
    assert site.changes() == []
    assert site.objects()["PersistentVolumeClaim", f"{site.prefix}-dev", "models"]["status"]["phase"] == "Bound"


@pytest.mark.thorough
@HELM
@pytest.mark.parametrize("command", ["tidegate", "helm"])
def test_objects_applied_with_kubectl_are_adopted(
    site: Site, values: Path, charts: tuple[Path, Path], command: str
) -> None:
    """With `tidegate up --adopt`, or with plain Helm as in docs/helm.md. Objects and pods stay the same."""
    site.cluster.apply(site.rendered("dev-lab").objects)
    settled(site.cluster, f"{site.prefix}-dev")
    before = site.state("uid", EVERYTHING)
    assert site.changes() == []
    if command == "helm":
        where = ["--namespace", f"{site.prefix}-dev", "-f", str(values), "--wait"]
        refused = site.helm("install", "dev-lab", str(charts[1]), *where, ok=False)
        assert "cannot be imported into the current release" in refused.err
        site.helm("install", "dev-lab", str(charts[1]), *where, "--take-ownership", "--force-conflicts")
    else:
        refused = site.up(ok=False)
        assert "dev-lab was applied with kubectl, or by a GitOps controller." in refused.err
        site.up("--adopt")
    assert refused.code
    assert site.state("uid", EVERYTHING) == before
    assert site.release() == "deployed"
    assert site.changes() == []
    site.edit("      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}, replicas: 1}\n", "")
    site.up()
    assert site.changes() == []


@pytest.mark.parametrize(
    "typed",
    [
        "--create-namespace --take-ownership -f prod-east.yaml",
        "helm rollback prod-east 1",
        "helm uninstall prod-east",
        "--take-ownership --force-conflicts",
        "kubectl apply --server-side --force-conflicts --field-manager=helm -f build/rendered/<stack>/",
        "kubectl delete secret --namespace <namespace> --selector owner=helm,name=<stack>",
    ],
)
def test_the_commands_in_this_file_are_those_of_the_documentation(typed: str) -> None:
    assert typed in (ROOT / "docs" / "helm.md").read_text("utf-8")
