"""What this machine cannot have is said by name, with the reason; it is no failure and no silence."""

import platform
import sys
from pathlib import Path

import pytest
from _pytest.outcomes import Skipped

from lab.local_plane import triton, wheels
from lab.local_plane.process import CannotBeHadError
from lab.local_plane.wheels import environment
from tests.proxy.rigs.pytest_rigs import not_run


@pytest.mark.parametrize(
    ("system", "machine", "library", "why"),
    [
        ("darwin", "arm64", ("", ""), "Linux on x86_64 and aarch64 only"),
        ("linux", "riscv64", ("glibc", "2.41"), "Linux on x86_64 and aarch64 only"),
        ("linux", "x86_64", ("glibc", "2.31"), "glibc 2.35 or newer"),
        ("linux", "x86_64", ("", ""), "glibc 2.35 or newer"),
    ],
)
def test_a_machine_that_no_wheel_fits_is_told_so(
    monkeypatch: pytest.MonkeyPatch, system: str, machine: str, library: tuple[str, str], why: str
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    monkeypatch.setattr(platform, "libc_ver", lambda: library)
    with pytest.raises(CannotBeHadError, match=why):
        environment("triton", "a real Triton", triton.GLIBC)


def test_a_python_that_triton_is_not_made_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton, "TOO_NEW", (3, 0))
    with pytest.raises(CannotBeHadError, match=f"no wheel for Python {triton.PYTHON}"):
        triton.installed.__wrapped__()


def test_a_test_is_left_out_loudly() -> None:
    with pytest.raises(Skipped) as left_out, not_run("A REAL TRITON"):
        raise CannotBeHadError("it is no Linux")
    assert left_out.value.msg == (
        "NOT RUN: A REAL TRITON CANNOT BE HAD HERE (it is no Linux), so that nothing was tried with it."
    )


def test_wheels_that_cannot_be_installed_are_a_part_that_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object) -> None:
        raise SystemExit("Check that pip reaches a registry.")

    monkeypatch.setattr(wheels, "install", refused)
    monkeypatch.setattr(wheels, "folder", lambda _: Path("/nowhere"))
    with pytest.raises(CannotBeHadError, match=r"a real MLflow: Check that pip"):
        environment("mlflow", "a real MLflow", (2, 0))
