"""`from tidegate import Tidegate`: its methods are the commands. One rule for names."""

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegate import Tidegate
from tidegate.calling.proxy import model_path
from tidegate.cli.app import app
from tidegate.errors import UsageError
from tidegate.publishing.repository import checked_model
from tidegate.registry.manifest import checked_name
from tidegate.triton.entries.configure import Options
from tidegate.triton.entries.write import new_entry

from tests.client.triton.entries.files import FILES

ROOT = Path(__file__).resolve().parents[2]
ELSEWHERE = {"rollback": "roll_back", "top": None, "export": None}
"""Commands whose method has another name, or that have none."""


def test_every_command_is_a_method_with_a_docstring() -> None:
    for command in app.registered_commands:
        assert command.callback is not None
        name = ELSEWHERE.get(command.callback.__name__, command.callback.__name__)
        assert name is None or inspect.getdoc(getattr(Tidegate, name))


def test_importing_it_waits_for_nothing_that_it_needs_later() -> None:
    heavy = {"mlflow", "grpc", "pydantic", "numpy", "rich", "typer", "urllib3"}
    program = f"import sys\nfrom tidegate import Tidegate\nTidegate()\nprint(sorted({heavy} & set(sys.modules)))"
    paths = os.pathsep.join([str(ROOT / "client"), str(ROOT / "contracts")])
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_a_missing_setting_is_the_error_that_the_command_prints(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIDEGATE_ENVIRONMENTS", raising=False)
    monkeypatch.delenv("DOMINO_INFERENCE_PROXY", raising=False)
    with Tidegate() as tidegate:
        for ask in (lambda: tidegate.deploy("fraud"), lambda: tidegate.status(), lambda: tidegate.predict("fraud", 1)):
            with pytest.raises(UsageError, match="TIDEGATE_ENVIRONMENTS"):
                ask()


@pytest.mark.parametrize("name", ["a" * 128, ".a", "-a", "a/b", "a b", "ä", "", "a\n"])
def test_an_invalid_name_is_refused_by_every_command(tmp_path: Path, name: str) -> None:
    entry: Callable[[str], object] = lambda name: new_entry(name, FILES / "double.py", tmp_path, Options())  # noqa: E731
    for take in (entry, checked_name, checked_model, lambda name: model_path(None, name)):
        with pytest.raises(UsageError, match="use 1 to 127"):
            take(name)


@pytest.mark.parametrize("name", ["a" * 127, "_a", "9", "a.b-c_d"])
def test_a_name_is_taken_everywhere(name: str) -> None:
    assert checked_name(name) == checked_model(name) == name
    assert name in model_path(None, name, None)
