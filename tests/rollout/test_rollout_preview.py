import os
import re
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from rollout.live import Live
from tests.pictures import drawn, kept
from tests.processes import git

from .conftest import ROOT, Call, Edit, Patch, Tree, change


def test_nothing_would_change_after_a_rendering(preview: Call) -> None:
    assert preview(code=0).out == "Against main:\n2 stacks: 2 unchanged\n"


@pytest.mark.parametrize("text", ["kind: [", "", "kind: Service\n"])
def test_an_unreadable_old_file_is_named(text: str, rendered: Path, preview: Call) -> None:
    (stack, *_) = sorted(folder for folder in rendered.iterdir() if folder.is_dir())
    old = next(stack.glob("*configmap*.yaml"), None) or sorted(stack.glob("*.yaml"))[0]
    old.write_text(text)
    assert f"Not compared, because they contain no readable object: {stack.name}/{old.name}" in preview().err


def test_changes_are_shown_and_nothing_is_written(rendered: Path, edit: Edit, tree: Tree, preview: Call) -> None:
    before = tree(rendered)
    edit("path: /prod", "path: /elsewhere")
    edit("replicas: 1}]", "replicas: 1}, {name: more, loading: {mode: preload}}]")
    edit("server: small}", "server: small, pool: main}")
    output = preview().out
    for part in (
        "REPLACED PersistentVolume tidegate-prod-models",
        "spec.nfs.path /prod → /elsewhere",
        "created  StatefulSet small-more",
        "2 stacks: 2 changed",
    ):
        assert part in output
    assert tree(rendered) == before


def test_a_stack_of_another_name_is_compared_with_itself(rendered: Path, edit: Edit, preview: Call, up: Call) -> None:
    """Nothing is deleted or new. Its directory gets the new name, even if only this stack is rendered."""
    edit("{name: lab, ", "{name: west, formerly: [lab], ")
    edit("{name: dev}", "{name: trial, formerly: [dev]}")
    edit("environments: [dev]", "environments: [trial]")
    edit("- name: small", "- name: fast\n    formerly: [small]")
    edit("server: small", "server: fast")
    ended = preview(code=0)
    for line in ("trial, formerly dev: ", "west, formerly lab: ", "fast, formerly small: its objects keep the name"):
        assert line in ended.err
    assert "server small: IS CALLED fast FROM NOW ON: requests for small are refused" in ended.out
    assert "2 stacks: 2 changed · objects: 4 changed" in ended.out
    for words in ("weaker than", "is no longer", "no longer lets", "cold", "moves from"):
        assert words not in ended.text.lower()
    up("--stack", "trial-west", code=0)
    assert sorted(path.name for path in rendered.iterdir() if path.is_dir()) == ["prod-east", "trial-west"]
    assert preview("--stack", "trial-west", code=0).out.endswith("1 stack: 1 unchanged\n")


def test_a_new_name_without_formerly_is_reported_and_its_stack_compared(edit: Edit, preview: Call) -> None:
    edit("{name: lab, context: kind-lab", "{name: west, context: kind-lab")
    ended = preview(code=0)
    assert "2 stacks: 1 changed, 1 unchanged · objects: 1 changed" in ended.out
    assert (
        "dev-west: lab applied this, not data plane west: `tidegate up` refuses unless west sets formerly: [lab]"
        in ended.err
    )
    assert "tidegate down" not in ended.text
    assert "formerly lab" not in ended.text


# ---- against a git revision ----


@pytest.fixture
def page(tmp_path: Path) -> Path:
    return tmp_path / "pages" / "preview.md"


class Repository:
    def __init__(self, folder: Path, definition: Path, page: Path, call: Call) -> None:
        self.folder, self.page, self.call = folder, page, call
        self.definition = folder / "definitions/two.yaml"
        self.definition.parent.mkdir(parents=True)
        shutil.copy(definition, self.definition)
        git(folder, "init", "--quiet", "--initial-branch=main")
        self.commit("first")

    def commit(self, message: str) -> None:
        git(self.folder, "add", "--all")
        git(self.folder, "commit", "--quiet", f"--message={message}")

    def edit(self, old: str, new: str) -> None:
        change(self.definition, old, new)

    def against(self, base: str, *more: object, definition: Path | None = None, code: int = 0) -> Any:
        path = definition or self.definition
        return self.call("preview", path, f"--base={base}", "--summary", self.page, *more, code=code)

    def text_of_page(self) -> str:
        return self.page.read_text("utf-8")


@pytest.fixture
def repo(tmp_path: Path, definition: Path, page: Path, call: Call) -> Repository:
    return Repository(tmp_path / "repository", definition, page, call)


