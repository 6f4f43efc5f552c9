"""The script of the /models page, run with the part of a browser's document that it uses."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import quickjs
from tidegate_contracts.lease import LeaseOf
from tidegate_contracts.whereabouts import Place, SliceRoom, VersionFailure, VisibleModel, Whereabouts
from tidegate_proxy.pages import models_page

PAGE = bytes(models_page().body).decode()
[SCRIPT] = re.findall(r"<script>(.+?)</script>", PAGE, re.DOTALL)
SINCE = datetime(2026, 5, 1, 10, tzinfo=UTC)
DOCUMENT = Path(__file__).with_name("document.js").read_text("utf-8")


@dataclass
class Browser:
    context: Any

    def answers(self, status: int = 0, body: str = "") -> None:
        self.context.eval(f"answer = {json.dumps({'status': status, 'body': body} if status else None)}")

    def run(self, script: str) -> None:
        self.context.eval(script)
        while self.context.execute_pending_job():
            pass

    def look(self, key: str = "") -> None:
        self.run(f"""
          document.getElementById("key").value = {json.dumps(key)};
          elements.who.listeners.submit({{ preventDefault() {{}} }})
        """)

    def read(self, expression: str) -> Any:
        return json.loads(self.context.eval(f"JSON.stringify({expression})"))

    @property
    def message(self) -> str:
        return str(self.read("elements.message.textContent"))


@pytest.fixture
def browser() -> Browser:
    made = Browser(quickjs.Context())
    made.run(DOCUMENT)
    return made


def shown_for(body: str) -> dict[str, Any]:
    """Return the texts and classes of the page for this response of the proxy."""
    browser = Browser(quickjs.Context())
    browser.run(DOCUMENT)
    browser.answers(200, body)
    browser.run(SCRIPT)
    return dict(browser.read(f"shownAll({json.dumps(PAGE)})"))


def models(*found: VisibleModel, slices: tuple[SliceRoom, ...] = ()) -> str:
    return Whereabouts(environment="prod", models=found, slices=slices).model_dump_json(by_alias=True)


def model(name: str, *places: Place, **more: Any) -> VisibleModel:
    state = places[0].state if places else "cold"
    fields: dict[str, Any] = {"model": name, "server": "vision", "pool": "main", "loading": "on-demand", "state": state}
    fields |= {"since": places[0].since} if places else {}
    return VisibleModel.model_validate(fields | {"places": places} | more)


HELD = Place(
    replica="10.0.0.1", state="resident", since=SINCE, versions=(1, 2), waiters=3, busy=7, idle_seconds=130.0,
    evictable_in=9.0, footprint_bytes=256 << 20, leases=(LeaseOf(holder="proxy-a", in_flight=4, seconds_left=9),),
)  # fmt: skip
FAILED = Place(
    replica="10.0.0.2", state="failed", failures=(VersionFailure(version=2, since=SINCE, why="no such library"),)
)
ROOM = SliceRoom(
    server="vision", pool="main", replica="10.0.0.1", policy="break-even", capacity_bytes=1 << 30,
    resident_bytes=384 << 20, loading_bytes=0, freeing_bytes=0, leaked_bytes=64 << 20, free_bytes=576 << 20,
)  # fmt: skip
WHY = "3 waiting; refused as busy in five minutes: 7"
RESIDENT = ["resident", "2026-05-01 10:00", "256.0 MiB", "1 (4 in flight)", "2 min ago", WHY]


def test_the_worst_problem_is_named_first_with_its_models_and_their_rows_come_first(browser: Browser) -> None:
    away = Place(replica="10.0.0.3", state="unreachable", why="its breaker is open")
    names = [f"failed-{number}" for number in range(5)]
    failed, calm = [model(name, FAILED) for name in names], model("calm", HELD.model_copy(update={"busy": 0}))
    browser.answers(200, models(calm, model("hot", HELD), *failed, model("gone", away)))
    browser.run(SCRIPT)
    assert browser.read('rows("problems")') == [
        ["bad", "1 model unreachable", "gone", "its breaker is open"],
        ["bad", "5 models failed to load", *names[:3], "and 2 more", "version 2: no such library"],
        ["warn", "1 model refused as busy", "hot", WHY],
    ]
    assert [row[1] for row in browser.read("shown()")] == ["gone", *names, "hot", "calm"]
    browser.run('document.getElementById("problem vision/gone").listeners.click()')
    assert [row[1] for row in browser.read("shown()")[:2]] == ["gone", "10.0.0.3"]
    browser.answers(200, models(calm))
    browser.look()
    assert browser.read('rows("problems")') == [["resident", "No problems"]]


def test_models_are_shown_with_places_and_reasons_problems_first(browser: Browser) -> None:
    warm = HELD.model_copy(update={"busy": 0})
    cold, calm = model("cold", why="no calls"), model("calm", warm)
    browser.answers(200, models(cold, calm, model("alone", HELD), model("two", HELD, FAILED)))
    browser.run(SCRIPT)
    assert browser.read("shown()") == [
        ["model resident troubled", "alone", "vision/main", *RESIDENT],
        [
            "model resident troubled",
            "two",
            "vision/main",
            *RESIDENT[:5],
            f"version 2: no such library; {WHY}",
        ],
        ["model resident", "calm", "vision/main", *RESIDENT[:5], "3 waiting"],
        ["model cold", "cold", "vision/main", "cold", "", "", "", "", "no calls"],
    ]
    assert browser.message.startswith("4 models that you may inspect in prod, as of 2")
    assert browser.read('rows("problems")') == [["warn", "2 models refused as busy", "alone", "two", WHY]]


def test_a_row_opens_a_models_state_at_each_replica_and_its_changes(browser: Browser) -> None:
    browser.answers(200, models(model("two", HELD, FAILED)))
    browser.run(SCRIPT)
    browser.run('document.getElementById("model vision/two").listeners.click()')
    rows = browser.read("shown()")
    assert rows[1] == [
        "more resident", "10.0.0.1", "", *RESIDENT[:-1],
        f"{WHY}; versions 1, 2; held by proxy-a, 4 in flight",
    ]  # fmt: skip
    assert rows[2][0:4] == ["more failed", "10.0.0.2", "", "failed"]
    assert rows[2][-1] == "version 2: no such library; failed 2026-05-01 10:00:00 UTC"
    assert rows[3] == ["more", "No changes since you opened this page."]
    assert browser.read("document.activeElement.attributes") == {"aria-expanded": "true"}
    browser.answers(200, models(model("two", HELD.model_copy(update={"state": "failed"}), FAILED)))
    browser.run("timers.pop()()")
    assert browser.read("shown()")[-1][1].endswith("10.0.0.1 resident → failed")
    browser.run('document.getElementById("model vision/two").listeners.click()')
    assert len(browser.read("shown()")) == 1


def test_a_slice_is_a_bar_of_its_models_by_size_with_others_and_leaks(browser: Browser) -> None:
    browser.answers(200, models(model("alone", HELD), model("elsewhere", FAILED), slices=(ROOM,)))
    browser.run(SCRIPT)
    assert browser.read("blocks()") == [
        ["held", "alone", "0 1 25%"],
        ["others", "others", "0 1 12.5%"],
        ["leaked", "leaked", "0 1 6.25%"],
        ["free", "576.0 MiB free", None],
    ]
    browser.run("elements.slices.children[0].children[1].children[0].listeners.click()")
    assert browser.read("shown()")[2][1] == "10.0.0.1"


def test_the_page_shows_a_hundred_of_a_thousand_models_and_more_on_request(browser: Browser) -> None:
    browser.answers(200, models(*(model(f"model-{number}") for number in range(1000))))
    browser.run(SCRIPT)
    assert len(browser.read("shown()")) == 100
    assert browser.read("[elements.rest.hidden, elements.rest.textContent]") == [False, "Show 100 more of 900"]
    browser.run("elements.rest.listeners.click()")
    assert len(browser.read("shown()")) == 200
    browser.run('elements.word.value = " MODEL-99 "; elements.word.listeners.input()')
    assert [row[1] for row in browser.read("shown()")] == ["model-99", *(f"model-99{digit}" for digit in range(10))]
    assert browser.read("elements.rest.hidden") is True


def test_a_refresh_uses_the_key_and_the_same_url(browser: Browser) -> None:
    browser.answers(200, models(model("gone")))
    browser.run(SCRIPT)
    browser.answers(200, models(model("<b>there</b>")))
    browser.look(" tg_key ")
    assert [row[1] for row in browser.read("shown()")] == ["<b>there</b>"]
    first, second = browser.read("requests")
    assert first.pop("signal")["milliseconds"] == second.pop("signal")["milliseconds"] == 10_000
    assert first == {"path": "/inference/models", "headers": {"accept": "application/json"}, "cache": "no-store"}
    assert second["headers"] == {"accept": "application/json", "authorization": "Bearer tg_key"}


@pytest.mark.parametrize(
    ("status", "body", "message", "left"),
    [
        (401, '{"detail": "Send one."}', "Unknown token or API key. Send one.", 0),
        (403, '{"detail": "No rule."}', "No rule.", 0),
        (408, "", "The proxy did not respond within 10 s.", 1),
        (502, "<html>bad gateway</html>", "The proxy returned 502.", 1),
        (200, "{}", "The proxy returned 200.", 1),
        (0, "", "the proxy is not there", 1),
    ],
)
def test_the_page_shows_why_a_refresh_failed_and_keeps_old_data_unless_access_was_denied(
    browser: Browser, status: int, body: str, message: str, left: int
) -> None:
    browser.answers(200, models(model("there")))
    browser.run(SCRIPT)
    browser.answers(status, body)
    browser.look("tg_key")
    assert len(browser.read("shown()")) == left
    assert browser.message.startswith(message)
    age = re.search(r"The data below is from 2.* UTC, \d s ago\.$", browser.message)
    assert bool(age) is bool(left), "old data is marked as old"
    assert browser.read("[elements.message.className, elements.models.className]") == ["bad", "old"]
    timers = browser.read("timers.length")
    browser.run("timers.pop()()")
    assert browser.read("timers.length") == timers, "the page always polls again later"
    assert browser.read("rests.at(-1)") == 5000, "and soon, because this costs the proxy little time"
