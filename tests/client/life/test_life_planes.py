"""An environment on two data planes, with a repository each: a version comes to both or to none."""

import errno
import os
from pathlib import Path

import pytest
from tidegate.errors import UnfinishedError
from tidegate.life.past import history
from tidegate.life.publish import bring
from tidegate.triton.publishing import read_published, steps

from .papers import Answers, Papers, context
from .test_life_target import MODEL, dataset, known, plane


class Both(Answers):
    """Two Tritons, of which each has loaded what is served in the repository that both mean."""

    def _served(self, model: str) -> tuple[int, ...]:
        return tuple(set.intersection(*(set(of(each, model)[0]) for each in self.repository)))

    def config(self, model: str, **_how: object) -> dict[str, object]:
        aliases = [of(each, model)[1] for each in self.repository]
        value = aliases[0]["champion"] if aliases[0] == aliases[1] else 0
        return {"parameters": {"tidegate.alias.champion": {"string_value": str(value)}}}


def of(models: Path, model: str) -> tuple[tuple[int, ...], dict[str, int]]:
    said = read_published((models / model / "config.pbtxt").read_text())
    return said.served, said.aliases


def test_a_version_comes_to_both_data_planes_or_to_none(tmp_path: Path) -> None:
    east, west = (tmp_path / "dataset" / name for name in ("east", "west"))
    for folder in (east, west, tmp_path / "shelf"):
        folder.mkdir(parents=True)
    papers = Papers(tmp_path / "shelf", MODEL)
    both, everywhere = known(
        *(plane(name, dataset("v", name), wave, alias="champion") for wave, name in enumerate(("east", "west")))
    )
    here = context(everywhere, papers, Both([east, west]), tmp_path / "dataset")
    one = bring(here, "deploy", papers.register(1), both, "ci")
    assert (one.planes, of(east, MODEL), of(west, MODEL)) == (("east", "west"), *[((1,), {"champion": 1})] * 2)
    seen = 0

    def fail(when: str, step: str) -> None:
        nonlocal seen
        if (when, step) == ("before", "rename partial to config.pbtxt"):
            seen += 1
            if seen == 4:  # the cut-over in the west; the east has had its own
                raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))

    two = papers.register(2)
    steps.watch(fail)
    try:
        with pytest.raises(UnfinishedError, match="version 1 serves on"):
            bring(here, "deploy", two, both, "ci")
    finally:
        steps.watch()
    assert of(east, MODEL)[1] == of(west, MODEL)[1] == {"champion": 1}
    outcome = bring(here, "deploy", two, both, "ci")
    assert (outcome.version, outcome.previous, outcome.changed) == (2, 1, True)
    assert of(east, MODEL)[1] == of(west, MODEL)[1] == {"champion": 2}
    told = [(each.version, each.plane, each.previous) for each in history(here, MODEL, "prod")]
    assert told == [(2, "west", 1), (2, "east", 1), (1, "west", None), (1, "east", None)]
