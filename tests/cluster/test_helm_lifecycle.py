"""The packaged chart in Helm's own hands: what docs/helm.md tells people to type, typed."""

import subprocess
from pathlib import Path

import pytest

from charts import CHART
from charts.packaging import package
from lab import tools

from .world import KINDS, ROOT, Site, settled

OLDER = "0.0.9"


@pytest.fixture
def values(helm_site: Site) -> Path:
    """Dev's values, as `make values STACK=dev-lab` writes them."""
    path = helm_site.folder / "dev-lab.yaml"
    _write_values(helm_site, path)
    return path


def _write_values(site: Site, path: Path) -> None:
    from typer.testing import CliRunner

    from charts.__main__ import app

    result = CliRunner().invoke(app, ["values", str(site.definition), "--stack", "dev-lab"])
    assert result.exit_code == 0, result.output
    path.write_text(result.stdout, "utf-8")


@pytest.fixture(scope="module")
def charts(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The chart of today as `make package` makes it, and one of before, which probed less often."""
    folder = tmp_path_factory.mktemp("charts")
    old = folder / "old" / "tidegate"
    for path in CHART.rglob("*"):
        if path.is_file():
            target = old / path.relative_to(CHART)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    pod = old / "templates" / "triton-pool.yaml"
    assert "periodSeconds: 10" in pod.read_text("utf-8")
    pod.write_text(pod.read_text("utf-8").replace("periodSeconds: 10", "periodSeconds: 20"), "utf-8")
    helm = str(tools.path("helm"))
    command = [helm, "package", str(old), "--version", OLDER, "--destination", str(folder)]
    subprocess.run(command, check=True, capture_output=True, timeout=60)
    return folder / f"tidegate-{OLDER}.tgz", package(CHART, folder)


def test_install_upgrade_from_the_chart_before_rollback_and_uninstall(
    helm_site: Site, values: Path, charts: tuple[Path, Path]
) -> None:
    """Every step by plain Helm; volumes outlive all of them."""
    site, (older, today) = helm_site, charts
    where = ["--namespace", f"{site.prefix}-dev"]
    wait = ["--wait", "--timeout", "120s"]
    site.helm(
        "install", "dev-lab", str(older), *where, "--create-namespace", "--take-ownership", "-f", str(values), *wait
    )
    before = site.objects()
    pool = "StatefulSet", f"{site.prefix}-dev", "small-main"
    assert '"periodSeconds": 20' in str(before[pool]["spec"]).replace("'", '"')

    ended = site.helm("upgrade", "dev-lab", str(today), *where, "-f", str(values), *wait)
    assert "REVISION: 2" in ended.out
    settled(site.cluster, f"{site.prefix}-dev")
    assert site.changes() == [], "what plain Helm installed is what `make up` would"
    after = site.state("uid")
    assert after == {key: item["metadata"]["uid"] for key, item in before.items()}, "nothing was made anew"
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
def test_plain_helm_adopts_what_kubectl_applied(helm_site: Site, values: Path, charts: tuple[Path, Path]) -> None:
    """With --take-ownership, as docs/helm.md says: objects and pods stay the ones that they are."""
    site = helm_site
    site.cluster.apply(site.rendered("dev-lab").objects)
    settled(site.cluster, f"{site.prefix}-dev")
    before = site.state("uid", f"{KINDS},pods")
    where = ["--namespace", f"{site.prefix}-dev", "-f", str(values), "--wait"]
    refused = site.helm("install", "dev-lab", str(charts[1]), *where, ok=False)
    assert refused.code != 0
    assert "cannot be imported into the current release" in refused.err
    site.helm("install", "dev-lab", str(charts[1]), *where, "--take-ownership", "--force-conflicts")
    assert site.state("uid", f"{KINDS},pods") == before
    assert site.changes() == []


def test_what_the_documentation_tells_people_to_type_is_what_is_typed_here() -> None:
    """A command in docs/helm.md with other options than these would be one that nobody has run."""
    text = (ROOT / "docs" / "helm.md").read_text("utf-8")
    for options in (
        "--create-namespace --take-ownership -f prod-east.yaml",
        "helm rollback prod-east 1",
        "helm uninstall prod-east",
        "--take-ownership --force-conflicts",
    ):
        assert options in text
