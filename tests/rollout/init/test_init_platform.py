import json
import re
import shutil
import subprocess
import sys
import venv
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from charts.project import DISTRIBUTION
from rollout.init import repository
from rollout.init.repository import DEFINITION, write_repository
from stacks.command import CommandError, ExitStatus
from stacks.validate import read_definition
from tests.docs.test_ci import GITHUB, GITLAB, surroundings
from tests.processes import git
from tests.rollout.conftest import Call, Tree, change

from .conftest import ROOT, Program, commit


def installed(platform: Path) -> str:
    venv.create(platform / ".venv", with_pip=True)
    python = platform / ".venv/bin/python"
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "-r", "requirements.txt"]
    subprocess.run(install, cwd=platform, env=surroundings(), check=True, timeout=900)
    return str(python)


def test_a_platform_is_checked_rendered_committed_and_previewed(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "a platform")
    revision = git(program.repository, "rev-parse", "HEAD")
    pin = f"\ngit+{program.repository.as_uri()}@{revision}#egg={DISTRIBUTION}\n"
    assert (platform / "requirements.txt").read_text("utf-8").endswith(pin)
    first = program.tidegate(platform, "check", "--json")
    assert json.loads(first.stdout)["exitCode"] == 0
    assert f"{DEFINITION}: ok – 2 stacks (dev-lab, prod-main)" in program.tidegate(platform, "check").stdout
    assert "53 files written" in program.tidegate(platform, "render").stdout
    done = program.tidegate(platform, "preview", "--base", "HEAD")
    assert "with this program" in done.stderr
    assert (platform / "build/preview.md").read_text("utf-8").startswith("**✅ ")
    assert git(platform, "status", "--short") == "", "what is made there is none of the repository's"


@pytest.mark.thorough
def test_every_command_without_a_cluster_works_with_the_installed_pin(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "platform")
    run = partial(program.tidegate, platform, python=installed(platform))
    environments = yaml.safe_load(run("environments").stdout)["environments"]
    assert [each["name"] for each in environments] == ["dev", "prod"]
    (platform / "values.yaml").write_text(run("values", "--stack", "prod-main").stdout, "utf-8")
    run("chart")
    written = {path.relative_to(platform / "charts") for path in (platform / "charts/tidegate").rglob("*")}
    assert written == {path.relative_to(ROOT / "charts") for path in (ROOT / "charts/tidegate").rglob("*")}
    assert "nothing changed" in run("chart").stdout
    assert json.loads(run("schema").stdout) == json.loads(
        (platform / "stacks/definition.schema.json").read_text("utf-8")
    )
    run("dashboards")
    change(platform / DEFINITION, "replicas: 2}", "replicas: 3}")
    assert "spec.replicas 2 → 3" in run("preview", "--base", "HEAD", "--stack", "prod-main").stdout
    run("render")
    objects = "\n---\n".join(path.read_text("utf-8") for path in (platform / "build/rendered/prod-main").iterdir())
    (platform / "objects.yaml").write_text(objects, "utf-8")
    assert "production" in run("guardrails", "objects.yaml").stdout
    text = (platform / DEFINITION).read_text("utf-8")
    (platform / DEFINITION).write_text(re.sub(r"repository: \S+/", "repository: 127.0.0.1:1/", text), "utf-8")
    assert "3 of 3 images could not be resolved" in run("pin", code=1).stderr
    (platform / DEFINITION).write_text(text, "utf-8")
    again = tmp_path / "another"
    run("init", again, "--gpu", "NVIDIA-L4")
    assert (again / "requirements.txt").read_text("utf-8") == (platform / "requirements.txt").read_text("utf-8")
    for command in ("model", "plan", "trace", "advise"):
        run(command, "--help")