@pytest.fixture
def with_code(repo: Repository) -> Repository:
    packages = [path.parent.name for path in ROOT.glob("*/__init__.py") if path.parent.name != "tests"]
    for part in (*packages, "client", "contracts", "service"):
        shutil.copytree(ROOT / part, repo.folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    repo.commit("code")
    return repo


def test_against_a_revision_its_own_code_renders_its_own_definition(with_code: Repository, tree: Tree) -> None:
    repo = with_code
    change(repo.folder / "components/args.py", "PRE_STOP_SECONDS: Final = 10\n", "PRE_STOP_SECONDS: Final = 11\n")
    repo.commit("another pause")
    repo.edit('proxy, tag: "1"', 'proxy, tag: "2"')
    before = tree(repo.folder)
    ended = repo.against("main", "--stack", "dev-lab")
    assert ended.out.startswith("Against main:\n")
    # The code of ROOT runs here, so the pause that only the revision's code has appears as a difference.
    assert "preStop.sleep.seconds 11 → 10" in ended.out
    assert "registry.test/proxy:1 → registry.test/proxy:2" in ended.out
    assert tree(repo.folder) == before
    ended = repo.against("HEAD~1", "--stack", "dev-lab")
    assert "1 stack: 1 changed · objects: 1 changed" in ended.out


def test_code_of_another_revision_gets_no_secret_of_this_environment(
    repo: Repository, tmp_path: Path, monkeypatch: Patch
) -> None:
    """The author of a revision writes that code."""
    variables = tmp_path / "variables"
    (repo.folder / "cli").mkdir()
    (repo.folder / "cli/__main__.py").write_text(
        f"import os, pathlib, sys; pathlib.Path({str(variables)!r}).write_text(chr(10).join(os.environ)); sys.exit(1)"
    )
    repo.commit("theirs")
    secrets = {
        *("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "KUBECONFIG", "PULUMI_ACCESS_TOKEN", "PULUMI_CONFIG_PASSPHRASE"),
        *("MLFLOW_TRACKING_PASSWORD", "ACTIONS_ID_TOKEN_REQUEST_TOKEN", "PIP_INDEX_URL", "PATH_TO_TOKEN", "a_token"),
    }
    for name in secrets:
        monkeypatch.setenv(name, "secret")
    repo.against("main", code=1)
    got = set(variables.read_text().split())
    assert {"PATH", "HOME", "PYTHONPATH"} <= got
    assert not secrets & got


def test_the_page_for_reviewers_begins_with_changes_and_restarts(repo: Repository) -> None:
    repo.edit('proxy, tag: "1"', 'proxy, tag: "2"')
    repo.edit("path: /prod", "path: /elsewhere")
    repo.edit("principals: [ci]", "principals: [ci, notebooks]")
    repo.against("main")
    text = repo.text_of_page()
    counts = "2 stacks: 2 changed · objects: 4 changed, 1 REPLACED"
    verdict = f"2 things WEAKER · 1 dataset REPLACED · {counts} · 2 proxies restart"
    assert text.splitlines()[0] == f"**⚠️ {verdict}**"
    for part in (
        "against <code>main</code> (<code>",
        "- **DATASET REPLACED** <code>prod-east</code>",
        "proxy&#58;1 → ",
    ):
        assert part in text
    picture = drawn("comment", re.sub(r"(?<=<code>)/[^<]*/(?=two)| \(<code>\w+</code>\)", "", text))
    assert kept("preview", picture) == picture


@pytest.mark.thorough
def test_a_link_out_of_the_repository_is_no_part_of_a_revision(repo: Repository, pinned: Path) -> None:
    (repo.folder / "outside").symlink_to("../../outside")
    (repo.folder / "itself").symlink_to("itself")
    lock = repo.definition.with_name("images.lock")
    lock.symlink_to(pinned.with_name(lock.name))
    repo.commit("links")
    lock.unlink()
    assert "1 stack: 1 unchanged" in repo.against("HEAD", "--stack", "dev-lab").out


@pytest.mark.skipif(
    sys.platform == "darwin",
    reason="NOT RUN: FILE SYSTEMS HERE TAKE UTF-8 ALONE, so that no preview was made of a path with other names.",
)
def test_a_path_that_is_no_utf_8_is_like_any_other(call: Call, definition: Path, tmp_path: Path, page: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    folder.mkdir()
    shutil.copy(definition, folder / "two.yaml")
    git(folder, "init", "--quiet", "--initial-branch=main")
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message=first")
    ended = call("preview", folder / "two.yaml", "--base", "HEAD", "--summary", page, code=0)
    assert "with this program" in ended.err
    assert "2 stacks: 2 unchanged" in ended.out
    assert "<code>" in page.read_text("utf-8")


# ---- nothing to compare with, or nothing to preview ----


def test_against_an_invalid_or_missing_base_everything_is_new_with_the_reason(repo: Repository) -> None:
    shutil.copy(repo.definition, repo.folder / "definitions/new.yaml")
    ended = repo.against("HEAD", definition=repo.folder / "definitions/new.yaml")
    assert "HEAD does not contain definitions/new.yaml" in ended.err
    assert "2 stacks: 2 new · objects: " in ended.out
    repo.edit("kind: nfs", "kind: nsf")
    repo.commit("wrong")
    repo.edit("kind: nsf", "kind: nfs")
    assert "nsf" in repo.against("HEAD").err
    assert repo.text_of_page().startswith("**✏️ 2 stacks: 2 new · objects: ")
    assert "Everything counts as new: HEAD cannot be rendered" in repo.text_of_page()


def test_code_that_fails_is_a_failure_and_no_news(repo: Repository) -> None:
    (repo.folder / "cli").mkdir()
    (repo.folder / "cli/__main__.py").write_text("raise SystemExit(7)")
    repo.commit("broken")
    assert "it ended with exit code 7" in repo.against("HEAD", code=1).err
    assert repo.text_of_page().startswith("**⛔ There is no preview**\n")


@pytest.mark.parametrize("stop", [KeyboardInterrupt, OSError("no space"), ZeroDivisionError])
def test_an_interrupted_preview_leaves_a_page_that_reports_it(
    call: Call, definition: Path, page: Path, monkeypatch: Patch, stop: Exception
) -> None:
    def compared(*_: object) -> None:
        raise stop

    monkeypatch.setattr("rollout.preview.with_revision", compared)
    page.parent.mkdir()
    page.write_text("of yesterday", "utf-8")
    with suppress(ZeroDivisionError):
        assert call("preview", definition, "--base=main", "--summary", page).code != 0
    text = page.read_text("utf-8")
    assert text.startswith("**⛔ There is no preview**\n")
    assert "The preview started, but did not finish." in text


def test_an_invalid_definition_has_its_usual_exit_code_and_reviewers_see_the_reason(repo: Repository) -> None:
    repo.edit("kind: nfs", "kind: <b>@you</b>")
    repo.against("HEAD", code=2)
    text = repo.text_of_page()
    assert text.startswith("**⛔ There is no preview**\n")
    assert text.endswith("\n**⛔ This preview failed: nothing was compared.**\n")
    assert "two.yaml&#58;" in text
    assert "<b>" not in text


@pytest.mark.parametrize("revision", ["nope", "--upload-pack=touch x", "HEAD:stacks"])
def test_an_unknown_revision_is_one_message_and_no_old_page_stays(repo: Repository, revision: str) -> None:
    repo.page.parent.mkdir()
    repo.page.write_text("of yesterday", "utf-8")
    assert f"git knows no revision {revision} here" in repo.against(revision, code=2).err
    assert "git knows no revision" in repo.text_of_page()


def test_outside_of_a_git_repository_the_preview_reports_that(
    call: Call, definition: Path, page: Path, monkeypatch: Patch
) -> None:
    assert "is not in a git repository" in call("preview", definition, "--base", "main", "--summary", page, code=1).err
    monkeypatch.setenv("PATH", "")
    assert "install git" in call("preview", definition, "--base", "main", "--summary", page).err


@pytest.mark.parametrize("where", [(), ("--base", "main", "--cluster", "kind-lab")])
def test_it_is_compared_with_a_revision_or_with_a_cluster(
    where: tuple[str, ...], call: Call, definition: Path, page: Path
) -> None:
    ended = call("preview", definition, *where, "--summary", page, code=2)
    assert ended.err.startswith("Add a git revision (--base main) or a cluster")


# ---- guardrails ----

PRODUCTION = ("  - name: prod\n", "  - name: prod\n    production: true\n")
"""Makes images without a digest, which the small definition has, a broken rule."""


def test_a_mandatory_rule_that_breaks_fails_the_preview_after_it_was_written(repo: Repository) -> None:
    repo.edit(*PRODUCTION)
    assert "images-are-pinned-by-digest" in repo.against("main", code=1).err
    text = repo.text_of_page()
    assert text.startswith("**⛔ ")
    assert " mandatory guardrail findings · 2 stacks: 1 changed, 1 unchanged" in text.splitlines()[0]
    assert text.splitlines()[-1] == "**⛔ This preview failed: 4 mandatory guardrail findings.**"
    assert "- **NEW mandatory** <code>prod-east</code> <code>Deployment/inference-proxy</code>" in text


# ---- against a cluster ----


def test_objects_that_the_cluster_refuses_are_in_the_pages_verdict(
    call: Call, definition: Path, page: Path, monkeypatch: Patch
) -> None:
    live = Live(before=[], after=[], refused=("the quota is used up", "no kind ScaledObject"))
    monkeypatch.setattr("rollout.live.live_objects", lambda *_: {"dev-lab": live})
    monkeypatch.setattr("rollout.orphans.Kubectl.find", lambda *_: [])
    call("preview", definition, "--cluster", "kind-lab", "--summary", page, code=0)
    text = page.read_text("utf-8")
    assert text.startswith("**⚠️ the cluster REFUSES 2 objects · 1 stack: ")
    assert "dev-lab: the cluster would refuse this: the quota is used up\n" in text
