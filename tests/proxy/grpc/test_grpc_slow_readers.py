"""Callers who do not read what they asked for: they hold their own calls, and neither the proxy's memory nor others."""

import time
from collections.abc import Iterator

import grpc
import hpack
import pytest

from lab.local_plane.proxy import Proxy, proxy, write_tables

from ..rigs.issuer import Issuer, issuer
from ..rigs.tables import GROUP, access_table, routing_table
from ..rigs.upstream import upstream
from .harness import HOST, SERVICE, Stub, infer_request, method
from .peer import HEADERS, WIDE, Peer, frame, request

MEGABYTE = 1 << 20
SIZE = 16_384


class Place:
    """A proxy as a process of its own, with a replica and who may call it."""

    def __init__(self, proxy: Proxy, stub: Stub, provider: Issuer) -> None:
        self.proxy = proxy
        self.stub = stub
        self.token = provider.token("alice", [GROUP], 600)

    @property
    def megabytes(self) -> float:
        return self.proxy.process.resident_bytes() / MEGABYTE

    def ask(self) -> None:
        with grpc.insecure_channel(f"{HOST}:{self.proxy.grpc_port}") as channel:
            said = (("authorization", f"Bearer {self.token}"),)
            method(channel, "ModelInfer")(infer_request(), metadata=said, timeout=10)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    root = tmp_path_factory.mktemp("slow")
    stub = Stub()
    stub.start()
    with issuer() as provider, upstream() as live:
        write_tables(root, routing_table(live.port, stub.port, ["echo", "large"]), access_table([provider]))
        with proxy(root) as running:
            made = Place(running, stub, provider)
            made.ask()
            yield made
    stub.stop()


def test_a_caller_who_asks_on_and_reads_nothing_is_read_no_further(place: Place) -> None:
    before = place.megabytes
    peer, encoder = Peer(place.proxy.grpc_port, WIDE), hpack.Encoder()
    path = f"/{SERVICE}/Nothing"
    peer.send(frame(HEADERS, 5, 1, request(path=path, encoder=encoder)))
    same = request(path=path, encoder=encoder)  # from the second on each has the same few bytes
    peer.sock.settimeout(1)
    sent, end, is_read = 3, time.monotonic() + 10, True
    while is_read and time.monotonic() < end:
        try:
            peer.sock.sendall(b"".join(frame(HEADERS, 5, number, same) for number in range(sent, sent + 4000, 2)))
        except TimeoutError:
            is_read = False
        sent += 4000
    assert not is_read
    assert place.megabytes - before < 16
    place.ask()