@pytest.mark.thorough
def test_an_upgrade_is_one_line_and_a_preview_shows_its_changes(program: Program, tmp_path: Path) -> None:
    """The version that the base pins renders the base, not the running version."""
    platform = program.platform(tmp_path / "platform")
    before = git(program.repository, "rev-parse", "HEAD")
    git(program.repository, "checkout", "--quiet", "-b", "newer")
    change(program.repository / "components/pods.py", "topology.kubernetes.io/zone", "example.com/rack")
    newer = commit(program.repository, "spread over racks")
    change(platform / "requirements.txt", before, newer)
    done = program.tidegate(platform, "preview", "--base", "HEAD")
    git(program.repository, "checkout", "--quiet", "main")
    assert "with the version that it pins" in done.stderr
    assert "topology.kubernetes.io/zone → example.com/rack" in done.stdout


def test_a_pin_that_cannot_be_installed_is_one_message(program: Program, tmp_path: Path) -> None:
    platform = program.platform(tmp_path / "platform")
    change(platform / "requirements.txt", f"{program.repository.as_uri()}@", "file:///nowhere@")
    commit(platform, "where nothing is")
    change(platform / "requirements.txt", "file:///nowhere@", f"{program.repository.as_uri()}@")
    done = program.tidegate(platform, "preview", "--base", "HEAD", code=1).stderr
    assert "The Tidegate version that the revision pins cannot be installed:" in done
    assert "Traceback" not in done


