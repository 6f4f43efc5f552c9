import http.client
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from lab.local_plane.proxy import Proxy, proxy, write_tables
from rollout.tools.running import tail

from ..http.upstream import Act, Upstream, head, raw, running_upstream
from ..rigs.issuer import Issuer
from ..rigs.tables import GROUP, access_table, routing_table

PATH = "/v2/models/m/infer"
BODY = b'{"inputs":["TENSOR-THAT-NOBODY-LOGS"]}'


@dataclass
class Load:
    """Callers that keep their connections, and reconnect when a response announces the end."""

    token: str
    live: list[str]  # The target of new connections, like a Service's endpoints.
    statuses: list[int] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    stopped: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        number = 0
        while not self.stopped.is_set():
            number += 1
            where = self.live[number % len(self.live)]
            connection = http.client.HTTPConnection(where, timeout=60)
            try:
                for _ in range(50):
                    connection.request("POST", PATH, BODY, {"Authorization": f"Bearer {self.token}"})
                    answer = connection.getresponse()
                    answer.read()
                    self.statuses.append(answer.status)
                    time.sleep(0.005)
                    if answer.will_close or self.stopped.is_set():
                        break
            except (OSError, http.client.HTTPException) as error:
                self.failed.append(f"{where}: {error!r}")
            finally:
                connection.close()

    @contextmanager
    def running(self, callers: int = 6) -> Iterator[None]:
        threads = [threading.Thread(target=self.run, daemon=True) for _ in range(callers)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.stopped.set()
            for thread in threads:
                thread.join(90)


def events(*words: object, seconds: float) -> Act:
    """Answer with server-sent events at this interval."""
    data = [f"data: {word}\n\n".encode() for word in words]
    chunks = [b"%x\r\n%b\r\n" % (len(each), each) for each in data]
    whole = head(b"Content-Type: text/event-stream", b"Transfer-Encoding: chunked")
    return raw(whole, *chunks, b"0\r\n\r\n", pause=seconds)


@pytest.fixture
def behind() -> Iterator[Upstream]:
    with running_upstream() as running:
        yield running


@pytest.fixture
def root(tmp_path: Path, behind: Upstream, identity_provider: Issuer) -> Path:
    write_tables(tmp_path, routing_table(behind.port, behind.port, ["m"]), access_table([identity_provider]))
    return tmp_path


def end(running: Proxy, secret: str) -> None:
    """Wait for a proxy that has to end. Its log must have no secret and no internal error."""
    assert running.process.popen.wait(60) == 0, tail(running.process.log)
    log = running.process.log.read_text()
    assert secret not in log
    assert "NOBODY-LOGS" not in log
    assert "Traceback" not in log


def test_a_rolling_restart_under_load_fails_no_request(root: Path, identity_provider: Issuer) -> None:
    token = identity_provider.token("alice", [GROUP])
    with ExitStack() as stack:

        def start(name: str) -> Proxy:
            folder = root / name
            folder.mkdir()
            (folder / "routing").symlink_to(root / "routing")
            return stack.enter_context(proxy(folder, settings={"log_level": "info"}))

        running = [start("one"), start("two")]
        load = Load(token, [each.http for each in running])
        with load.running():
            load.live.append(start("new").http)
            for old in running:
                before = len(load.statuses)
                old.process.popen.send_signal(signal.SIGTERM)
                time.sleep(0.3)  # endpoints notice it late
                load.live.remove(old.http)
                end(old, token)
                assert len(load.statuses) > before
        assert not load.failed
        assert set(load.statuses) == {200}


def test_sigterm_lets_streams_end_and_makes_the_proxy_unready(
    root: Path, behind: Upstream, identity_provider: Issuer
) -> None:
    behind.act = events(*range(10), seconds=0.1)
    token = identity_provider.token("alice", [GROUP])
    with proxy(root, settings={"drain_seconds": "60"}) as running:
        asking = http.client.HTTPConnection(running.http, timeout=60)
        asking.request("POST", "/v2/models/m/generate_stream", b"{}", {"Authorization": f"Bearer {token}"})
        answer = asking.getresponse()
        assert answer.readline() == b"data: 0\n"
        running.process.popen.send_signal(signal.SIGTERM)
        admin = http.client.HTTPConnection(running.admin, timeout=60)
        statuses: list[int] = []
        while not statuses or statuses[-1] == 200:
            admin.request("GET", "/readyz")
            ready = admin.getresponse()
            ready.read()
            statuses.append(ready.status)
        assert statuses[-1] == 503
        rest = answer.read()
        assert [word for word in rest.split() if word.isdigit()] == [b"%d" % number for number in range(1, 10)]
        end(running, token)


@pytest.mark.thorough
def test_calls_longer_than_the_drain_are_visibly_cut(root: Path, behind: Upstream, identity_provider: Issuer) -> None:
    behind.act = events("first", *["more"] * 1000, seconds=0.5)
    token = identity_provider.token("alice", [GROUP])
    with proxy(root, settings={"drain_seconds": "1"}) as running:
        asking = http.client.HTTPConnection(running.http, timeout=60)
        asking.request("POST", "/v2/models/m/generate_stream", b"{}", {"Authorization": f"Bearer {token}"})
        answer = asking.getresponse()
        assert answer.readline() == b"data: first\n"
        running.process.popen.send_signal(signal.SIGTERM)
        with pytest.raises((http.client.IncompleteRead, ConnectionError)):
            answer.read()
        end(running, token)
