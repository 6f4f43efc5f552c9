import time
from collections.abc import Iterator
from pathlib import Path

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.calling import credentials
from tidegate.calling.credentials import DominoToken, TokenFile, find_credential
from tidegate.calling.proxy import VARIABLE, ProxyClient, proxy_url
from tidegate.errors import UnreachableError, UsageError

from tests.proxy.http.upstream import Act, Upstream, by_turns, close, hang, head, raw, response, running_upstream


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("proxy.example.com:443", "https://proxy.example.com"),
        ("proxy.dev:80", "http://proxy.dev"),
        ("proxy:8443", "https://proxy:8443"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://Models.Example.com/prod/", "https://models.example.com/prod"),
        ("http://proxy:80", "http://proxy"),
        ("http://proxy:443", "http://proxy:443"),
        ("[::1]:8080", "https://[::1]:8080"),
        ("  proxy  ", "https://proxy"),
    ],
)
def test_an_address_is_a_host_a_host_and_port_or_a_url(text: str, url: str) -> None:
    assert proxy_url(text) == url
    assert proxy_url(None, {VARIABLE: text}) == url


@pytest.mark.parametrize(
    "text",
    [
        "ftp://proxy",
        "proxy:port",
        "proxy:99999",
        "https://",
        "a b",
        "https://proxy/../x",
        "proxy?x=1",
        "proxy/#x",
        "[::1",
        "-proxy",
        "http://proxy/a b",
        "http:proxy",
    ],
)
def test_an_invalid_address_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match=r"not an address|scheme"):
        proxy_url(text)


def test_a_missing_address_has_a_remedy_and_a_password_in_it_is_not_shown() -> None:
    with pytest.raises(UsageError, match=VARIABLE):
        proxy_url(None, {})
    with pytest.raises(UsageError) as caught:
        proxy_url("https://ada:s3cret@proxy")
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_an_address_or_refused(text: str) -> None:
    try:
        url = proxy_url(text)
    except UsageError:
        return
    assert url.startswith(("http://", "https://"))
    assert proxy_url(url) == url
    assert not set(url) & set(" \r\n\t@?#\\")


SECRET = "not-for-anybodys-eyes"
ALL = {
    "TIDEGATE_API_KEY": "key",
    "TIDEGATE_TOKEN": "token",
    "TIDEGATE_TOKEN_FILE": "/nowhere",
    "DOMINO_API_PROXY": "http://localhost:1",
    "DOMINO_USER_API_KEY": "domino",
}


def token(seconds: float) -> str:
    return jwt.encode({"exp": int(time.time() + seconds)}, "x" * 32, "HS256")


def send(text: str, status: int = 200) -> Act:
    return raw(response(text.encode(), status, "text/plain"))


@pytest.fixture
def domino() -> Iterator[Upstream]:
    with running_upstream() as running:
        yield running


def test_the_first_that_is_set_counts() -> None:
    found = [find_credential(dict(list(ALL.items())[first:])).source for first in range(len(ALL))]
    assert found == [*list(ALL)[:3], "Domino's access token", "DOMINO_USER_API_KEY"]
    assert find_credential({}).header() is None


def test_each_goes_in_the_header_that_it_belongs_into() -> None:
    assert find_credential({"TIDEGATE_API_KEY": " tgk_1\n"}).header() == ("X-API-Key", "tgk_1")
    assert find_credential({"TIDEGATE_TOKEN": "ey.1.2"}).header() == ("Authorization", "Bearer ey.1.2")
    assert find_credential({"DOMINO_USER_API_KEY": "0f"}).header() == ("X-Domino-Api-Key", "0f")


def test_in_a_domino_run_the_token_service_has_a_default_address() -> None:
    found = find_credential({"DOMINO_RUN_ID": "1"})
    assert isinstance(found, DominoToken)
    assert found._url == "http://localhost:8899/access-token"


@pytest.mark.parametrize("name", ["TIDEGATE_API_KEY", "TIDEGATE_TOKEN", "DOMINO_USER_API_KEY"])
def test_a_credential_that_no_header_can_hold_is_refused_and_not_shown(name: str) -> None:
    with pytest.raises(UsageError) as caught:
        find_credential({name: f"{SECRET}\r\nX-Evil: 1"})
    assert SECRET not in str(caught.value)
    assert name in str(caught.value)