def test_a_revision_that_others_cannot_install_is_reported(
    program: Program, tmp_path: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = program.tidegate(program.repository, "init", tmp_path / "alone").stderr
    assert "from a directory of this machine" in done
    assert f"git+{program.repository.as_uri()}@" in (tmp_path / "alone/requirements.txt").read_text("utf-8")
    git(tmp_path, "clone", "--quiet", str(program.repository), str(tmp_path / "clone"))
    (tmp_path / "clone/README.md").write_text("changed")
    monkeypatch.setattr(repository, "ROOT", tmp_path / "clone")
    done = call("init", tmp_path / "changed", code=0).err
    assert "this checkout has uncommitted changes" in done
    revision = commit(tmp_path / "clone", "mine")
    done = call("init", tmp_path / "mine", "--repository", "https://git.example.com/tidegate", code=0).err
    assert done.startswith(f"warning: revision {revision[:10]} is on no branch of `origin`.")
    assert done.count("\n") == 1
    shutil.rmtree(tmp_path / "clone/.git")
    done = call("init", tmp_path / "none", code=1).err
    assert "is not a git checkout, so it has no revision that a platform could pin" in done
    assert not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    ("origin", "pin"),
    [
        ({"url": "https://git.example.com/t.git", "vcs_info": {"vcs": "git", "commit_id": "a" * 40}},
         f" @ git+https://git.example.com/t.git@{'a' * 40}"),
        (None, "==0.2.0"),
    ],
)  # fmt: skip
def test_an_installed_package_pins_its_source(
    origin: dict[str, Any] | None, pin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    about = tmp_path / "tidegate_platform-0.2.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Name: {DISTRIBUTION}\nVersion: 0.2.0\n", "utf-8")
    if origin:
        (about / "direct_url.json").write_text(json.dumps(origin), "utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    write_repository(tmp_path / "platform", ExitStatus())
    assert (tmp_path / "platform/requirements.txt").read_text("utf-8").endswith(f"\n{DISTRIBUTION}{pin}\n")


def test_a_directory_with_files_is_refused_and_unchanged(call: Call, tmp_path: Path, tree: Tree) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there/notes.txt").write_text("mine")
    (tmp_path / "loop").symlink_to("loop")
    before = tree(tmp_path)
    ended = call("init", tmp_path / "there", code=2)
    assert ended.err.startswith(f"{tmp_path / 'there'} is not empty: it contains notes.txt.\nNothing was written.")
    assert "is not a directory" in call("init", tmp_path / "there/notes.txt", code=2).err
    assert "is not a directory" in call("init", tmp_path / "loop", code=2).err
    assert "is in this checkout of Tidegate" in call("init", ROOT / "build/platform", code=2).err
    assert call("init", "", code=2).err == "Name the directory to write to, such as ../platform.\n"
    assert tree(tmp_path) == before


def test_a_repository_that_was_just_made_is_written_into(call: Call, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=ours")
    call("init", tmp_path, code=0)
    assert git(tmp_path, "symbolic-ref", "--short", "HEAD") == "ours"


@pytest.mark.parametrize("gpu", [None, "NVIDIA-A100-SXM4-80GB", "NVIDIA-A30", "NVIDIA-L4", "NVIDIA-Some-80GB"])
def test_written_files_are_valid_without_edits(call: Call, tmp_path: Path, gpu: str | None) -> None:
    done = call("init", tmp_path / "platform", *(("--gpu", gpu) if gpu else ()), code=0)
    assert f"cd {tmp_path / 'platform'}\n  python3 -m venv .venv\n" in done.out
    checked = call("check", tmp_path / "platform" / DEFINITION, code=0)
    assert "ok – 2 stacks" in checked.out
    unknown = "GPU product NVIDIA-Some-80GB"
    assert (unknown in done.err, unknown in checked.text) == (gpu == "NVIDIA-Some-80GB",) * 2
    definition = read_definition(tmp_path / "platform" / DEFINITION)
    for stack in definition.stacks:
        (pool,) = stack.platform.servers[0].pools
        assert getattr(pool.placement, "product", None) == gpu
        config = yaml.safe_load((tmp_path / f"platform/stacks/Pulumi.{stack.name}.yaml").read_text("utf-8"))["config"]
        assert config == {
            "tidegate:environment": stack.environment.name, "tidegate:dataPlane": stack.data_plane.name,
        }  # fmt: skip


def test_an_unknown_gpu_is_refused(call: Call, tmp_path: Path) -> None:
    ended = call("init", tmp_path / "platform", "--gpu", "NVIDIA-A100-MIG-1g.5gb", code=2)
    assert ended.err.startswith("NVIDIA-A100-MIG-1g.5gb is not a GPU product.\nSet the node label")
    assert not (tmp_path / "platform").exists()


def test_it_has_the_workflow_and_the_pipeline_that_the_page_about_ci_extends(tmp_path: Path) -> None:
    write_repository(tmp_path, ExitStatus())
    found = yaml.load((tmp_path / ".github/workflows/tidegate.yaml").read_text("utf-8"), yaml.BaseLoader)
    assert found["jobs"] == {name: GITHUB["jobs"][name] for name in ("preview", "comment")}
    found = yaml.load((tmp_path / ".gitlab-ci.yml").read_text("utf-8"), yaml.BaseLoader)
    assert found["preview"] == GITLAB["preview"]


@pytest.mark.parametrize(
    ("address", "pin"),
    [
        ("https://someone:secret@git.example.com/t.git", f"{DISTRIBUTION} @ git+https://git.example.com/t.git@"),
        ("git@git.example.com:team/tidegate.git", "git+ssh://git@git.example.com/team/tidegate.git@"),
        ("x'; rm -rf '", None),
        ("https://git.example.com/a b", None),
        ("https://git.example.com/a;b", None),
    ],
)
def test_an_address_is_one_that_pip_reads_and_holds_no_token(tmp_path: Path, address: str, pin: str | None) -> None:
    with nullcontext() if pin else pytest.raises(CommandError, match="pip cannot install from the address"):
        write_repository(tmp_path / "it", ExitStatus(), repository=address)
    assert (tmp_path / "it").exists() == bool(pin)
    if pin:
        text = (tmp_path / "it/requirements.txt").read_text("utf-8")
        assert pin in text
        assert "secret" not in text


def test_the_pulumi_program_is_the_installed_one(tmp_path: Path) -> None:
    """Without an engine, the program fails at the missing configuration, so all its imports succeeded."""
    write_repository(tmp_path, ExitStatus())
    found = {**surroundings(), "PYTHONPATH": f"{ROOT}:{ROOT / 'contracts'}"}
    command = [sys.executable, "__main__.py"]
    done = subprocess.run(command, cwd=tmp_path, env=found, capture_output=True, text=True, check=False)
    assert "Missing required configuration variable" in done.stderr, done.stderr
