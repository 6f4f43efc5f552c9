"""The driver: a load wakes a model or starts its process, an unload has it sleep, or ends it if nothing else helps."""

import asyncio
import http.client
from pathlib import Path
from typing import Any

import pytest
from tidegate_contracts.openai import SECRET_HEADER
from tidegate_eviction.core.messages import Load, Recycle, Unload
from tidegate_eviction.openai import driver as module
from tidegate_eviction.openai import engines
from tidegate_eviction.openai.control import EngineControl, EngineError

from .plane import FOOTPRINT, KEPT, MIB, WEIGHTS, Container, Driving, container, driving, following

pytestmark = pytest.mark.anyio
MEMORY = '"memory": {"source": "process", "used": 0}'
PROCESSES = f'{{"instance": "1", {MEMORY}, "processes": {{"a": {{"port": ?, "command": []}}}}}}'


@pytest.fixture(autouse=True)
def _again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AGAIN_SECONDS", 0.05)
    monkeypatch.setattr(module, "END_SECONDS", 2.0)
    monkeypatch.setattr(module, "TOLERANCE", 8 * MIB)


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for what does not come end soon; what does come has the time of a busy machine."""
    monkeypatch.setattr(module, "SLEEP_SECONDS", 4.0)
    monkeypatch.setattr(module, "FREED_SECONDS", 1.0)


async def load(here: Driving, number: int, model: str) -> Any:
    here.driver.carry_out([Load(number, model)])
    return await here.said()


async def unload(here: Driving, number: int, model: str) -> Any:
    here.driver.carry_out([Unload(number, model, (model,))])
    return await here.said()


async def test_the_first_load_starts_a_process_and_the_next_wakes_it(tmp_path: Path) -> None:
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        what, number, error, grown, versions = await load(here, 1, "a")
        assert (what, number, error, versions) == ("load", 1, None, ())
        assert WEIGHTS < grown < 1.2 * FOOTPRINT
        port = here.driver.port("a")
        assert port == 8100
        assert await unload(here, 2, "a") == ("unload", 2, None)
        assert await here.control.is_sleeping(port)
        what, number, error, again, _ = await load(here, 3, "a")
        assert (what, number, error) == ("load", 3, None)
        assert again == pytest.approx(FOOTPRINT - KEPT, rel=0.15)
        assert not await here.control.is_sleeping(port)
        assert made.calls("a") == ["start", "sleep 1 wait", "wake weights kv_cache"]


async def test_what_a_sleeper_keeps_is_in_no_reading(tmp_path: Path) -> None:
    """It is in the slice as long as its process is, and no other model can have it."""
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        await unload(here, 2, "a")
        kept = (await here.control.look()).used_bytes - KEPT
        await here.until(lambda: (here.heard.readings[-1].used_bytes or 0) <= kept)


async def test_weights_beyond_the_bound_of_host_memory_are_dropped_and_read_again(tmp_path: Path) -> None:
    made = container(tmp_path, "a", "b")
    async with driving(made, made.settings("a", "b", host_memory=200 * MIB)) as here:
        for number, model in enumerate("ab"):
            assert (await load(here, number, model))[2] is None
            assert await unload(here, 10 + number, model) == ("unload", 10 + number, None)
        assert [made.calls(each)[-1] for each in "ab"] == ["sleep 1 wait", "sleep 2 wait"]
        assert (await load(here, 3, "b"))[2] is None
        assert made.calls("b")[2:] == ["wake weights", "reload_weights", "wake kv_cache", "reset_prefix_cache"]
        await load(here, 4, "a")  # whose weights are not in the memory of the host any more
        await unload(here, 5, "b")
        assert made.calls("b")[-1] == "sleep 1 wait"


@pytest.mark.parametrize("fault", ["hang", "500", "keep"])
@pytest.mark.usefixtures("impatient")
async def test_a_sleep_that_frees_nothing_is_followed_by_a_deeper_one(tmp_path: Path, fault: str) -> None:
    made = container(tmp_path)
    made.add("a", sleep1=fault)
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        assert await unload(here, 2, "a") == ("unload", 2, None)
        assert [each for each in made.calls("a") if "sleep" in each] == ["sleep 1 wait", "sleep 2 wait"]
        assert "reload_weights" not in made.calls("a")  # for a deeper sleep, which drops them
        assert await here.control.is_sleeping(8100)
        assert (await load(here, 3, "a"))[2] is None
        assert made.calls("a")[-1] == "reset_prefix_cache"


@pytest.mark.parametrize("fault", ["hang", "500", "keep"])
@pytest.mark.usefixtures("impatient")
async def test_a_process_that_gives_its_memory_back_in_no_way_is_ended_and_started_anew_when_it_is_wanted(
    tmp_path: Path, fault: str
) -> None:
    made = container(tmp_path)
    made.add("a", sleep1=fault, sleep2=fault)
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        assert await unload(here, 2, "a") == ("unload", 2, None)
        assert not (await here.control.look()).processes
        assert (await load(here, 3, "a"))[2] is None
        assert made.calls("a").count("start") == 2


@pytest.mark.parametrize("fault", [{"wake": "die"}, {"wake": "500"}, {"wake": "hang"}])
@pytest.mark.usefixtures("impatient")
async def test_a_process_that_does_not_wake_is_started_anew(tmp_path: Path, fault: dict[str, str]) -> None:
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        await unload(here, 2, "a")
        made.fault("a", **fault)
        assert (await load(here, 3, "a"))[2] is None
        assert made.calls("a") == ["start", "sleep 1 wait", "wake weights kv_cache", "start"]
        assert not await here.control.is_sleeping(8100)


async def test_weights_that_cannot_be_read_again_end_the_process(tmp_path: Path) -> None:
    made = container(tmp_path)
    made.add("a", reload_weights="500")
    async with driving(made, made.settings("a", host_memory=0)) as here:
        await load(here, 1, "a")
        await unload(here, 2, "a")
        assert (await load(here, 3, "a"))[2] is None
        assert made.calls("a")[-3:] == ["wake weights", "reload_weights", "start"]


async def test_a_sleeper_is_not_put_to_sleep_again(tmp_path: Path) -> None:
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        await here.control.sleep(8100, 2, 5)
        assert await unload(here, 2, "a") == ("unload", 2, None)
        assert made.calls("a") == ["start", "sleep 2 wait"]
        assert (await load(here, 3, "a"))[2] is None
        assert made.calls("a")[-1] == "reset_prefix_cache"


async def test_a_process_that_ends_as_it_starts_fails_its_load(tmp_path: Path) -> None:
    made = container(tmp_path)
    made.add("a", start="die")
    async with driving(made, made.settings("a")) as here:
        error = (await load(here, 1, "a"))[2]
        assert error == "the process of a ended as it started: why is in the log of its container"
        assert "no kernel image" in (tmp_path / "engines.log").read_text()
        made.fault("a", start="")
        assert (await load(here, 2, "a"))[2] is None


async def test_a_process_that_never_listens_is_ended(tmp_path: Path) -> None:
    made = container(tmp_path)
    made.add("a", health="hang")
    settings = made.settings("a")
    sleep = settings.sleep
    assert sleep is not None
    settings = settings.model_copy(update={"sleep": sleep.model_copy(update={"start_seconds": 2})})
    async with driving(made, settings) as here:
        assert "does not answer after 2 s" in (await load(here, 1, "a"))[2]
        assert not (await here.control.look()).processes


async def test_a_model_that_dies_has_vanished(tmp_path: Path) -> None:
    made = container(tmp_path, "a", "b")
    async with driving(made, made.settings("a", "b")) as here:
        await load(here, 1, "a")
        here.heard.thought = frozenset("a")
        await here.control.end("a", 0)
        assert await here.said() == ("vanished", frozenset("a"))
        assert here.driver.port("a") == 0
        assert await unload(here, 2, "a") in [("unload", 2, None), ("vanished", frozenset("a"))]


async def test_a_model_that_hangs_while_it_is_awake_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "HEALTH_SECONDS", 0.1)
    monkeypatch.setattr(module, "UNWELL_LOOKS", 2)
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        here.heard.thought = frozenset("a")
        made.fault("a", health="500")
        assert await here.said() == ("vanished", frozenset("a"))


async def test_one_process_starts_wakes_or_falls_asleep_at_a_time(tmp_path: Path) -> None:
    made = container(tmp_path, "a", "b")
    async with driving(made, made.settings("a", "b")) as here:
        here.driver.carry_out([Load(1, "a"), Unload(2, "a", ("a",)), Load(3, "b")])
        assert [(await here.said())[:3] for _ in range(3)] == [
            ("load", 1, None),
            ("unload", 2, None),
            ("load", 3, None),
        ]


async def test_a_new_policy_finds_what_is_awake_and_what_sleeps(tmp_path: Path) -> None:
    made = container(tmp_path, "a", "b")
    settings = made.settings("a", "b")
    async with driving(made, settings) as here:
        await load(here, 1, "a")
        await unload(here, 2, "a")
        await load(here, 3, "b")
        async with following(made, settings) as (driver, heard):
            what, found = await heard.said.get()
            assert (what, found.resident, found.loading) == ("back", ("b",), ())
            assert driver.port("b") == 8101
            driver.carry_out([Load(1, "a")])  # how deep it sleeps is not known: its weights are read again
            assert (await heard.said.get())[2] is None
            assert made.calls("a")[2:] == ["wake weights", "reload_weights", "wake kv_cache", "reset_prefix_cache"]


async def test_a_process_that_does_not_say_whether_it_sleeps_is_ended_when_it_is_to_sleep(tmp_path: Path) -> None:
    """A policy that finds it takes it for one that starts: the others are to be had meanwhile."""
    made = container(tmp_path, "a", "b")
    settings = made.settings("a", "b")
    async with driving(made, settings) as here:
        await load(here, 1, "a")
        await load(here, 2, "b")
        made.fault("a", is_sleeping="500")
        async with following(made, settings) as (_, heard):
            found = (await heard.said.get())[1]
            assert (found.resident, found.loading) == (("b",), ("a",))
        assert await unload(here, 3, "a") == ("unload", 3, None)
        assert {*(await here.control.look()).processes} == {"b"}


async def test_a_process_that_was_started_otherwise_is_of_another_version_and_is_started_anew(tmp_path: Path) -> None:
    made = container(tmp_path, "a")
    old = made.settings(models=(made.model("a", versions=(3,)),))
    new = made.settings(models=(made.model("a", footprint=FOOTPRINT - 40 * MIB, versions=(4,)),))
    async with driving(made, old) as here:
        await load(here, 1, "a")
        async with following(made, new) as (driver, heard):
            assert (await heard.said.get())[1].versions == {"a": (module.OTHER_VERSION,)}
            driver.carry_out([Unload(1, "a", ("a",))])
            assert await heard.said.get() == ("unload", 1, None)
            assert not (await here.control.look()).processes
            driver.carry_out([Load(2, "a", (4,))])
            assert (await heard.said.get())[::4] == ("load", (4,))


async def test_a_restart_is_asked_for_until_the_container_has_ended(tmp_path: Path) -> None:
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        here.driver.carry_out([Recycle("it leaks")])
        assert await here.said() == ("lost", "its container has ended")
        assert here.process.popen.wait(10) == 0
        with made.running():
            what, found = await here.said()
            assert (what, found.resident) == ("back", ())
            assert (await load(here, 2, "a"))[2] is None


def asked(here: Container, port: int, method: str, path: str, **headers: str) -> int:
    asking = http.client.HTTPConnection(here.host, port, timeout=5)
    asking.request(method, path, headers=headers)
    return asking.getresponse().status


async def test_nothing_but_the_api_is_answered_without_the_secret(tmp_path: Path) -> None:
    made = container(tmp_path, "a")
    async with driving(made, made.settings("a")) as here:
        await load(here, 1, "a")
        for wrong in ({}, {"tidegate-control": "0" * 64}, {"tidegate-control": ""}, {"tidegate-control": "\xe9"}):
            for method, path in (
                ("POST", "/sleep?level=2"), ("POST", "/wake_up"), ("GET", "/is_sleeping"), ("GET", "/docs"),
                ("POST", "/collective_rpc"), ("POST", "/reset_prefix_cache"), ("POST", "//sleep"),
                ("POST", "/v1/../sleep"),
            ):  # fmt: skip
                status = await asyncio.to_thread(asked, made, 8100, method, path, **wrong)
                assert status == (404 if path.startswith("/v1/") else 403), path
            assert await asyncio.to_thread(asked, made, 8000, "POST", "/v1/chat/completions", **wrong) == 503
            for method, path in (("GET", "/processes"), ("PUT", "/processes/a"), ("DELETE", "/processes")):
                assert await asyncio.to_thread(asked, made, 8000, method, path, **wrong) == 403
        for port, path in ((8100, "/health"), (8100, "/v1/models"), (8000, "/health"), (8000, "/v1/models/a")):
            assert await asyncio.to_thread(asked, made, port, "GET", path) == 200
        await unload(here, 2, "a")
        assert await asyncio.to_thread(asked, made, 8000, "GET", "/v1/models/a") == 404
        assert made.calls("a") == ["start", "sleep 1 wait"]


async def test_metrics_are_vllms_own_of_all_models(tmp_path: Path) -> None:
    made = container(tmp_path, "a", "b")
    async with driving(made, made.settings("a", "b")) as here:
        await load(here, 1, "a")
        asking = http.client.HTTPConnection(made.host, 8000, timeout=5)
        await asyncio.to_thread(asking.request, "GET", "/metrics")
        said = asking.getresponse().read().decode()
        assert said == 'vllm:num_requests_running{engine="0",model_name="a"} 0.0\n'


async def test_processes_that_hang_keep_no_metrics_of_others_from_who_waits_four_seconds(tmp_path: Path) -> None:
    made = container(tmp_path, "a")
    for name in "bc":
        made.add(name, metrics="hang")
    async with driving(made, made.settings(*"abc")) as here:
        for number, name in enumerate("bca"):
            assert (await load(here, 2 * number, name))[2] is None
            await unload(here, 2 * number + 1, name)
        asking = http.client.HTTPConnection(made.host, 8000, timeout=4)
        await asyncio.to_thread(asking.request, "GET", "/metrics")
        assert b'model_name="a"' in (await asyncio.to_thread(asking.getresponse)).read()


async def guarded(path: str, root: str) -> int:
    """Return with which status the guard answers a request, or 200 where it lets it through."""
    said: list[Any] = []

    async def app(*_: Any) -> None:
        said.append({"status": 200})

    async def send(message: Any) -> None:
        said.append(message)

    await engines.Guard(app)({"type": "http", "headers": [], "path": path, "root_path": root}, None, send)
    status: int = said[0]["status"]
    return status


@pytest.mark.parametrize(
    ("path", "root", "status"),
    [
        ("/v1/sleep", "/v1", 403),
        ("/v1/v1/models", "/v1", 200),
        ("/v1/models", "/api", 200),
        ("/api/v1/models", "/api", 200),
        ("/api/sleep", "/api", 403),
        ("/v1/health", "/v1", 200),
        ("/v1/models", "", 200),
        ("/v1/x/sleep", "/v1/x", 403),
    ],
)
async def test_a_path_before_that_of_the_api_opens_nothing(
    path: str, root: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As vLLM has it with --root-path; Starlette routes by what comes behind (`get_route_path`)."""
    (tmp_path / "secret").write_text("0" * 64)
    monkeypatch.setattr(engines, "FOLDER", str(tmp_path))
    assert await guarded(path, root) == status


def test_the_header_of_the_secret_is_that_of_the_contract() -> None:
    """The program is started in a container where nothing of the contracts is."""
    assert engines.HEADER == SECRET_HEADER


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("[]", "tells of no processes"),
        (PROCESSES.replace("?", "22"), "a is at port 22, not at 8100 to 8131"),
        (PROCESSES.replace("?", '"8100"'), "a is at port '8100', not"),
    ],
)
async def test_what_a_container_answers_that_is_no_list_of_processes_is_an_error(said: str, why: str) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + said.encode())
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    with pytest.raises(EngineError, match=why):
        await EngineControl(f"127.0.0.1:{port}", "x").look()
    server.close()
