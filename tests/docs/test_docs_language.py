from pathlib import Path

import pytest

from tests.docs.language import Text, findings, main

ROOT = Path(__file__).resolve().parents[2]
CHECKED = [
    "README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs", "stacks", "components", "charts", "policies",
    "rollout", "capacity", "cli", "proxy", "service", "contracts", "client", "lab", "requirements",
    "tests", "Makefile", ".ci", "pyproject.toml",
]  # fmt: skip


@pytest.mark.parametrize("root", CHECKED)
def test_the_language_is_plain(root: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert not main([str(ROOT / root)]), capsys.readouterr().out


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("page", "Callers are told busy."),
        ("message", "Nobody may call it."),
        ("docstring", "It starts; then it stops."),
        ("page", "Who has waited long enough gets a response."),
        ("page", " ".join(["word"] * 26) + "."),
        ("cell", " ".join(["word"] * 26)),
        ("name", "What is wrong is told"),
    ],
)
def test_a_broken_rule_is_found(kind: str, text: str) -> None:
    assert list(findings(Text(1, text, kind)))


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("page", "Run `tell; said` first. " * 9),
        ("heading", "What you write"),
        ("page", "Who may call it?"),
        ("cell", "X " + "word " * 20),
    ],
)
def test_plain_english_passes(kind: str, text: str) -> None:
    assert not list(findings(Text(1, text, kind)))
