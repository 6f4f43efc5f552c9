"""`python -m charts`: values of a stack, a check of values, and the folder of the chart."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from charts import CHART, values_of
from charts import check as charts_check
from charts.__main__ import app, main
from charts.check import helm
from charts.folder import contents, default_values, require_chart, stale, write
from charts.packaging import ROOT
from lab import tools
from stacks.command import CommandError
from stacks.resolve import resolve
from stacks.validate import read_definition

from .broken_values import BASE, POOL, REFUSED, Values, edited

REFERENCE = ROOT / "stacks" / "inference.yaml"
PROBES = "every-container-has-probes"
WAIVER = {"name": "w", "rule": PROBES, "object": "Pod/x", "owner": "me", "reason": "so", "until": "2099-01-31"}


def charts(*arguments: str | Path) -> Result:
    """Run the command; it must end by itself, without a traceback."""
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


@pytest.fixture(scope="module")
def wanted() -> dict[str, str]:
    """What the chart's files must say."""
    return contents()


@pytest.fixture
def values_file(tmp_path: Path) -> Path:
    """The values of dev-lab."""
    file = tmp_path / "dev-lab.yaml"
    file.write_text(charts("values", REFERENCE, "--stack", "dev-lab").stdout, "utf-8")
    return file


def edit(file: Path, old: str, new: str) -> int:
    """Replace a text that stands once in a file; return its line."""
    text = file.read_text("utf-8")
    assert text.count(old) == 1, text.count(old)
    file.write_text(text.replace(old, new), "utf-8")
    return text[: text.index(old)].count("\n") + 1


