"""What a program of the Python backend needs is compared with what the server's Python has; nothing of it is run."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from tidegate.findings import errors
from tidegate.kinds import KINDS, TRITON

CONFIG = """\
backend: "python"
input { name: "X" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] }
"""
PROGRAM = "import json\nimport numpy\nimport triton_python_backend_utils\nimport helper\nfrom sklearn import tree\n\n\n"
CLASS = "class TritonPythonModel:\n    pass\n"
HAS = ("numpy==1.26.4", "scikit-learn==1.5.0")


def checked(
    folder: Path, program: str = PROGRAM, requirements: str = "", config: str = CONFIG, has: Sequence[str] = HAS
) -> list[str]:
    entry = folder / "m"
    (entry / "1").mkdir(parents=True)
    (entry / "config.pbtxt").write_text(config)
    (entry / "1" / "model.py").write_text(program + CLASS)
    (entry / "1" / "helper.py").write_text("")
    if requirements:
        (entry / "1" / "requirements.txt").write_text(requirements)
    found = KINDS[TRITON].check(entry, packages=has)
    return [f"{'error' if each in errors(found) else 'warning'} {each.where}: {each.what}" for each in found]


def test_what_the_image_and_the_entry_have_is_no_finding(tmp_path: Path) -> None:
    assert checked(tmp_path, requirements="# of the notebook\nnumpy>=1.20\nScikit_Learn==1.5.0\n-r more.txt\n") == []


def test_a_module_of_a_package_that_is_called_otherwise_is_there(tmp_path: Path) -> None:
    program = "import zmq, faiss, llama_cpp, PIL.Image, pkg_resources, jwt, umap\n"
    has = ("pyzmq==26.0", "faiss-cpu", "llama-cpp-python", "pillow==11.0", "setuptools", "PyJWT", "umap_learn")
    assert checked(tmp_path, program, has=has) == []
    assert len(checked(tmp_path / "none", program, has=())) == 7


@pytest.mark.parametrize(
    ("module", "has"),
    [
        ("torch", "torchvision==0.20.0"),
        ("PIL", "compiler-rt"),
        ("light", "lightgbm"),
        ("a", "pandas"),
        ("learn", "umap-learn"),
        ("torch", "pytorch-lightning"),
    ],
)
def test_a_module_whose_letters_stand_within_the_name_of_another_package_is_not_there(
    tmp_path: Path, module: str, has: str
) -> None:
    seems = f"1/model.py: it imports {module}, which the server's image does not seem to have"
    assert checked(tmp_path, f"import {module}\n", has=[has]) == [f"warning {seems}"]


def test_what_requirements_call_as_the_module_is_not_taken_for_a_part_of_a_package_that_is_there(
    tmp_path: Path,
) -> None:
    program, has = "import torch, PIL\n", ["torch-geometric", "pillow"]
    named = "which requirements.txt names and the server's image does not have"
    assert checked(tmp_path, program, has=has) == []
    [found, *_] = checked(tmp_path / "named", program, "torch\npil\n", has=has)
    assert found == f"error 1/model.py: it imports torch, {named}"
    assert not any("PIL" in each for each in checked(tmp_path / "known", program, "torch\npil\n", has=has))


@pytest.mark.parametrize("wanted", ["numpy==1.*", "numpy==1.26.4", "numpy>=2", "numpy~=3.0"])
def test_only_a_pin_is_compared_and_not_what_a_build_adds_to_a_version(tmp_path: Path, wanted: str) -> None:
    assert checked(tmp_path, "", wanted, has=["numpy==1.26.4+nv25.8"]) == []


def test_an_import_that_the_image_lacks_is_an_error_where_requirements_name_it_and_it_must_succeed(
    tmp_path: Path,
) -> None:
    program = "import torch.nn\ntry:\n    import cupy\nexcept ImportError:\n    pass\n"
    named = "which requirements.txt names and the server's image does not have"
    seems = "which the server's image does not seem to have"
    assert checked(tmp_path, program, "torch\ncupy-cuda12x\n")[:2] == [
        f"error 1/model.py: it imports torch, {named}",
        f"warning 1/model.py: it imports cupy, {seems}",
    ]
    assert checked(tmp_path / "none", program) == [
        f"warning 1/model.py: it imports cupy, {seems}",
        f"warning 1/model.py: it imports torch, {seems}",
    ]


def test_a_requirement_for_other_machines_or_from_an_address_is_nothing_that_a_deploy_fails_by(tmp_path: Path) -> None:
    requirements = 'pywin32; sys_platform == "win32"\nown @ https://example.com/own.whl\n'
    assert checked(tmp_path, requirements=requirements) == [
        "warning 1/requirements.txt:2: it wants own, which the server's image does not have"
    ]


def test_requirements_that_the_image_lacks_are_told_with_their_lines(tmp_path: Path) -> None:
    assert checked(tmp_path, requirements="numpy==2.0.0\n\ntransformers[torch]>=4\n") == [
        "warning 1/requirements.txt:1: it wants numpy 2.0.0, and the server's image has 1.26.4",
        "warning 1/requirements.txt:3: it wants transformers, which the server's image does not have",
    ]


def test_an_environment_of_its_own_is_not_compared_with_the_image(tmp_path: Path) -> None:
    own = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/opt/env.tar.gz" } }\n'
    found = checked(tmp_path, "import torch\n", config=CONFIG + own)
    assert not any("torch" in each for each in found)


@pytest.mark.parametrize("program", ["import (", "\0", "(" * 100_000])
def test_a_program_that_cannot_be_read_is_told_once(tmp_path: Path, program: str) -> None:
    assert len(checked(tmp_path, program)) <= 1
