"""`preview`."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
Call = Callable[..., Any]
Edit = Callable[[str, str], None]
Tree = Callable[[Path], dict[str, bytes]]


@pytest.fixture
def rendered(call: Call, definition: Path, out: Path) -> Path:
    """A rendering of the definition."""
    assert call("up", definition, "--out", out).code == 0
    return out


def test_nothing_would_change_after_a_rendering(rendered: Path, call: Call, definition: Path) -> None:
    ended = call("preview", definition, "--out", rendered)
    assert ended.code == 0
    assert ended.out == f"Against the rendering in {rendered}:\nNothing would change in 2 stacks.\n"


def test_what_would_change_is_shown_and_nothing_is_written(
    rendered: Path, call: Call, definition: Path, edit: Edit, tree: Tree
) -> None:
    before = tree(rendered.parent)
    edit("path: /prod", "path: /elsewhere")
    edit("name: ci, namespaceLabels", "name: cd, namespaceLabels")
    edit("replicas: 1}]", "replicas: 1}, {name: more, loading: {mode: preload}}]")
    edit("server: small}", "server: small, pool: main}")
    said = call("preview", definition, "--out", rendered).out
    for part in (
        "REPLACED PersistentVolume tidegate-prod-models",
        "spec.nfs cannot be changed in place, and datasets are protected",
        "spec.nfs.path /prod → /elsewhere",
        "created  StatefulSet small-more",
        "In 2 of 2 stacks:",
    ):
        assert part in said
    assert tree(rendered.parent) == before


def test_a_stack_that_would_vanish_is_all_deleted(rendered: Path, call: Call, definition: Path) -> None:
    text = definition.read_text("utf-8").split("  - name: prod\n")[0]
    definition.write_text(text + "dataPlanes:\n  - {name: lab, context: kind-lab, environments: [dev]}\n", "utf-8")
    assert "prod-east: 26 DELETED" in call("preview", definition, "--out", rendered).out


def test_one_stack_can_be_previewed(rendered: Path, call: Call, definition: Path, edit: Edit) -> None:
    edit('proxy, tag: "1"', 'proxy, tag: "2"')
    said = call("preview", definition, "--out", rendered, "--stack", "dev-lab").out
    assert "In 1 of 1 stack: 1 changed." in said
    assert "prod-east" not in said


def test_edits_by_hand_are_told(rendered: Path, call: Call, definition: Path) -> None:
    file = rendered / "dev-lab/10-deployment-inference-proxy.yaml"
    file.write_text(file.read_text("utf-8").replace("registry.test/proxy:1", "registry.test/proxy:99"), "utf-8")
    ended = call("preview", definition, "--out", rendered)
    assert "by hand since the last run: dev-lab/10-deployment-inference-proxy.yaml" in ended.err
    assert "registry.test/proxy:99 → registry.test/proxy:1" in ended.out


def test_without_a_rendering_it_says_what_to_do(call: Call, definition: Path, out: Path) -> None:
    ended = call("preview", definition, "--out", out)
    assert ended.code == 1
    assert f"\n  make up DEFINITION={definition} OUT={out}\n" in ended.err
    assert ended.err.endswith(f"\n  make preview BASE=main DEFINITION={definition}\n")
    assert not out.parent.exists()


def test_a_rendering_of_another_definition_is_told(rendered: Path, call: Call, definition: Path) -> None:
    other = definition.with_name("other.yaml")
    other.write_bytes(definition.read_bytes())
    ended = call("preview", other, "--out", rendered)
    assert "holds a rendering of another definition" in ended.err
    assert "Nothing would change in 2 stacks." in ended.out


# ---- against a git revision ----


def git(folder: Path, *arguments: str) -> None:
    who = ["-c", "user.name=t", "-c", "user.email=t@example.com", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, "-C", str(folder), *arguments], check=True, capture_output=True)


@pytest.fixture
def repository(tmp_path: Path, definition: Path) -> Path:
    """A git repository with this very code in it, and the definition at its first commit."""
    folder = tmp_path / "repository"
    for part in ("rollout", "stacks", "components", "contracts", "tools"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "definitions").mkdir()
    shutil.copy(definition, folder / "definitions/two.yaml")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    return folder


def change(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), "utf-8")


def test_against_a_revision_its_own_code_renders_its_own_definition(repository: Path, call: Call, tree: Tree) -> None:
    change(repository / "stacks/resolve/containers.py", "PRE_STOP_SECONDS = 10\n", "PRE_STOP_SECONDS = 11\n")
    git(repository, "commit", "--quiet", "--all", "--message=another pause")
    change(repository / "definitions/two.yaml", 'proxy, tag: "1"', 'proxy, tag: "2"')
    before = tree(repository)
    ended = call("preview", repository / "definitions/two.yaml", "--base", "main", "--stack", "dev-lab")
    assert ended.code == 0, ended.err
    assert ended.out.startswith("Against main:\n")
    # What runs here is the code of ROOT, so the pause that only the revision's code has shows as a difference.
    assert "preStop.sleep.seconds 11 → 10" in ended.out
    assert "registry.test/proxy:1 → registry.test/proxy:2" in ended.out
    assert tree(repository) == before
    ended = call("preview", repository / "definitions/two.yaml", "--base", "HEAD~1", "--stack", "dev-lab")
    assert "In 1 of 1 stack: 1 changed." in ended.out


def test_a_link_out_of_the_repository_is_no_part_of_a_revision(repository: Path, call: Call) -> None:
    (repository / "absolute").symlink_to("/etc/hosts")
    (repository / "outside").symlink_to("../../outside")
    git(repository, "add", "--all")
    git(repository, "commit", "--quiet", "--message=links")
    ended = call("preview", repository / "definitions/two.yaml", "--base", "HEAD", "--stack", "dev-lab")
    assert ended.code == 0, ended.err
    assert "Nothing would change" in ended.out


@pytest.mark.skipif(sys.platform == "darwin", reason="its file systems take no such names")
def test_a_path_that_is_no_utf_8_is_a_path_like_any_other(call: Call, definition: Path, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    shutil.copy(definition, folder / "two.yaml")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    ended = call("preview", folder / "two.yaml", "--base", "HEAD")
    assert ended.err == "HEAD cannot render itself: it has no `rollout` package yet.\n"


def test_a_revision_that_cannot_render_says_why(repository: Path, call: Call) -> None:
    change(repository / "definitions/two.yaml", "kind: nfs", "kind: nsf")
    git(repository, "commit", "--quiet", "--all", "--message=wrong")
    change(repository / "definitions/two.yaml", "kind: nsf", "kind: nfs")
    ended = call("preview", repository / "definitions/two.yaml", "--base", "HEAD")
    assert ended.code == 1
    assert "HEAD cannot be rendered: its own `rollout up` ended with exit code 2:" in ended.err
    assert "nsf" in ended.err


def test_a_revision_without_the_code_or_without_the_definition_says_so(repository: Path, call: Call) -> None:
    shutil.copy(repository / "definitions/two.yaml", repository / "definitions/new.yaml")
    ended = call("preview", repository / "definitions/new.yaml", "--base", "HEAD")
    assert ended.code == 1
    assert "HEAD has no definitions/new.yaml" in ended.err
    git(repository, "rm", "-r", "--quiet", "rollout")
    git(repository, "commit", "--quiet", "--message=no code")
    ended = call("preview", repository / "definitions/two.yaml", "--base", "HEAD")
    assert ended.code == 1
    assert ended.err == "HEAD cannot render itself: it has no `rollout` package yet.\n"


@pytest.mark.parametrize("revision", ["nope", "--upload-pack=touch x", "HEAD:stacks"])
def test_an_unknown_revision_is_one_message(repository: Path, call: Call, revision: str) -> None:
    ended = call("preview", repository / "definitions/two.yaml", f"--base={revision}")
    assert ended.code == 1
    assert f"git knows no revision {revision} here" in ended.err


def test_outside_of_a_git_repository_it_says_so(call: Call, definition: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = call("preview", definition, "--base", "main")
    assert ended.code == 1
    assert "lies in no git repository" in ended.err
    monkeypatch.setenv("PATH", "")
    assert "needs git" in call("preview", definition, "--base", "main").err
