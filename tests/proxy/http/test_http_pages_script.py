"""What the page of models does in a browser: its script is run, with as much of a document as it uses."""

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import quickjs
from tidegate_contracts.lease import LeaseOf
from tidegate_contracts.whereabouts import Place, VersionFailure, VisibleModel, Whereabouts
from tidegate_proxy.pages import models_page

[SCRIPT] = re.findall(r"<script>(.+?)</script>", bytes(models_page().body).decode(), re.DOTALL)
SINCE = datetime(2026, 5, 1, 10, tzinfo=UTC)
DOCUMENT = """
const elements = {}, asked = [], document = {}, location = { pathname: "/inference/models" };
let answer;

class Element {
  textContent = ""; value = ""; children = []; listeners = {};
  insertRow() { const made = new Element(); this.children.push(made); return made; }
  insertCell() { return this.insertRow(); }
  replaceChildren() { this.children = []; }
  addEventListener(name, listener) { this.listeners[name] = listener; }
}
document.getElementById = (id) => elements[id] ??= new Element();

async function fetch(path, options) {
  asked.push({ path, ...options });
  if (!answer) throw new TypeError("the proxy is not there");
  return { ok: answer.status < 400, status: answer.status, json: async () => JSON.parse(answer.body) };
}

function shown() {
  const rows = document.getElementById("models").children;
  return rows.map((row) => [row.className, ...row.children.map((cell) => cell.textContent)]);
}
"""


@dataclass
class Browser:
    """One who has the page open."""

    context: Any

    def told(self, status: int = 0, body: str = "") -> None:
        """Answer like this from now on; without a status, not at all."""
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
    def said(self) -> str:
        return str(self.read("elements.said.textContent"))


@pytest.fixture
def browser() -> Browser:
    made = Browser(quickjs.Context())
    made.run(DOCUMENT)
    return made


def models(*found: VisibleModel) -> str:
    return Whereabouts(environment="prod", models=found).model_dump_json(by_alias=True)


def model(name: str, *places: Place, **more: Any) -> VisibleModel:
    state = places[0].state if places else "cold"
    said = {"model": name, "server": "vision", "pool": "main", "loading": "on-demand", "state": state}
    return VisibleModel.model_validate(said | {"places": places} | more)


def test_models_are_shown_with_where_they_are_and_why_not(browser: Browser) -> None:
    held = Place(
        replica="10.0.0.1", state="resident", since=SINCE, versions=(1, 2), waiters=3,
        leases=(LeaseOf(holder="proxy-a", in_flight=4, seconds_left=9),),
    )  # fmt: skip
    failed = Place(
        replica="10.0.0.2", state="failed", failures=(VersionFailure(version=2, since=SINCE, why="no such library"),)
    )
    browser.told(200, models(model("alone", held), model("two", held, failed), model("cold", why="nobody called it")))
    browser.run(SCRIPT)
    who = "held by proxy-a, 4 in flight; 3 wait for it"
    resident = ["resident", "2026-05-01 10:00:00 UTC", "1, 2", who]
    assert browser.read("shown()") == [
        ["model resident", "alone", "vision/main", *resident],
        ["model resident", "two", "vision/main", "resident", "", "", ""],
        ["place resident", "", "10.0.0.1", *resident],
        ["place failed", "", "10.0.0.2", "failed", "", "", "version 2: no such library"],
        ["model cold", "cold", "vision/main", "cold", "", "", "nobody called it"],
    ]
    assert browser.said.startswith("3 that you may inspect in prod, as of 2")


def test_whoever_looks_again_sees_what_is_there_then_by_his_key_and_at_the_same_address(browser: Browser) -> None:
    browser.told(200, models(model("gone")))
    browser.run(SCRIPT)
    browser.told(200, models(model("<b>there</b>")))
    browser.look(" tg_key ")
    assert [row[1] for row in browser.read("shown()")] == ["<b>there</b>"]
    first, second = browser.read("asked")
    assert first == {"path": "/inference/models", "headers": {"accept": "application/json"}, "cache": "no-store"}
    assert second["headers"] == {"accept": "application/json", "authorization": "Bearer tg_key"}


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, '{"detail": "Say who you are."}', "Say who you are."),
        (502, "{}", "It answers 502."),
        (0, "", "the proxy is not there"),
    ],
)
def test_why_nothing_can_be_shown_is_said_and_what_was_shown_stays(
    browser: Browser, status: int, body: str, said: str
) -> None:
    browser.told(200, models(model("there")))
    browser.run(SCRIPT)
    browser.told(status, body)
    browser.look()
    assert (browser.said, len(browser.read("shown()"))) == (said, 1)
