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
OWN = 'parameters { key: "EXECUTION_ENV_PATH" value { string_value: "/opt/env.tar.gz" } }\n'
PROGRAM = "import json\nimport numpy\nimport triton_python_backend_utils\nimport helper\nfrom sklearn import tree\n\n\n"
CLASS = "class TritonPythonModel:\n    pass\n"
HAS = ("numpy==1.26.4", "scikit-learn==1.5.0")
CALLED = "import zmq, faiss, llama_cpp, PIL.Image, pkg_resources, jwt, umap\n"
CALLED_HAS = ("pyzmq==26.0", "faiss-cpu", "llama-cpp-python", "pillow==11.0", "setuptools", "PyJWT", "umap_learn")
TRIED = "import torch.nn\ntry:\n    import cupy\nexcept ImportError:\n    pass\n"
NAMED = "which requirements.txt names and the server's image does not have"
SEEMS = "which the server's image does not seem to have"
BUILD, PARTS = ("numpy==1.26.4+nv25.8",), ("torch-geometric", "pillow")


def checked(folder: Path, program: str, requirements: str, has: Sequence[str], config: str = CONFIG) -> list[str]:
    entry = folder / "m"
    (entry / "1").mkdir(parents=True)
    (entry / "config.pbtxt").write_text(config)
    (entry / "1" / "model.py").write_text(program + CLASS)
    (entry / "1" / "helper.py").write_text("")
    if requirements:
        (entry / "1" / "requirements.txt").write_text(requirements)
    found = KINDS[TRITON].check(entry, packages=has)
    return [f"{'error' if each in errors(found) else 'warning'} {each.where}: {each.what}" for each in found]


@pytest.mark.parametrize(
    ("program", "requirements", "has", "expected"),
    [
        # What the image and the entry have, also by the name of a package that is called otherwise.
        (PROGRAM, "# of the notebook\nnumpy>=1.20\nScikit_Learn==1.5.0\n-r more.txt\n", HAS, []),
        (CALLED, "", CALLED_HAS, []),
        ("import torch, PIL\n", "", PARTS, []),
        # Only a pin is compared, and not what a build adds to a version.
        *(("", wanted, BUILD, []) for wanted in ("numpy==1.*", "numpy==1.26.4", "numpy>=2", "numpy~=3.0")),
        # A module whose letters stand within the name of another package is not there.
        *(
            (f"import {module}\n", "", (has,), [f"warning 1/model.py: it imports {module}, {SEEMS}"])
            for module, has in (
                ("torch", "torchvision==0.20.0"), ("PIL", "compiler-rt"), ("light", "lightgbm"), ("a", "pandas"),
                ("learn", "umap-learn"), ("torch", "pytorch-lightning"),
            )
        ),
        # What requirements call as the module is not taken for a part of a package that is there.
        (
            "import torch, PIL\n", "torch\npil\n", PARTS,
            [
                f"error 1/model.py: it imports torch, {NAMED}",
                *(f"warning 1/requirements.txt:{number}: it wants {name}, which the server's image does not have"
                  for number, name in ((1, "torch"), (2, "pil"))),
            ],
        ),
        # It is an error where requirements name it, and the import must succeed.
        (
            TRIED, "torch\ncupy-cuda12x\n", HAS,
            [
                f"error 1/model.py: it imports torch, {NAMED}", f"warning 1/model.py: it imports cupy, {SEEMS}",
                *(f"warning 1/requirements.txt:{number}: it wants {name}, which the server's image does not have"
                  for number, name in ((1, "torch"), (2, "cupy-cuda12x"))),
            ],
        ),
        (TRIED, "", HAS, [f"warning 1/model.py: it imports {each}, {SEEMS}" for each in ("cupy", "torch")]),
        # A requirement for other machines, or from an address, is nothing that a deployment fails by.
        (
            PROGRAM, 'pywin32; sys_platform == "win32"\nown @ https://example.com/own.whl\n', HAS,
            ["warning 1/requirements.txt:2: it wants own, which the server's image does not have"],
        ),
        (
            PROGRAM, "numpy==2.0.0\n\ntransformers[torch]>=4\n", HAS,
            [
                "warning 1/requirements.txt:1: it wants numpy 2.0.0, and the server's image has 1.26.4",
                "warning 1/requirements.txt:3: it wants transformers, which the server's image does not have",
            ],
        ),
    ],
)  # fmt: skip
def test_what_the_image_lacks_is_told_and_what_it_has_is_no_finding(
    tmp_path: Path, program: str, requirements: str, has: Sequence[str], expected: list[str]
) -> None:
    assert checked(tmp_path, program, requirements, has) == expected


def test_an_environment_of_its_own_is_not_compared_with_the_image(tmp_path: Path) -> None:
    assert not any("torch" in each for each in checked(tmp_path, "import torch\n", "", HAS, CONFIG + OWN))


@pytest.mark.parametrize("program", ["import (", "\0", "(" * 100_000])
def test_a_program_that_cannot_be_read_is_told_once(tmp_path: Path, program: str) -> None:
    assert len(checked(tmp_path, program, "", HAS)) <= 1