def test_the_values_of_a_stack_are_those_that_it_resolves_to_under_a_heading() -> None:
    result = charts("values", REFERENCE, "--stack", "prod-east")
    assert result.exit_code == 0
    definition = read_definition(REFERENCE)
    (stack,) = (stack for stack in definition.stacks if stack.name == "prod-east")
    assert yaml.safe_load(result.stdout) == values_of(resolve(stack, definition.lock))
    heading = result.stdout.partition("\n\n")[0]
    assert all(line.startswith("# ") for line in heading.splitlines())
    assert "stack prod-east of" in heading
    assert "charts/tidegate --namespace inference-prod \\\n#   --create-namespace --take-ownership" in heading
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("values", REFERENCE), "Say which stack, as in STACK=dev-lab. There are: dev-lab, prod-east, prod-west.\n"),
        (("values", REFERENCE, "--stack", ""), "Say which stack, as in STACK=dev-lab."),
        (("values", REFERENCE, "--stack", "prod-eats"), "did you mean prod-east? There are: dev-lab, prod-east, "),
        (("check", "/nowhere.yaml"), "there is no such file"),
        (("check", ""), "Say which file, as in VALUES=prod-east.yaml.\n"),
    ],
)
def test_what_is_missing_in_a_command_is_said_in_a_line(arguments: tuple[str | Path, ...], said: str) -> None:
    result = charts(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr


def test_a_definition_that_is_wrong_gives_no_values(tmp_path: Path) -> None:
    (tmp_path / "wrong.yaml").write_text("images: [\n")
    result = charts("values", tmp_path / "wrong.yaml", "--stack", "a")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "wrong.yaml:1:9" in result.stderr


def test_values_of_a_stack_pass_the_check(values_file: Path) -> None:
    result = charts("check", values_file)
    assert result.exit_code == 0, result.stderr
    assert re.match(rf"{re.escape(str(values_file))}: ok – \d+ objects", result.stdout)


def test_a_wrong_value_is_named_with_its_line(values_file: Path) -> None:
    line = edit(values_file, "mode: preload", "mode: preloud")
    result = charts("check", values_file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert f"{values_file}:{line}:" in result.stderr
    assert "loading.mode" in result.stderr
    assert "'preload', 'on-demand'" in result.stderr
    assert result.stderr.endswith("nothing was installed.\n")


def test_an_edit_that_breaks_a_guardrail_is_refused(values_file: Path) -> None:
    edit(values_file, '"kind": "shared"', '"kind": "production"')
    result = charts("check", values_file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "mandatory" in result.stderr
    assert "docs/guardrails.md" in result.stderr


def test_a_file_without_the_annotation_is_held_to_what_production_is_held_to(values_file: Path) -> None:
    values = yaml.safe_load(values_file.read_text("utf-8"))
    assert default_values()["namespace"]["annotations"] == {}  # the chart's own values let nobody off
    del values["namespace"]["annotations"]
    values_file.write_text(yaml.safe_dump(values), "utf-8")
    result = charts("check", values_file)
    assert (result.exit_code, result.stdout) == (1, "")
    assert "\nheld to: production; severities changed: none; waivers: none; GPU slices: any number\n" in result.stderr


def test_the_charts_own_values_and_small_files_over_them_are_a_trial(tmp_path: Path) -> None:
    """Nothing but a node that builds them has images of localhost; what is said of it in the file counts before."""
    trial = "held to: local; severities changed: none; waivers: none; GPU slices: any number\n    namespace.annotations"
    own = charts("check", CHART / "values.yaml")
    assert own.exit_code == 0, own.stderr
    assert trial in own.stdout
    small = tmp_path / "small.yaml"
    small.write_text("name: demo\nproxy: {replicas: 3, bodyLimit: 1Gi}\nnamespace: {name: demo}\n")
    assert trial in charts("check", small).stdout
    for kind in ("production", "shared"):
        said = json.dumps({"kind": kind})
        small.write_text(yaml.safe_dump({"namespace": {"annotations": {"tidegate.dev/guardrails": said}}}))
        result = charts("check", small)
        assert result.exit_code == 2
        assert "is a hostPath, and environment" in result.stderr
    small.write_text("proxy: {image: registry.example.com/proxy:1}\n")
    assert charts("check", small).exit_code == 2, "it is held to what production is held to"


def test_a_global_key_that_the_chart_does_not_read_is_said(tmp_path: Path) -> None:
    file = tmp_path / "global.yaml"
    file.write_text("global:\n  lokup: false\n  imageRegistry: mirror.example.com\n")
    result = charts("check", file)
    assert result.exit_code == 0, result.stderr
    assert f"{file}:2:3: global.lokup: advisory: this chart reads no such key" in result.stdout
    assert 'did you mean "lookup"? It reads: lookup.' in result.stdout
    assert f"{file}:3:3: global.imageRegistry: advisory" in result.stdout
    file.write_text("global: {lookup: false}\n")
    assert "global" not in charts("check", file).stdout.replace(str(file), "")


def test_a_first_check_says_that_helm_is_built(values_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "built" not in charts("check", values_file).stderr
    monkeypatch.setattr(tools, "missing", lambda *names: names)
    assert (
        "Helm renders the chart, and none that fits is on the PATH: it is built first"
        in charts("check", values_file).stderr
    )


def test_the_check_says_what_it_held_the_file_to(values_file: Path) -> None:
    held = "held to: shared; severities changed: none; waivers: none; GPU slices: 3; written from outside: models"
    assert charts("check", values_file).stdout.splitlines()[-1] == held
    edit(values_file, '"gpuSlices": 3', f'"severities": {{"{PROBES}": "mandatory"}}, "waivers": [{json.dumps(WAIVER)}]')
    assert charts("check", values_file).stdout.splitlines()[-1] == (
        f"held to: shared; severities changed: {PROBES} mandatory; waivers: w ({PROBES} at Pod/x, until 2099-01-31); "
        "GPU slices: any number; written from outside: models"
    )


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('"kind": "production", "kind": "shared"', "'kind' stands there twice"),
        ('"kind": "shared", "severities": {"no-such-rule": "advisory"}', "'no-such-rule' is no rule"),
        ('"kind": "home"', "kind or severities have a value that there is not"),
    ],
)
def test_an_annotation_that_says_nothing_clear_is_a_finding(values_file: Path, new: str, said: str) -> None:
    edit(values_file, '"kind": "shared"', new)
    result = charts("check", values_file)
    assert result.exit_code == 1
    assert f"its guardrails cannot be read: {said}" in result.stderr
    assert "\nheld to: production (its guardrails cannot be read);" in result.stderr


def test_a_pipe_is_read_once_and_judged_like_a_file(values_file: Path, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    edit(values_file, '"kind": "shared"', '"kind": "production"')
    writer = threading.Thread(target=lambda: pipe.write_bytes(values_file.read_bytes()), daemon=True)
    writer.start()
    of_pipe, of_file = charts("check", pipe), charts("check", values_file)
    writer.join(10)
    assert of_pipe.exit_code == of_file.exit_code == 1
    assert of_pipe.stderr.replace(str(pipe), str(values_file)) == of_file.stderr


@pytest.mark.parametrize("name", ["a,b.yaml", "--set=x.yaml", "a b.yaml", "-"])
def test_a_file_may_have_any_name(
    values_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    values_file.rename(tmp_path / name)
    monkeypatch.chdir(tmp_path)
    result = charts("check", "--", name)
    assert result.exit_code == 0, result.stderr
    assert result.stdout.startswith(f"{name}: ok – ")


def test_helms_copy_is_private_and_gone_afterwards(
    values_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []

    def looking(arguments: list[str | Path], folder: Path) -> subprocess.CompletedProcess[str]:
        copy = folder / arguments[-1]
        seen.append((folder.stat().st_mode & 0o777, copy.stat().st_mode & 0o777))
        assert copy.read_bytes() == values_file.read_bytes()
        return helm(arguments, folder)

    folder = tmp_path / "temporary, with a comma"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(charts_check, "helm", looking)
    assert charts("check", values_file).exit_code == 0
    assert seen == [(0o700, 0o600)]
    assert list(folder.iterdir()) == []


MODELS = '" stands twice in models'
TWICE: dict[str, tuple[Values, str]] = {
    "models of a pool": ({f"{POOL}.models": [{"name": "ocr"}, {"name": "ocr"}]}, MODELS),
    "models of two pools": ({f"{POOL}.models": [{"name": "ocr"}, {"name": "churn"}]}, MODELS),
    "servers": ({"servers": BASE["servers"] * 2}, '" stands twice in servers'),
    "pools": ({"servers[bucket].pools": BASE["servers"][1]["pools"] * 2}, '" stands twice in pools'),
    "datasets": ({"datasets": BASE["datasets"] * 2}, '"models" stands twice in datasets'),
    "pools of two servers": (
        REFUSED["no_two_pools_become_one_object"]["change"],
        'pool "cold-x" of server "main" and pool "x" of server "main-cold" would share the Kubernetes name main-cold-x',
    ),
}


@pytest.mark.parametrize("what", TWICE)
def test_two_of_one_name_are_refused_by_the_check_and_objects_also_by_helm(what: str, tmp_path: Path) -> None:
    edits, said = TWICE[what]
    values = edited(edits)
    file = tmp_path / "twice.yaml"
    file.write_text(yaml.safe_dump(values), "utf-8")
    result = charts("check", file)
    assert (result.exit_code, result.stdout) == (2, "")
    assert said in result.stderr
    assert len(re.findall(rf"{re.escape(str(file))}:\d+:\d+", result.stderr)) >= 2  # both places
    if said == MODELS:
        assert "A model is served by one pool of one server, or each version by one." in result.stderr
        return
    done = helm(["template", "tidegate", CHART, "--values", file])
    assert done.returncode != 0
    assert "twice: two servers, pools, datasets or models have names that give it the same name" in done.stderr


def test_generating_writes_what_is_missing_and_takes_away_what_is_too_much(
    tmp_path: Path, wanted: dict[str, str]
) -> None:
    chart = tmp_path / "tidegate"
    shutil.copytree(CHART, chart)
    (chart / "values.yaml").write_text("edited: by hand\n")
    (chart / "README.md").unlink()
    (chart / "templates" / "old").mkdir()
    (chart / "templates" / "old" / "gone.yaml").write_bytes(b"\xff")
    changed = ["README.md", "templates/old/gone.yaml", "values.yaml"]
    assert stale(wanted, chart) == changed
    assert write(wanted, chart) == changed
    assert stale(wanted, chart) == write(wanted, chart) == []
    assert not (chart / "templates" / "old").exists()


def test_a_folder_of_somebody_elses_is_not_taken_for_the_charts(tmp_path: Path) -> None:
    """What is not generated would be removed from it."""
    require_chart(tmp_path / "not-there")
    require_chart(tmp_path)
    require_chart(CHART)
    (tmp_path / "Chart.yaml").write_text("name: mine\n")
    with pytest.raises(CommandError, match="is not empty, and holds no chart of Tidegate"):
        require_chart(tmp_path)


def test_the_folder_is_the_same_in_another_process_whatever_the_order_of_hashes() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "charts", "generate", "--check"],
        cwd=ROOT,
        env=os.environ | {"PYTHONHASHSEED": "7", "PYTHONPATH": f"{ROOT}:{ROOT / 'contracts'}", "LC_ALL": "C"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_terminal_that_cannot_show_a_character_shows_another_instead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stderr", shown)
    monkeypatch.setattr(sys, "argv", ["charts", "check", str(tmp_path / "modèle.yaml")])
    with pytest.raises(SystemExit) as ended:
        main()
    shown.seek(0)
    assert ended.value.code == 2
    assert "mod?le.yaml: there is no such file" in shown.read()


def test_packaging_says_where_the_file_is_and_what_it_hashes_to(tmp_path: Path) -> None:
    first, second = charts("package", "--out", tmp_path / "a"), charts("package", "--out", tmp_path / "b")
    assert first.exit_code == second.exit_code == 0
    assert re.search(r"tidegate-[0-9.]+\.tgz  sha256:[0-9a-f]{64}\n$", first.stdout)
    assert first.stdout.split()[-1] == second.stdout.split()[-1]


def test_nobodys_settings_have_a_say_in_what_a_chart_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plug-ins, repositories, credentials, a driver, a cluster: none of them reaches Helm, and all else does."""
    fake, told = tmp_path / "helm", tmp_path / "told"
    fake.write_text('#!/bin/sh\nenv -0 > "$TOLD"\n', "utf-8")
    fake.chmod(0o755)
    monkeypatch.setattr(tools, "path", lambda _: fake)
    monkeypatch.setenv("TOLD", str(told))
    monkeypatch.setenv("KUBECONFIG", "/somebody/config")
    for name in ("HELM_NAMESPACE", "HELM_DRIVER", "HELM_PLUGINS", "HELM_REGISTRY_CONFIG", "HELM_KUBECONTEXT"):
        monkeypatch.setenv(name, "somebody's")
    assert helm(["version"]).returncode == 0
    seen = dict(item.split("=", 1) for item in told.read_text("utf-8").split("\0") if item)
    assert {name: seen[name] for name in seen if name.startswith("HELM_") or name == "KUBECONFIG"} == {
        "KUBECONFIG": os.devnull,
        "HELM_PLUGINS": os.devnull,
        "HELM_REGISTRY_CONFIG": os.devnull,
    }
    assert seen["PATH"] == os.environ["PATH"]
