"""Issuers and Domino behind a private certificate authority: the proxy's own process, and real servers of HTTPS."""

import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from urllib.error import HTTPError

import pytest
from tidegate_contracts import proxy_process

from lab.local_cluster.certificates import Authority
from lab.local_plane.proxy import Proxy, proxy, write_tables

from ..rigs.issuer import Issuer, answering, issuer
from ..rigs.tables import GROUP, access_table, routing_table
from .provider import DominoFake

KEY = "0123456789abcdef"


@dataclass
class Bank:
    """An issuer and a Domino, each with a certificate that its own authority vouches for; and the proxy's files."""

    root: Path
    provider: Issuer
    domino: str
    of_issuer: Authority
    of_domino: Authority

    def mount(self, **authorities: bytes) -> None:
        """Let exactly these authorities be mounted, at once as the pod's volume has them."""
        folder, link = Path(mkdtemp(dir=self.root)), self.root / "link"
        for name, pem in authorities.items():
            (folder / proxy_process.authority_file(name)).write_bytes(pem)
        link.symlink_to(folder)
        link.replace(self.root / "authorities")

    def by_token(self, running: Proxy) -> int:
        return status(running, Authorization=f"Bearer {self.provider.token('alice', [GROUP])}")


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    of_issuer, of_domino, known = Authority(), Authority(), DominoFake()
    known.known = {("X-Domino-Api-Key", KEY): {"canonicalName": "bob"}}
    certificate = of_domino.write(tmp_path / "domino", "domino")
    of_provider = of_issuer.write(tmp_path / "issuer", "idp")
    with issuer(certificate=of_provider) as provider, answering(known.answer, certificate) as domino:
        made = Bank(tmp_path / "proxy", provider, f"{domino}/v4/auth/principal", of_issuer, of_domino)
        write_tables(made.root, routing_table(1, 2, ["m"]), access_table([provider]))
        yield made


def status(running: Proxy, **headers: str) -> int:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    try:
        with urllib.request.urlopen(urllib.request.Request(f"http://{running.http}/whoami", headers=names)) as answer:
            return int(answer.status)
    except HTTPError as error:
        return error.code


def test_who_a_private_authority_vouches_for_is_believed_as_soon_as_it_is_mounted(bank: Bank) -> None:
    assert bank.provider.url.startswith("https://")
    bank.mount(stranger=Authority().pem)
    with proxy(bank.root, settings={"authorities": "true", "domino_principal_url": bank.domino}) as running:
        assert (bank.by_token(running), status(running, X_Domino_Api_Key=KEY)) == (503, 503)

        def until_answered(by_token: int, by_domino: int) -> None:
            deadline = time.monotonic() + 15
            wanted = by_token, by_domino
            while (found := (bank.by_token(running), status(running, X_Domino_Api_Key=KEY))) != wanted:
                assert time.monotonic() < deadline, found
                time.sleep(0.2)

        # Several in a file, with words between them, as bundles have it.
        bank.mount(corporate=Authority().pem + "# die Bank für Geld\n".encode() + bank.of_issuer.pem)
        until_answered(200, 503)
        bank.mount(corporate=bank.of_issuer.pem, domino=bank.of_domino.pem)
        until_answered(200, 200)
        # What cannot be read changes nothing; an authority that is gone is believed no longer.
        bank.mount(corporate=b"nonsense")
        told, log = "corporate.crt holds no certificates in PEM", running.process.log
        running.process.wait_until(lambda: told in log.read_text("utf-8"))
        assert status(running, X_Domino_Api_Key=KEY) == 200


def test_without_it_nobody_is_believed_whatever_lies_there(bank: Bank) -> None:
    bank.mount(corporate=bank.of_issuer.pem, domino=bank.of_domino.pem)
    with proxy(bank.root, settings={"domino_principal_url": bank.domino}) as running:
        assert (bank.by_token(running), status(running, X_Domino_Api_Key=KEY)) == (503, 503)
