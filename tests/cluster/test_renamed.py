from collections.abc import Sequence
from typing import Any

import pytest

from rollout.engines import helm, pulumi_cli
from stacks.command import CommandError

from .world import HELM, KINDS, PULUMI, Site, settled

EVERYTHING = f"{KINDS},pods"
PLANE = ("{name: lab, ", "{name: west-1, formerly: [lab], ")
NOW = "dev-west-1"


def up(site: Site) -> dict[str, Any]:
    """Run `up` of dev, and return what must not change."""
    site.up()
    settled(site.cluster, f"{site.prefix}-dev")
    return standing(site)


def standing(site: Site) -> dict[str, Any]:
    pods = {
        key[2]: (item["status"]["startTime"], [one["restartCount"] for one in item["status"]["containerStatuses"]])
        for key, item in site.objects("pods").items()
    }
    return {"uids": site.state("uid", EVERYTHING), "pods": pods}


def previewed(site: Site, stack: str = NOW) -> str:
    summary = site.folder / "preview.md"
    where = ("--cluster", site.cluster.context, "--stack", stack, "--summary", str(summary))
    return site.run("preview", *where).text + summary.read_text("utf-8")


def known_as(site: Site) -> set[str]:
    if site.engine == "helm":
        listed = site.helm("list", "--namespace", f"{site.prefix}-dev", "--short").out
        return set(listed.split())
    return {line.split()[0].rstrip("*") for line in site.pulumi("stack", "ls").out.splitlines()[1:] if line.strip()}


def test_a_data_plane_is_renamed_under_running_pods(site: Site) -> None:
    """Only the move needs its former name."""
    before = up(site)
    site.edit(*PLANE)
    output = previewed(site)
    assert output.count("data plane west-1, formerly lab: ") == 2, "on the terminal and on the page"
    assert "WEAKER" not in output
    site.up(stack=NOW)
    assert standing(site) == before
    assert known_as(site) == {NOW}
    assert site.changes(NOW) == []
    output = previewed(site)
    assert "1 stack: 1 unchanged" in output
    assert "formerly" not in output

    site.edit("formerly: [lab], ", "")
    for _ in range(2):
        site.up(stack=NOW)
    site.edit("replicas: 1}\n      - {name: extra", "replicas: 2}\n      - {name: extra")
    site.up(stack=NOW)
    found = standing(site)["uids"]
    assert found.items() > before["uids"].items(), "one more pod, and nothing re-created"
    assert site.changes(NOW) == []


@pytest.mark.thorough
def test_all_else_keeps_the_names_that_its_objects_have(site: Site) -> None:
    """An environment, a server, a pool and a dataset get new names, which clients see."""
    before = up(site)
    for old, new in (
        ("{name: dev, ", "{name: development, formerly: [dev], "),
        ("[dev, prod]", "[development, prod]"),
        ("- name: small\n", "- name: fast\n    formerly: [small]\n"),
        ("{name: main, ", "{name: first, formerly: [main], "),
        ("{name: models, kind", "{name: weights, formerly: [models], kind"),
        ("{name: models, path", "{name: weights, path"),
        ("{dataset: models}", "{dataset: weights}"),
        ("servers: [small]", "servers: [fast]"),
        ("server: small, pool: main", "server: fast, pool: first"),
    ):
        site.edit(old, new)
    site.edit(*PLANE)
    stack = "development-west-1"
    output = previewed(site, stack)
    for line in (
        "environment development, formerly dev",
        "server fast, formerly small: its objects keep the name small",
        "pool first of server fast, formerly main: its objects keep the name main",
        "dataset weights, formerly models: its objects keep the name models",
    ):
        assert line in output
    assert "WEAKER" not in output
    assert "DELETED" not in output
    site.up(stack=stack)
    assert standing(site) == before
    assert known_as(site) == {stack}
    assert site.changes(stack) == []
    table = site.objects("configmaps")["ConfigMap", f"{site.prefix}-dev", "inference-proxy-routing"]["data"]
    for name in ("development", "fast", "first"):
        assert f'"{name}"' in table["routing.json"]
    site.down(stack=stack)
    assert known_as(site) == (set() if site.engine == "helm" else {stack}), "Pulumi's keeps the datasets"
    assert {key[0] for key in site.objects(EVERYTHING)} <= {"PersistentVolume", "PersistentVolumeClaim", "Pod"}


@pytest.mark.thorough
@HELM
def test_a_move_that_was_stopped_is_finished_by_the_next_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    before = up(site)
    site.edit(*PLANE)
    site.kubectl("create", "secret", "generic", "somebodys")
    site.kubectl("label", "secret", "somebodys", "owner=helm", "name=dev-lab")  # Not a record, despite its labels.

    def stopped(*_: Any, **__: Any) -> str:
        raise CommandError("stopped")

    for step in ("to_helm", "run_watched"):
        with monkeypatch.context() as patch:
            patch.setattr(helm, step, stopped)
            assert "stopped" in site.up(stack=NOW, ok=False).err
    assert known_as(site) == set()
    site.up(stack=NOW)
    assert site.kubectl("get", "secret", "somebodys", "--output=name").stdout
    assert standing(site) == before
    assert known_as(site) == {NOW}
    assert site.changes(NOW) == []


@pytest.mark.thorough
@PULUMI
def test_a_state_whose_move_was_stopped_is_moved_by_the_next_up(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    before = up(site)
    site.edit(*PLANE)
    real = pulumi_cli.run

    def stopped(cli: pulumi_cli.PulumiCli, stack: Any, arguments: Sequence[str]) -> str:
        if [*arguments[:2]] == ["stack", "rename"]:
            raise CommandError("stopped")
        return real(cli, stack, arguments)

    with monkeypatch.context() as patch:
        patch.setattr(pulumi_cli, "run", stopped)
        assert "stopped" in site.up(stack=NOW, ok=False).err
    assert known_as(site) == {"dev-lab"}
    site.up(stack=NOW)
    assert standing(site) == before
    assert known_as(site) == {NOW}
    site.up(stack=NOW)
    assert standing(site) == before


@pytest.mark.thorough
@HELM
def test_without_its_former_name_it_is_another_stack_and_the_message_names_the_key(site: Site) -> None:
    before = up(site)
    site.edit("{name: lab, ", "{name: west-1, ")
    output = previewed(site)
    assert "lab applied this, not data plane west-1: `tidegate up` refuses" in output
    assert "formerly lab" not in output
    ended = site.up(stack=NOW, ok=False)
    assert "was applied with Helm, as release dev-lab" in ended.err
    assert "add that under formerly of its data plane or environment" in ended.err
    assert standing(site) == before


@pytest.mark.thorough
@PULUMI
def test_a_plain_pulumi_up_reports_the_command_that_moves_the_state(site: Site) -> None:
    before = up(site)
    site.edit(*PLANE)
    ended = site._by_hand("pulumi", "preview", "--stack", "dev-lab", "--non-interactive", ok=False)
    assert "dev on lab is now dev on west-1. First move Pulumi's state to that name: " in ended.text
    assert f"tidegate up {site.definition} --cluster tests --stack dev-west-1 --engine pulumi" in ended.text
    assert standing(site) == before
