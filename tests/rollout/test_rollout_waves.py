import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollout.waves.journal import FILE, Journal, RolloutRecord, now
from rollout.waves.plan import Step, plan_of, stacks_of
from rollout.waves.report import Lines
from rollout.waves.runner import Interrupted, Runner, Show, Stop
from stacks.command import CommandError
from stacks.images_lock import ImagesLock
from stacks.load import parse
from stacks.validate import validate
from tests.counts import examples
from tests.processes import until

from .conftest import DEFINITION, Capsys


def plan(waves: Mapping[str, int], canary: str | None = None) -> list[Step]:
    head = DEFINITION.split("dataPlanes:\n")[0]
    if canary:
        head = head.replace("- name: prod\n", f"- name: prod\n    rollout: {{canary: {canary}}}\n")
    planes = "".join(f"  - {{name: {name}, environments: [prod], wave: {wave}}}\n" for name, wave in waves.items())
    definition = validate(parse(f"{head}dataPlanes:\n{planes}", "f.yaml"), ImagesLock())
    return plan_of(list(stacks_of(definition, "prod").values()))


# ---- the plan ----


@pytest.mark.parametrize(
    ("waves", "canary", "steps"),
    [
        ({"c": 2, "a": 1, "b": 1, "d": 2, "e": 7}, None, ["canary: a", "wave 1: b", "wave 2: c d", "wave 7: e"]),
        ({"a": 1, "b": 1, "c": 2}, "b", ["canary: b", "wave 1: a", "wave 2: c"]),
        ({"only": 3}, None, ["canary: only"]),
    ],
    ids=["the first of the lowest wave", "another that is named", "one alone"],
)
def test_the_canary_goes_alone_then_each_wave(waves: Mapping[str, int], canary: str | None, steps: list[str]) -> None:
    assert [f"{step.title}: {' '.join(step.planes)}" for step in plan(waves, canary)] == steps


# ---- the runner, with fakes for the engine and the gate ----


class Doubles:
    """Replace engine and gate: record the running planes, and fail as configured."""

    def __init__(self, *, begin: Callable[[str], object] = lambda _: None) -> None:
        self.begin = begin
        self.fails: dict[tuple[str, str], str] = {}
        self.order: list[tuple[str, str]] = []
        self.at_work: set[str] = set()
        self.most_at_work = 0
        self.together: dict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def bring_up(self, plane: str, show: Show) -> None:
        with self._lock:
            assert plane not in self.at_work, f"{plane} is applied twice at the same time"
            self.at_work.add(plane)
            self.most_at_work = max(self.most_at_work, len(self.at_work))
            for other in self.at_work:
                self.together[other] |= self.at_work
        try:
            show("Creating Namespace")
            self._do(plane, "up")
        finally:
            with self._lock:
                self.at_work.remove(plane)

    def await_health(self, plane: str, show: Show) -> None:
        show("waiting: Deployment inference-proxy: 0 of 3 pods are available")
        self._do(plane, "gate")

    def _do(self, plane: str, what: str) -> None:
        self.order.append((plane, what))
        self.begin(plane)
        if message := self.fails.get((plane, what)):
            raise CommandError(message)


STEPS = (Step("canary", ["a"]), Step("wave 1", ["b", "c"]), Step("wave 2", ["d", "e", "f"]))


def begun(folder: Path, steps: Sequence[Step] = STEPS) -> Journal:
    record = RolloutRecord(
        began_at=now(), kind="forward", environment="prod", definition="two.yaml", engine="helm", steps=[*steps]
    )
    (folder / "0001").mkdir()
    (folder / "0001" / FILE).write_text(record.model_dump_json(), "utf-8")
    return Journal(folder / "0001")


def ran(journal: Journal, doubles: Doubles, *, most: int = 4, stop: Stop | None = None) -> str:
    """Run a rollout as a new process would, and return its outcome."""
    new = Journal(journal.folder)
    return Runner(new, doubles.bring_up, doubles.await_health, Lines(), stop or Stop(), most).run()


def states(journal: Journal) -> str:
    record = Journal(journal.folder).record
    return " ".join(f"{plane}:{status.state}" for plane, status in record.planes.items())


def test_planes_of_a_wave_go_together_and_waves_one_after_the_other(tmp_path: Path) -> None:
    wave = {plane: threading.Barrier(len(step.planes)) for step in STEPS for plane in step.planes[:1]}
    barriers = {plane: wave[step.planes[0]] for step in STEPS for plane in step.planes}
    doubles = Doubles(begin=lambda plane: barriers[plane].wait(20))
    assert ran(begun(tmp_path), doubles) == "succeeded"
    assert doubles.together == {plane: {*step.planes} for step in STEPS for plane in step.planes}
    ended = [doubles.order.index((plane, "gate")) for plane in "abcdef"]
    started = [doubles.order.index((plane, "up")) for plane in "abcdef"]
    assert ended[0] < min(started[1:3])
    assert max(ended[1:3]) < min(started[3:])


