"""Issuers and Domino with certificates of a private authority, as real HTTPS servers."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import pytest
from tidegate_contracts import proxy_process

from lab.local_cluster.certificates import Authority

from ..access.provider import DominoFake
from ..http.running_proxy import RunningProxy, request, running_proxy
from ..rigs.issuer import Issuer, answering, issuer
from ..rigs.tables import GROUP, access_table

pytestmark = pytest.mark.anyio
KEY = "0123456789abcdef"


@dataclass
class Bank:
    """An issuer and a Domino, each with a certificate of another authority, and the proxy's files."""

    root: Path
    provider: Issuer
    domino: str
    of_issuer: Authority
    of_domino: Authority

    def mount(self, **authorities: bytes) -> None:
        """Mount exactly these authorities at once, as the pod's volume does."""
        folder, link = Path(mkdtemp(dir=self.root)), self.root / "link"
        for name, pem in authorities.items():
            (folder / proxy_process.authority_file(name)).write_bytes(pem)
        link.symlink_to(folder)
        link.replace(self.root / "authorities")

    @property
    def settings(self) -> dict[str, Any]:
        return {"access": access_table([self.provider]), "domino_principal_url": self.domino}

    async def statuses(self, here: RunningProxy) -> tuple[int, int]:
        token = self.provider.token("alice", [GROUP])
        by_token = await here.ask(request("/whoami", method="GET", key=None, Authorization=f"Bearer {token}"))
        by_key = await here.ask(request("/whoami", method="GET", key=None, X_Domino_Api_Key=KEY))
        return by_token.status, by_key.status


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[Bank]:
    of_issuer, of_domino, known = Authority(), Authority(), DominoFake()
    known.known = {("X-Domino-Api-Key", KEY): {"canonicalName": "bob"}}
    certificate = of_domino.write(tmp_path / "domino", "domino")
    of_provider = of_issuer.write(tmp_path / "issuer", "idp")
    (tmp_path / "proxy").mkdir()
    with issuer(certificate=of_provider) as provider, answering(known.answer, certificate) as domino:
        assert provider.url.startswith("https://")
        yield Bank(tmp_path / "proxy", provider, f"{domino}/v4/auth/principal", of_issuer, of_domino)


async def test_a_private_authority_is_trusted_as_soon_as_it_is_mounted(bank: Bank) -> None:
    bank.mount(stranger=Authority().pem)
    async with running_proxy(bank.root, authorities=True, **bank.settings) as here:
        authorities = here.proxy.config.watched[-1]
        assert await bank.statuses(here) == (503, 503)
        # Several in a file, with text between them, as in bundles.
        bank.mount(corporate=Authority().pem + "# die Bank für Geld\n".encode() + bank.of_issuer.pem)
        await authorities.look()
        assert await bank.statuses(here) == (200, 503)
        bank.mount(corporate=bank.of_issuer.pem, domino=bank.of_domino.pem)
        await authorities.look()
        assert await bank.statuses(here) == (200, 200)
        # An unreadable one changes nothing.
        bank.mount(corporate=b"nonsense")
        await authorities.look()
        assert authorities.last_error == "corporate.crt contains no certificates in PEM format"
        assert await bank.statuses(here) == (200, 200)


async def test_without_the_setting_mounted_authorities_are_ignored(bank: Bank) -> None:
    bank.mount(corporate=bank.of_issuer.pem, domino=bank.of_domino.pem)
    async with running_proxy(bank.root, **bank.settings) as here:
        assert await bank.statuses(here) == (503, 503)
