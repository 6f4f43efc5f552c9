"""Configurations to try, and what is made of the best: the text that is written, the plot that is drawn."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tidegate.errors import UsageError
from tidegate.triton.entries.entry import Entry, read_entry
from tidegate.triton.tuning.drawing import check_plot, plot
from tidegate.triton.tuning.plan import Measurement, Report, Setting
from tidegate.triton.tuning.sweep import require_sound, tuned_text, variant, write_config

from .programs import SLEEPER, write_model

Make = Callable[..., Entry]


@pytest.fixture
def made(tmp_path: Path) -> Make:
    """Make an entry whose configuration says more."""

    def make(more: str = "", batch: int = 8) -> Entry:
        return read_entry(write_model(tmp_path / "models", "sleeper", SLEEPER.format(seconds=0), more, batch))

    return make


def best(max_batch: int | None = 4, instances: int | None = 2) -> Report:
    setting = Setting(instances=instances, max_batch=max_batch, batch=1, concurrency=8)
    found = Measurement(
        setting=setting, inferences_per_second=100, p50_seconds=0.01, p90_seconds=0.02, p95_seconds=0.03,
        p99_seconds=0.04,
    )  # fmt: skip
    return Report(model="sleeper", measurements=(found,), best=found)


def test_instances_are_set_in_every_group_and_nothing_else_changes(made: Make) -> None:
    entry = made('instance_group [ { count: 1 kind: KIND_CPU }, { name: "other" count: 3 } ]\n')
    config = variant(entry, 5, None)
    assert [(group.count, group.name) for group in config.instance_group] == [(5, ""), (5, "other")]
    for group, count in zip(config.instance_group, (1, 3), strict=True):
        group.count = count
    assert config == entry.config
    assert variant(entry, None, None) == entry.config


def test_a_batch_size_turns_the_dynamic_batcher_on_and_keeps_how_it_is_set(made: Make) -> None:
    more = "dynamic_batching { preferred_batch_size: [ 2, 4, 8 ] max_queue_delay_microseconds: 500 }\n"
    config = variant(made(more), None, 4)
    assert config.max_batch_size == 4
    assert list(config.dynamic_batching.preferred_batch_size) == [2, 4]
    assert config.dynamic_batching.max_queue_delay_microseconds == 500
    config = variant(made("sequence_batching { max_sequence_idle_microseconds: 5000000 }\n"), None, 4)
    assert (config.max_batch_size, config.HasField("dynamic_batching")) == (4, False)


def test_an_ensemble_is_not_measured_without_its_steps(tmp_path: Path) -> None:
    folder = tmp_path / "both"
    (folder / "1").mkdir(parents=True)
    text = 'name: "both"\nplatform: "ensemble"\nensemble_scheduling { step { model_name: "a" model_version: -1 } }\n'
    (folder / "config.pbtxt").write_text(text, "utf-8")
    with pytest.raises(UsageError, match="tune the models of its steps"):
        require_sound(read_entry(folder))


def test_an_entry_without_a_configuration_cannot_be_varied(made: Make) -> None:
    entry = made()
    assert [group.count for group in variant(entry, 3, None).instance_group] == [3]  # it had no group
    (entry.folder / "config.pbtxt").unlink()
    with pytest.raises(UsageError, match=r"there is no config.pbtxt"):
        variant(read_entry(entry.folder), 2, None)
    with pytest.raises(UsageError, match=r"config.pbtxt:3: the model takes no batches"):
        variant(made(batch=0), None, 4)


def test_what_triton_would_refuse_or_hang_over_is_not_started(made: Make) -> None:
    entry = made()
    require_sound(entry)
    program = entry.folder / "1" / "model.py"
    program.rename(entry.folder.parent / "elsewhere.py")
    with pytest.raises(UsageError, match=r"model\.py"):
        require_sound(read_entry(entry.folder))
    program.write_text(SLEEPER.format(seconds=0), "utf-8")
    (entry.folder / "1" / "weights").symlink_to("/etc/hostname")
    with pytest.raises(UsageError, match="weights: is a symbolic link"):
        require_sound(read_entry(entry.folder))


def test_the_text_says_at_its_head_what_it_was_found_by_and_is_read_back(made: Make) -> None:
    text = tuned_text(made(), best())
    first, _, rest = text.partition("\n")
    assert first == (
        "# Found by `tidegate tune` with instances 2, max_batch_size 4, batch 1, concurrency 8: "
        "100.0 inferences/s, p99 40.0 ms."
    )
    assert "max_batch_size: 4" in rest
    with pytest.raises(UsageError, match="nothing that was tried keeps to the limit"):
        tuned_text(made, Report(model="sleeper", measurements=()))  # type: ignore[arg-type]


def test_what_check_would_not_accept_is_not_written(made: Make) -> None:
    # A batch of four rows does not hold a warm-up of eight.
    entry = made('model_warmup { name: "eight" batch_size: 8 inputs { key: "IN" value: '
                 "{ data_type: TYPE_FP32 dims: [ 4 ] zero_data: true } } }\n")  # fmt: skip
    tuned_text(entry, best(max_batch=8))
    with pytest.raises(UsageError, match=r"config\.pbtxt:\d+"):
        tuned_text(entry, best(max_batch=4))


def test_a_file_is_written_whole_and_never_over_another_unless_that_is_said(tmp_path: Path) -> None:
    target = tmp_path / "config.pbtxt"
    write_config(target, "one")
    with pytest.raises(UsageError, match="is there already"):
        write_config(target, "two")
    assert target.read_text("utf-8") == "one"
    write_config(target, "two", overwrite=True)
    assert target.read_text("utf-8") == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["config.pbtxt"]
    assert target.stat().st_mode & 0o777 == 0o644
    with pytest.raises(UsageError, match="is a folder"):
        write_config(tmp_path, "three")
    with pytest.raises(UsageError, match="there is no such folder"):
        write_config(tmp_path / "no" / "config.pbtxt", "three")


REPORT = Report(
    model="sleeper",
    latency_limit_seconds=0.1,
    measurements=tuple(
        Measurement(
            setting=Setting(instances=instances, batch=1, concurrency=concurrency),
            inferences_per_second=90.0 * instances, p50_seconds=0.01, p90_seconds=0.02, p95_seconds=0.02,
            p99_seconds=0.03 * concurrency,
        )
        for instances in (1, 2)
        for concurrency in (1, 4)
    ),
)  # fmt: skip
"""Two lines of two points."""


def test_a_plot_is_drawn_the_same_each_time_with_lines_limit_and_best(tmp_path: Path) -> None:
    report = REPORT.model_copy(update={"best": REPORT.measurements[2]})
    for name, begin in (("plot.png", b"\x89PNG\r\n"), ("plot.SVG", b"<?xml")):
        plot(tmp_path / name, report)
        drawn = (tmp_path / name).read_bytes()
        assert drawn.startswith(begin)
        plot(tmp_path / name, report)
        assert (tmp_path / name).read_bytes() == drawn
    text = (tmp_path / "plot.SVG").read_text("utf-8")
    for word in ("sleeper", "instances 1, batch 1", "instances 2, batch 1", "limit", "best", "p99 latency, ms"):
        assert f"<!-- {word}" in text, word
    for path, words in (
        ("plot.pdf", "let its name end in .png or .svg"),
        ("no/plot.png", "there is no such folder"),
    ):
        with pytest.raises(UsageError, match=words):
            check_plot(tmp_path / path)


def test_without_matplotlib_the_extra_is_named(tmp_path: Path) -> None:
    program = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "from pathlib import Path\nfrom tidegate.triton.tuning.drawing import check_plot\n"
        f"check_plot(Path({str(tmp_path / 'plot.png')!r}))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert "./client[plot]" in ended.stderr
