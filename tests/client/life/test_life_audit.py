import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegate.errors import BusyError, IntegrityError, NotFoundError
from tidegate.life.audit import prune, unserved, verify
from tidegate.life.deploy import rollback
from tidegate.life.undeploy import undeploy

from .papers import Life
from .test_life_target import MODEL, dataset, known, plane


@pytest.fixture
def life(life: Life) -> Life:
    for number in (1, 2, 3):
        life.bring(number)
    return life


def _leave(model: Path) -> None:
    (model / "3" / "notes").write_text("mine")
    (model / "copy of config.pbtxt").write_text("")


def _stray(model: Path) -> None:
    (model / "77").mkdir()
    (model / "77" / "model.py").write_text("")


def _edit(model: Path) -> None:
    config = model / "config.pbtxt"
    config.write_text(config.read_text().replace("max_batch_size: 4", "max_batch_size: 8"))


def _linked_model(model: Path) -> None:
    model.rename(model.parent.parent / "elsewhere")
    model.symlink_to(model.parent.parent / "elsewhere")


def _pipe(model: Path) -> None:
    (model / "config.pbtxt").unlink()
    os.mkfifo(model / "config.pbtxt")


@pytest.mark.parametrize(
    ("spoil", "kinds", "message"),
    [
        (lambda model: (model / "3" / "factor").write_text("9 "), {"content"}, "3/factor"),
        (lambda model: (model / "3" / "model.py").unlink(), {"content"}, "3/model.py is missing"),
        (_leave, {"content", "stray"}, "copy of config.pbtxt"),
        (_stray, {"stray"}, "version 77 is not registered"),
        (_edit, {"config"}, "max_batch_size: 4 → 8"),
        (lambda model: (model / "config.pbtxt").unlink(), {"config", "missing", "stray"}, "alias prod has version 3"),
        (
            lambda model: shutil.rmtree(model / "3"),
            {"config", "stray"},
            "it serves version 3, which is not in the repository",
        ),
        (lambda model: (model.parent / ".ipynb_checkpoints").mkdir(), {"stray"}, "'.ipynb_checkpoints' cannot be"),
        (_linked_model, {"content"}, "symbolic links are not followed"),
        (lambda model: (model / "3" / "link").symlink_to("/"), {"content"}, "3/link is a link or a special file"),
        (lambda model: (model / "config.pbtxt").write_text("nonsense {"), {"config"}, "config.pbtxt cannot be read"),
        (_pipe, {"content"}, "config.pbtxt is a link or a special file"),
    ],
)
def test_other_fields_hide_no_difference(
    life: Life, spoil: Callable[[Path], object], kinds: set[str], message: str
) -> None:
    (life.models / "zebra").mkdir()
    assert {(each.model, each.kind) for each in verify(life.here, "prod").found} == {("zebra", "stray")}
    spoil(life.models / MODEL)
    found = verify(life.here, "prod").found
    assert "zebra" in {each.model for each in found}
    assert {each.kind for each in found if each.model != "zebra"} >= kinds, found
    assert any(message in each.what for each in found), found


def test_published_versions_are_as_registered_and_missing_ones_are_reported(life: Life) -> None:
    message = verify(life.here, "prod", [MODEL])
    assert (message.found, message.versions, message.content) == ((), 3, False)
    assert message.bytes > 0
    with pytest.raises(NotFoundError, match="did you mean fraud"):
        verify(life.here, "prod", ["fruad"])
    life.papers.aliases["prod"] = 2
    (found,) = verify(life.here, "prod").found
    assert (found.kind, found.version) == ("alias", 3)


def test_unserved_versions_are_removed_and_restored(life: Life) -> None:
    shown = unserved(life.here, "prod", MODEL)
    assert [each.version for each in shown] == [1]  # a rollback goes back to version 2
    assert shown[0].bytes > 0
    with pytest.raises(BusyError, match="may still load"):
        prune(life.here, "prod", shown)
    life.here.loaded_seconds = 0.0
    assert prune(life.here, "prod", shown) == shown
    assert not (life.models / MODEL / "1").exists()
    assert prune(life.here, "prod", shown) == []
    assert life.bring(1).previous == 3
    assert [each.version for each in unserved(life.here, "prod", MODEL)] == [2]


@pytest.mark.parametrize("alias", [None, "champion"])
def test_undeploy_removes_every_version_and_rollback_brings_the_last_one_back(life: Life, alias: str | None) -> None:
    life.of, life.here.known = known(plane("east", dataset("a"), alias=alias))
    life.bring(3)
    undeploy(life.here, MODEL, "prod")
    assert not (life.models / MODEL).exists()
    assert unserved(life.here, "prod", MODEL) == []
    assert verify(life.here, "prod", [MODEL]).found == ()
    assert rollback(life.here, MODEL, "prod").version == 3
    assert life.served() == (3,)
    assert verify(life.here, "prod", [MODEL]).found == ()


def test_a_damaged_version_is_removed_and_brought_back(life: Life) -> None:
    (life.models / MODEL / "2" / "factor").write_text("9 ")
    with pytest.raises(IntegrityError, match="tidegate prune"):
        rollback(life.here, MODEL, "prod")
    found = unserved(life.here, "prod", MODEL)
    assert [each.version for each in found] == [1, 2]
    life.here.loaded_seconds = 0.0
    assert prune(life.here, "prod", found) == found
    assert rollback(life.here, MODEL, "prod").version == 2
    assert (life.models / MODEL / "2" / "factor").read_text() != "9 "
