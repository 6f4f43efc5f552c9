"""`DOMINO_INFERENCE_PROXY`: a host, a host and port, or a URL."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate.calling.address import VARIABLE, proxy_url
from tidegate.errors import UsageError


@pytest.mark.parametrize(
    ("said", "url"),
    [
        ("inference.example.com", "https://inference.example.com"),
        ("inference.example.com:443", "https://inference.example.com"),
        ("inference-proxy.inference-dev", "https://inference-proxy.inference-dev"),
        ("inference-proxy.inference-dev:80", "http://inference-proxy.inference-dev"),
        ("inference-proxy-service:8443", "https://inference-proxy-service:8443"),
        ("http://127.0.0.1:8080/", "http://127.0.0.1:8080"),
        ("https://Models.Example.com/prod/", "https://models.example.com/prod"),
        ("http://proxy:80", "http://proxy"),
        ("http://proxy:443", "http://proxy:443"),
        ("[::1]:8080", "https://[::1]:8080"),
        ("  proxy  ", "https://proxy"),
    ],
)
def test_an_address_is_a_host_a_host_and_port_or_a_url(said: str, url: str) -> None:
    assert proxy_url(said) == url
    assert proxy_url(None, {VARIABLE: said}) == url


@pytest.mark.parametrize(
    "said",
    [
        "ftp://proxy", "proxy:port", "proxy:99999", "https://", "a b", "https://proxy/../x", "proxy?x=1", "proxy/#x",
        "[::1", "-proxy", "http://proxy/a b", "http:proxy",
    ],
)  # fmt: skip
def test_what_is_no_address_is_refused(said: str) -> None:
    with pytest.raises(UsageError, match=r"no address|scheme"):
        proxy_url(said)


def test_without_an_address_it_is_said_what_to_set() -> None:
    with pytest.raises(UsageError, match=VARIABLE):
        proxy_url(None, {})


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(UsageError) as caught:
        proxy_url("https://ada:s3cret@proxy")
    assert "s3cret" not in str(caught.value)


@given(st.text(max_size=40))
def test_whatever_is_said_is_an_address_or_refused(said: str) -> None:
    try:
        url = proxy_url(said)
    except UsageError:
        return
    assert url.startswith(("http://", "https://"))
    assert proxy_url(url) == url
    assert not set(url) & set(" \r\n\t@?#\\")
