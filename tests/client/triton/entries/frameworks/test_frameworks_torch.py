"""PyTorch's files, as torch wrote them."""

import zipfile
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.frameworks.torch import read_module, read_package, read_script

from tests.client.triton.entries.files import FILES


@pytest.mark.parametrize("name", ["script.pt", "traced.pt"])
def test_torchscript_tells_what_its_outermost_forward_takes_and_returns(name: str) -> None:
    reading = read_script(FILES / name)
    assert "forward takes image, mask, and returns Tuple[Tensor, Tensor]" in reading.missing
    assert reading.config.platform == "pytorch_libtorch"
    assert reading.files == (("model.pt", FILES / name),)


def test_torchscript_whose_text_is_gone_only_lacks_the_names(tmp_path: Path) -> None:
    with zipfile.ZipFile(FILES / "script.pt") as whole, zipfile.ZipFile(tmp_path / "m.pt", "w") as archive:
        for each in whole.infolist():
            archive.writestr(each, b"def broken(" if each.filename.endswith(".py") else whole.read(each))
    assert "forward takes" not in read_script(tmp_path / "m.pt").missing


def test_a_truncated_archive_is_refused(tmp_path: Path) -> None:
    (tmp_path / "m.pt").write_bytes((FILES / "script.pt").read_bytes()[:-40])
    with pytest.raises(UsageError, match="no TorchScript archive"):
        read_script(tmp_path / "m.pt")


def test_pickled_weights_are_no_torchscript() -> None:
    with pytest.raises(UsageError, match=r"torch\.jit\.script"):
        read_script(FILES / "weights.pt")


def test_a_package_of_aot_inductor_goes_by_its_platform(tmp_path: Path) -> None:
    reading = read_package(tmp_path / "m.pt2")
    assert (reading.config.backend, reading.config.platform) == ("pytorch", "torch_aoti")
    assert reading.files[0][0] == "model.pt2"


def test_a_module_is_run_by_the_backends_python_with_its_weights(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(
        "import torch\nclass Net(torch.nn.Module):\n    def forward(self, x, y=None) -> torch.Tensor:\n        pass\n"
    )
    (tmp_path / "model.pt").write_bytes(b"\x80")
    reading = read_module(tmp_path)
    assert reading.config.runtime == "model.py"
    assert [below for below, _ in reading.files] == ["model.pt", "model.py"]
    assert "forward takes x, y, and returns torch.Tensor" in reading.missing