def test_no_more_planes_than_allowed_are_at_work(tmp_path: Path) -> None:
    doubles = Doubles(begin=lambda _: until("three are at work", lambda: doubles.most_at_work >= 3, 60))
    assert ran(begun(tmp_path, (Step("wave 1", [*"abcdefgh"]),)), doubles, most=3) == "succeeded"
    assert doubles.most_at_work == 3


@pytest.mark.parametrize("what", ["up", "gate"])
def test_the_first_failure_ends_the_rollout_after_the_planes_that_are_at_work(
    tmp_path: Path, what: str, capsys: Capsys
) -> None:
    doubles = Doubles()
    doubles.fails["b", what] = "quota exceeded"
    journal = begun(tmp_path)
    assert ran(journal, doubles) == "failed"
    assert states(journal) == "a:passed b:failed c:passed d:waiting e:waiting f:waiting"
    where = {"up": "applying it", "gate": "health gate"}[what]
    assert Journal(journal.folder).record.planes["b"].message == f"{where}: quota exceeded"
    shown = capsys.readouterr().err.splitlines()
    for line in ("Step 1 of 3, canary: a", "[a] passed: 0 s", f"[b] FAILED: {where}: quota exceeded"):
        assert line in shown
    assert any(line.startswith("[a] waiting: ") for line in shown)
    assert "Creating Namespace" not in "".join(shown)


@pytest.mark.parametrize("most", [1, 2])
def test_a_stop_inside_a_wide_wave_begins_no_further_plane(tmp_path: Path, most: int) -> None:
    stop = Stop()
    wide = (Step("canary", ["a"]), Step("wave 1", ["b", "c", "d", "e", "f"]))
    began: set[str] = set()

    def begin(plane: str) -> None:
        began.add(plane)
        if len(began) == 1 + most:
            stop.soon.set()
        assert plane == "a" or stop.soon.wait(20)

    doubles = Doubles(begin=begin)
    journal = begun(tmp_path, wide)
    assert ran(journal, doubles, most=most, stop=stop) == "stopped"
    second = "waiting" if most == 1 else "passed"
    assert states(journal) == f"a:passed b:passed c:{second} d:waiting e:waiting f:waiting"


def test_a_plane_that_is_interrupted_is_written_down_as_such(tmp_path: Path) -> None:
    class Hanging(Doubles):
        def bring_up(self, plane: str, show: Show) -> None:
            super().bring_up(plane, show)
            if plane in "bc":
                both_at_work.wait(10)
            if plane == "b":
                stop.soon.set()
                stop.now.set()
            if plane in "bc" and stop.now.wait(10):
                raise Interrupted

    stop, both_at_work = Stop(), threading.Barrier(2)
    journal = begun(tmp_path)
    assert ran(journal, Hanging(), stop=stop) == "stopped"
    assert states(journal) == "a:passed b:interrupted c:interrupted d:waiting e:waiting f:waiting"
    assert ran(journal, Doubles()) == "succeeded"


# ---- killed at any time, and resumed ----


steps_of = st.lists(st.integers(1, 3), min_size=1, max_size=4).map(
    lambda sizes: [
        Step(f"wave {wave}", [f"p{wave}{number}" for number in range(size)]) for wave, size in enumerate(sizes)
    ]
)


@examples(40)
@given(steps=steps_of, failing=st.data())
def test_resume_reaches_the_same_end_after_any_kill(
    tmp_path_factory: pytest.TempPathFactory, steps: list[Step], failing: st.DataObject
) -> None:
    journal = begun(tmp_path_factory.mktemp("journal"), steps)
    planes = [plane for step in steps for plane in step.planes]
    first = Doubles()
    if bad := failing.draw(st.sampled_from([None, *planes])):
        first.fails[bad, failing.draw(st.sampled_from(["up", "gate"]))] = "it failed"
    left = [(journal.folder / FILE).read_text("utf-8")]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rollout.waves.journal.write_atomically", lambda _, text: left.append(text))
        ran(journal, first)
    for text in left:
        (journal.folder / FILE).write_text(text, "utf-8")
        before = {plane for plane, status in Journal(journal.folder).record.planes.items() if status.state == "passed"}
        again = Doubles()
        assert ran(journal, again) == "succeeded"
        assert {status.state for status in Journal(journal.folder).record.planes.values()} == {"passed"}
        begun_again = [plane for plane, what in again.order if what == "up"]
        assert sorted(begun_again) == sorted(set(planes) - before)
        waves = {plane: number for number, step in enumerate(steps) for plane in step.planes}
        assert [waves[plane] for plane in begun_again] == sorted(waves[plane] for plane in begun_again)