def test_a_changed_token_file_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "token"
    found = TokenFile(file)
    with pytest.raises(UsageError, match="TIDEGATE_TOKEN_FILE"):
        found.header()
    file.write_text("first\n")
    assert found.header() == ("Authorization", "Bearer first")
    new = tmp_path / "new"
    new.write_text("second\n")
    new.replace(file)
    assert found.header() == ("Authorization", "Bearer second")


def test_dominos_token_is_fetched_once_and_renewed_before_it_expires(domino: Upstream) -> None:
    first, second = token(60), token(3600)
    domino.act = by_turns(send(first), send(second))
    found = DominoToken(f"http://{domino.http}/")
    assert found.header() == ("Authorization", f"Bearer {first}")
    assert found.header() == ("Authorization", f"Bearer {first}")
    assert [request.path for request in domino.requests] == ["/access-token"]
    found._until = time.monotonic()  # half of a minute has passed
    assert found.header() == ("Authorization", f"Bearer {second}")
    assert found._until - time.monotonic() == pytest.approx(3570, abs=5)
    domino.act = send("third")
    assert found.renew(), "it was refused"
    assert found.header() == ("Authorization", "Bearer third")


def test_a_token_service_that_starts_a_moment_later_fails_no_call(domino: Upstream) -> None:
    domino.act = by_turns(close, send("token"))
    assert DominoToken(f"http://{domino.http}").header() == ("Authorization", "Bearer token")


def test_while_domino_is_silent_the_old_token_serves(domino: Upstream) -> None:
    old = token(600)
    domino.act = by_turns(send(old), hang)
    found = DominoToken(f"http://{domino.http}", 0.2)
    assert found.header() == ("Authorization", f"Bearer {old}")
    found._until = time.monotonic()
    assert found.header() == ("Authorization", f"Bearer {old}")
    found._until = time.monotonic() - credentials._EARLY_SECONDS
    with pytest.raises(UnreachableError, match="Domino's token service returned no token"):
        found.header()


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [(send(SECRET, status), UnreachableError, str(status)) for status in (401, 404, 500)]
    + [(send(f"<html> {SECRET}"), UsageError, "not a valid credential")],
)
def test_a_malformed_token_is_not_shown(domino: Upstream, act: Act, kind: type[Exception], text: str) -> None:
    domino.act = act
    with pytest.raises(kind, match=text) as caught:
        DominoToken(f"http://{domino.http}").header()
    assert SECRET not in str(caught.value)


def test_nothing_that_is_printed_shows_a_secret(tmp_path: Path) -> None:
    (tmp_path / "token").write_text(SECRET)
    for name, value in {"TIDEGATE_API_KEY": SECRET, "TIDEGATE_TOKEN_FILE": str(tmp_path / "token")}.items():
        found = find_credential({name: value})
        assert found.header() is not None
        assert SECRET not in f"{found!r} {found} {found.source}"


DRIPS = raw(head(b"Content-Length: 500"), *[b"x"] * 500, pause=0.1)


@pytest.mark.parametrize("act", [hang, DRIPS], ids=["hangs", "drips"])
def test_a_request_to_domino_counts_towards_the_calls_time(domino: Upstream, act: Act) -> None:
    domino.act = act
    with running_upstream() as proxy:
        client = ProxyClient(f"http://{proxy.http}", DominoToken(f"http://{domino.http}"))
        begun = time.monotonic()
        with pytest.raises(UnreachableError, match="Domino's token service returned no token"):
            client.metadata("m", deadline=0.3)
        assert time.monotonic() - begun < 1.5
        assert proxy.requests == []


def test_a_password_in_the_address_of_dominos_service_is_not_shown(domino: Upstream) -> None:
    domino.act = send("token")
    for url in (f"http://u:{SECRET}@{domino.http}/", f"u:{SECRET}@{domino.http}"):
        assert DominoToken(url).header() == ("Authorization", "Bearer token")
    domino.act = send("", 404)
    for url in (f"http://u:{SECRET}@{domino.http}", f"http://u:{SECRET}@127.0.0.1:1"):
        with pytest.raises(UnreachableError) as caught:
            DominoToken(url).header(0.1)
        assert SECRET not in str(caught.value)
