import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts import lease
from tidegate_contracts.whereabouts import WHEREABOUTS_PATH
from tidegate_proxy.problems import ProblemType

from ..http.running_proxy import request, until
from ..http.test_http_metrics import scrape, value
from .estate import Estate, estate
from .standin import Site, sites

pytestmark = pytest.mark.anyio
WHY = "b failed to load: no backend in /models/b/1/model.py\n\nAt:\n  /models/b/1/model.py(3): <module>\n"
REASON = "b failed to load: no backend in model.py"


def refusing(answer: lease.Refusal) -> Callable[[Site], None]:
    return lambda site: site.refuses.update(b=answer)


def hanging_up(site: Site) -> None:
    site.how = "hangs up"


REFUSALS = {
    "no-room": (refusing(lease.Busy(retry_after=2.0, reason="no-room", why="full")), ProblemType.BUSY, "full"),
    "load-failed": (refusing(lease.Busy(retry_after=2.0, reason="load-failed", why=WHY)), ProblemType.BUSY, REASON),
    "busy": (refusing(lease.Busy(retry_after=2.0, why="an older policy sends no word")), ProblemType.BUSY, "no word"),
    "policy-silent": (hanging_up, ProblemType.BUSY, "does not respond"),
    "failed for good": (refusing(lease.Quarantined(why=WHY)), ProblemType.LOAD_FAILED, REASON),
}  # fmt: skip


@pytest.mark.parametrize("reason", REFUSALS)
async def test_caller_log_and_metrics_have_one_reason_with_pool_and_replica(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, reason: str
) -> None:
    caplog.set_level(logging.INFO, "tidegate_proxy.calls")
    act, kind, text = REFUSALS[reason]
    async with sites() as [site], estate(tmp_path, [site]) as here:
        replica = f"{site.host}:{site.triton.port}"
        await until(lambda: site.renewals)
        act(site)
        reply = await here.call("b")
        word = reason if kind is ProblemType.BUSY else kind.word
        assert (reply.status, reply.problem) == (kind.status, kind.word)
        assert reply.json().get("reason") == (word if word != kind.word else None)
        assert text in reply.json()["detail"]
        assert "/models" not in reply.json()["detail"]
        [fields] = [vars(record)["data"] for record in caplog.records]
        expected = {"problem": kind.word, "reason": word, "server": "vision", "pool": "main", "model": "b"}
        assert {name: fields[name] for name in expected} == expected
        assert (fields["why"], fields["replica"]) == (reply.json()["detail"], replica)
        found = await scrape(here)
        where = {"type": kind.word, "reason": word, "server": "vision"}
        assert value(found, "problems_total", pool="main", replica=replica, **where) == 1
        assert value(found, "model_problems_total", model="b", **where) == 1


async def test_a_query_does_not_count_as_a_caller_refused_as_busy(tmp_path: Path) -> None:
    async with sites() as [site], estate(tmp_path, [site]) as here:
        hanging_up(site)
        await site.triton.close()
        await until(lambda: here.pool.why_not_ready() != "")
        for path in ("b/ready", "b/stats"):
            assert (await here.look(path)).problem == "busy"
        found = await scrape(here)
        assert value(found, "problems_total", type="busy", pool="main") == 2, "the proxy reported it all the same"
        assert value(found, "model_problems_total", model="b") == 0
        assert value(found, "requests_total", model="b") == 0
        assert (await here.call("b")).problem == "busy"
        found = await scrape(here)
        assert value(found, "model_problems_total", model="b", type="busy") == 1
        assert value(found, "requests_total", model="b", status="503") == 1


async def test_the_list_of_models_shows_no_path(tmp_path: Path) -> None:
    async with sites() as [site], estate(tmp_path, [site]) as here:
        site.why = {"b": WHY}
        [listed] = [each for each in await models(here) if each["model"] == "b"]
        assert listed["why"] == REASON


async def models(here: Estate) -> list[dict[str, Any]]:
    reply = await here.ask(request("/models", method="GET"))
    found: list[dict[str, Any]] = reply.json()["models"]
    return found


async def test_an_invalid_or_unknown_name_sends_no_lease_request(tmp_path: Path) -> None:
    async with sites() as [site], estate(tmp_path, [site]) as here:
        await until(lambda: site.renewals)
        site.how = "hangs up"
        for name in ("unknown", "%2e%2e", "a%2Fb", "a b".replace(" ", "%20"), "x" * 300, ".a"):
            reply = await here.ask(request(f"{WHEREABOUTS_PATH}/{name}", method="GET"))
            assert (reply.status, reply.problem) in ((404, "unknown"), (400, "malformed")), name
