"""A platform of one's own: what `make init` writes, and that every command works from there."""

import json
import os
import pty
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rollout.init import repository
from rollout.init.repository import DEFINITION, InitRequest, write_repository
from stacks.command import CommandError, Outcome
from stacks.validate import read_definition
from tests.docs.test_ci import GITHUB, GITLAB, git, surroundings
from tests.rollout.conftest import Call, Tree, change

from .conftest import ROOT, Program, commit
from .test_init_blueprint import VALUES


def test_a_platform_is_checked_rendered_committed_and_previewed(program: Program, tmp_path: Path) -> None:
    """Its own make fetches the revision that it pins; nothing is known but its folder."""
    platform = program.platform(tmp_path / "a platform")
    first = program.make(platform, "check", "JSON=1")  # which fetches the program, and says so elsewhere
    assert json.loads(first.stdout)["exitCode"] == 0
    said = program.make(platform, "check")
    assert f"{DEFINITION}: ok – 2 stacks (dev-lab, prod-main)" in said.stdout
    assert "53 files written for 2 stacks" in program.make(platform, "up").stdout
    said = program.make(platform, "preview", "BASE=HEAD")
    assert "with the Tidegate that it pins" in said.stderr
    assert (platform / "build/preview.md").read_text("utf-8").startswith("**✅ ")
    revision = git(program.repository, "rev-parse", "HEAD")
    assert os.path.realpath(platform / ".tidegate") == os.path.realpath(program.cache / "program" / revision)
    assert git(platform, "status", "--short") == "", "what is made there is none of the repository's"
    assert git(program.cache / "program" / revision, "status", "--short") == "", "the pinned program is only read"


def test_another_program_for_one_command_leaves_the_link_on_the_pinned_one(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "platform")
    other = tmp_path / "other"
    git(program.repository, "worktree", "add", "--quiet", str(other))
    pinned = program.cache / "program" / git(program.repository, "rev-parse", "HEAD")
    told = "print('TIDEGATE_PROGRAM=' + __import__('os').environ['TIDEGATE_PROGRAM'])"
    for link, words in ((other, [f"TIDEGATE={other}"]), (pinned, []), (pinned, [f"TIDEGATE={other}"])):
        program.make(platform, ".run", *words)
        assert os.path.realpath(platform / ".tidegate") == os.path.realpath(link)
    (other / "__main__.py").write_text(told, "utf-8")
    done = subprocess.run([sys.executable, "__main__.py"], cwd=platform, env={"TIDEGATE_PROGRAM": str(other)},
                          capture_output=True, text=True, check=True)  # fmt: skip
    assert done.stdout == f"TIDEGATE_PROGRAM={other}\n"


def test_every_command_of_the_readme_is_one_of_the_platform(program: Program, tmp_path: Path) -> None:
    """With its settings, but for those about Tidegate itself; that they work there, other tests say."""
    page = (ROOT / "README.md").read_text("utf-8")
    lines = re.findall(r"^(make [^#>\n]+)|`(make [^`>]+(?:<[^`>]+>[^`>]*)*)(?: > [a-z.]+)?`", page, re.MULTILINE)
    said = {"".join(each).strip() for each in lines}
    assert len(said) > 25
    platform = program.platform(tmp_path / "platform")
    refused = set()
    for command in said:
        words = re.sub(r"<[^>]*>", "x", command).split()[1:]
        if re.match("test|bench|site", words[0]):
            refused.add(words[0])
        program.make(platform, "--dry-run", *words, code=2 if words[0] in refused else 0)
    assert {"test", "bench", "bench-iac"} <= refused


@pytest.mark.thorough
def test_every_other_command_without_a_cluster_works_from_there(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "platform")
    listed = re.findall(r"^  make (\S+)", program.make(platform, "help").stdout, re.MULTILINE)
    assert {"up", "check", "preview", "rollout", "chart", "demo"} <= {*listed}
    assert not {"test", "lock", "bench", "docs"} & {*listed}, "what is about Tidegate itself is none of the platform's"
    assert "make test is about Tidegate itself" in program.make(platform, "test", code=2).stderr
    assert [each["name"] for each in yaml.safe_load(program.make(platform, "environments").stdout)["environments"]] == [
        "dev", "prod",
    ]  # fmt: skip
    (platform / "values.yaml").write_text(program.make(platform, "values", "STACK=prod-main").stdout, "utf-8")
    program.make(platform, "chart")
    written = {path.relative_to(platform / "charts") for path in (platform / "charts/tidegate").rglob("*")}
    assert written == {path.relative_to(ROOT / "charts") for path in (ROOT / "charts/tidegate").rglob("*")}
    assert "nothing changed" in program.make(platform, "chart").stdout
    assert list((platform / "build").rglob("*.tgz")) == []
    program.make(platform, "package")
    assert len(list((platform / "build/charts").glob("tidegate-*.tgz"))) == 1
    change(platform / DEFINITION, "replicas: 2}", "replicas: 3}")
    assert "spec.replicas 2 → 3" in program.make(platform, "preview", "BASE=HEAD", "STACK=prod-main").stdout
    program.make(platform, "up")
    objects = "\n---\n".join(path.read_text("utf-8") for path in (platform / "build/rendered/prod-main").iterdir())
    (platform / "objects.yaml").write_text(objects, "utf-8")
    assert "production" in program.make(platform, "guardrails", "MANIFESTS=objects.yaml").stdout
    assert "Nothing would change" in program.make(platform, "preview").stdout
    text = (platform / DEFINITION).read_text("utf-8")
    (platform / DEFINITION).write_text(re.sub(r"repository: \S+/", "repository: 127.0.0.1:1/", text), "utf-8")
    assert "3 of 3 images could not be resolved" in program.make(platform, "pin", code=2).stderr
    (platform / DEFINITION).write_text(text, "utf-8")
    again, values = tmp_path / "another", tmp_path / "old values.yaml"
    values.write_text(VALUES, "utf-8")
    assert "env.name" in program.make(platform, "init", f"DIR={again}", "GPU=NVIDIA-L4", f"IMPORT={values}").stdout
    assert (again / "Makefile").read_text("utf-8") == (platform / "Makefile").read_text("utf-8")
    assert (platform / ".venv/bin/python").exists()
    program.make(platform, "clean")
    assert {path.name for path in platform.iterdir()} >= {"stacks", "charts", "Makefile"}
    assert not (platform / ".venv").is_symlink()


@pytest.mark.thorough
def test_an_upgrade_is_one_line_and_a_preview_says_what_it_changes(program: Program, tmp_path: Path) -> None:
    """The base is rendered by the program that the base pins, not by the one that runs."""
    platform = program.platform(tmp_path / "platform")
    git(program.repository, "checkout", "--quiet", "-b", "newer")
    change(program.repository / "components/pods.py", "topology.kubernetes.io/zone", "example.com/rack")
    newer = commit(program.repository, "spread over racks")
    git(program.repository, "checkout", "--quiet", "main")
    before = git(program.repository, "rev-parse", "main")
    change(platform / "Makefile", f":= {program.repository}\n", ":= /nowhere\n")
    commit(platform, "which this machine does not reach")
    shutil.rmtree(program.cache / "program" / before)
    change(platform / "Makefile", before, newer)
    said = program.make(platform, "preview", "BASE=HEAD", f"TIDEGATE_REPOSITORY={program.repository}")
    assert "topology.kubernetes.io/zone → example.com/rack" in said.stdout
    change(platform / "Makefile", newer, before)
    # Another checkout in the place of the pinned one, for one run: the base is rendered as it pins all the same.
    git(program.repository, "checkout", "--quiet", "newer")
    said = program.make(platform, "preview", "BASE=HEAD", f"TIDEGATE={program.repository}")
    git(program.repository, "checkout", "--quiet", "main")
    assert "topology.kubernetes.io/zone → example.com/rack" in said.stdout


def test_a_revision_that_cannot_be_had_is_one_message(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "platform")
    change(platform / "Makefile", git(program.repository, "rev-parse", "HEAD"), "0" * 40)
    said = program.make(platform, "check", code=2).stderr
    assert f"Tidegate {'0' * 40} cannot be had from {program.repository}: is it there, and may you read it?" in said
    assert not [path for path in (program.cache / "program").iterdir() if path.name.startswith("0000")]
    said = program.make(platform, "check", f"TIDEGATE={tmp_path}", code=2).stderr
    assert "No rule to make target" in said


def test_what_others_could_not_fetch_is_said(
    program: Program, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = program.make(program.repository, "init", f"DIR={tmp_path / 'alone'}").stderr
    assert "this checkout has no remote `origin`" in said
    assert f"TIDEGATE_REPOSITORY := {program.repository}\n" in (tmp_path / "alone/Makefile").read_text("utf-8")
    git(tmp_path, "clone", "--quiet", str(program.repository), str(tmp_path / "clone"))
    (tmp_path / "clone/README.md").write_text("changed")
    monkeypatch.setattr(repository, "ROOT", tmp_path / "clone")
    said = call("init", tmp_path / "changed", code=0).err
    assert "this checkout has changes that are not committed" in said
    revision = commit(tmp_path / "clone", "mine")
    said = call("init", tmp_path / "mine", "--repository", "https://git.example.com/tidegate", code=0).err
    assert (
        said
        == f"{revision[:10]} is on no branch of `origin`: push it, or nobody else can fetch what the platform pins.\n"
    )
    shutil.rmtree(tmp_path / "clone/.git")
    said = call("init", tmp_path / "none", code=1).err
    assert "is no git checkout, so there is no revision that a platform could pin" in said
    assert not (tmp_path / "none").exists()


def test_a_folder_with_something_in_it_is_refused_and_left_as_it_is(call: Call, tmp_path: Path, tree: Tree) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/notes.txt").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    before = tree(tmp_path)
    ended = call("init", tmp_path / "there", code=2)
    assert ended.err.startswith(f"{tmp_path / 'there'} is not empty: it holds notes.txt.\nNothing was written.")
    assert "is no folder" in call("init", tmp_path / "there/notes.txt", code=2).err
    assert "is no folder" in call("init", tmp_path / "loop", code=2).err
    assert "lies in this checkout of Tidegate" in call("init", ROOT / "build/platform", code=2).err
    assert call("init", "", code=2).err == "Say where the platform is to be written, as in DIR=../platform.\n"
    assert tree(tmp_path) == before


def test_a_repository_that_was_just_made_is_written_into(call: Call, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=ours")
    call("init", tmp_path, code=0)
    assert git(tmp_path, "symbolic-ref", "--short", "HEAD") == "ours"


@pytest.mark.parametrize("gpu", [None, "NVIDIA-A100-SXM4-80GB", "NVIDIA-A30", "NVIDIA-L4", "NVIDIA-Some-80GB"])
def test_what_is_written_holds_as_it_stands(call: Call, tmp_path: Path, gpu: str | None) -> None:
    said = call("init", tmp_path / "platform", *(("--gpu", gpu) if gpu else ()), code=0)
    assert f"cd {tmp_path / 'platform'}\n  make check && make up" in said.out
    checked = call("check", tmp_path / "platform" / DEFINITION, code=0)
    assert "ok – 2 stacks" in checked.out
    unknown = "Tidegate knows no GPU product NVIDIA-Some-80GB"
    assert (unknown in said.err, unknown in checked.text) == (gpu == "NVIDIA-Some-80GB",) * 2
    definition = read_definition(tmp_path / "platform" / DEFINITION)
    for stack in definition.stacks:
        (pool,) = stack.platform.servers[0].pools
        assert getattr(pool.placement, "product", None) == gpu
        config = yaml.safe_load((tmp_path / f"platform/stacks/Pulumi.{stack.name}.yaml").read_text("utf-8"))["config"]
        assert config == {
            "tidegate:environment": stack.environment.name, "tidegate:dataPlane": stack.data_plane.name,
        }  # fmt: skip


def test_a_gpu_that_is_none_is_refused(call: Call, tmp_path: Path) -> None:
    ended = call("init", tmp_path / "platform", "--gpu", "NVIDIA-A100-MIG-1g.5gb", code=2)
    assert ended.err.startswith(
        "GPU=NVIDIA-A100-MIG-1g.5gb is no GPU product.\nSay the node label nvidia.com/gpu.product"
    )
    assert not (tmp_path / "platform").exists()


@pytest.mark.parametrize(
    ("answer", "placement"), [("NVIDIA-L4", "gpu"), pytest.param("", "cpu", marks=pytest.mark.thorough)]
)
def test_on_a_terminal_the_gpu_is_asked_for(tmp_path: Path, answer: str, placement: str) -> None:
    ours, theirs = pty.openpty()
    command = ["make", "init", f"DIR={tmp_path / 'platform'}"]
    process = subprocess.Popen(command, cwd=ROOT, env=surroundings(), stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, f"{answer}\n".encode())
    said = b""
    try:
        while part := os.read(ours, 4096):
            said += part
    except OSError:  # the other end is closed
        pass
    os.close(ours)
    assert process.wait(timeout=60) == 0, said.decode()
    assert "GPU product of the nodes" in said.decode()
    assert f"placement: {{kind: {placement}" in (tmp_path / "platform" / DEFINITION).read_text("utf-8")


def test_its_workflow_is_the_preview_of_the_page_about_ci(tmp_path: Path) -> None:
    write_repository(InitRequest(tmp_path), Outcome())
    text = (tmp_path / ".github/workflows/tidegate.yaml").read_text("utf-8")
    found = yaml.load(text, yaml.BaseLoader)
    assert found["jobs"].keys() == {"preview", "comment"}
    assert found["permissions"] == GITHUB["permissions"]
    for name, job in found["jobs"].items():
        assert yaml.dump(job) == yaml.dump(GITHUB["jobs"][name]).replace("requirements/*.txt", "Makefile")


def test_its_pipeline_is_the_preview_of_the_page_about_ci(tmp_path: Path) -> None:
    write_repository(InitRequest(tmp_path), Outcome())
    found = yaml.load((tmp_path / ".gitlab-ci.yml").read_text("utf-8"), yaml.BaseLoader)
    assert found.pop("stages") == ["preview"]
    cached = {**GITLAB["default"]["cache"], "key": {"files": ["Makefile"]}}
    assert found == {
        "default": {**GITLAB["default"], "cache": cached},
        "variables": GITLAB["variables"],
        "preview": GITLAB["preview"],
    }


def test_a_cache_folder_that_make_cannot_read_is_refused(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "platform")
    said = program.make(platform, "check", code=2, TIDEGATE_CACHE=f"{tmp_path}/two words").stderr
    assert f"say another than TIDEGATE_CACHE={tmp_path}/two words" in said
    assert not (tmp_path / "two").exists()
    assert not (tmp_path / "two words").exists()


def test_no_token_of_an_address_is_written_down(tmp_path: Path) -> None:
    address = "https://someone:secret@git.example.com/tidegate.git"
    write_repository(InitRequest(tmp_path, repository=address), Outcome())
    makefile = (tmp_path / "Makefile").read_text("utf-8")
    assert "TIDEGATE_REPOSITORY := https://git.example.com/tidegate.git\n" in makefile
    assert "secret" not in makefile


def test_an_address_that_would_be_more_than_text_to_make_or_a_shell_is_refused(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match="cannot stand in a Makefile"):
        write_repository(InitRequest(tmp_path / "it", repository="x'; rm -rf '"), Outcome())
    assert not (tmp_path / "it").exists()


def test_the_pulumi_program_is_the_pinned_one(tmp_path: Path) -> None:
    """Without an engine there is no configuration, for which it asks: so all that it imports was found."""
    write_repository(InitRequest(tmp_path), Outcome())
    command = [sys.executable, "__main__.py"]
    alone = subprocess.run(command, cwd=tmp_path, env=surroundings(), capture_output=True, text=True, check=False)
    assert "Run `make up` once" in alone.stderr
    (tmp_path / ".tidegate").symlink_to(ROOT)
    done = subprocess.run(command, cwd=tmp_path, env=surroundings(), capture_output=True, text=True, check=False)
    assert "Missing required configuration variable" in done.stderr, done.stderr
