import re
from collections.abc import Callable
from time import process_time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.credentials import KNOWN, has_userinfo, masked

from policies.guardrails.rules.credentials import _in_text
from rollout.changes.secrets import hidden_text

_BEGINNINGS = """
a. a- a: a:bbb a:b= = :// =a: $a:= ?sig= https:// a.token. eyJaaaaaaaa- eyJaaaaaaaa. eyJaaaaaaaa.eyJaaaaaaaa- sk-
sk-proj-a hf_a xoxb- nvapi-a AIza AKIA ghp_a host=a; login=a;pass Bearer\t Basic\ta1 machine\ta\tlogin\t
hooks.slack.com/a/ -----BEGIN\t -----BEGIN\tPRIVATE\tKEY-----
"""
_LONG = 100_000


@pytest.mark.parametrize("unit", re.split(r"[ \n]+", _BEGINNINGS.strip("\n")))
@pytest.mark.parametrize(
    "look",
    [masked, hidden_text, has_userinfo, lambda t: [one.search(t) for _, one in KNOWN], lambda t: [*_in_text("f", t)]],
)
def test_a_long_text_of_beginnings_of_credentials_takes_time_linear_to_its_length(
    look: Callable[[str], object], unit: str
) -> None:
    """Quadratic patterns took 5 to 160 s each."""
    text = (unit.replace("\t", " ") * _LONG)[:_LONG]
    began = process_time()
    look(text)
    assert process_time() - began < 2


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("user:sesame@proxy.test", "•••@proxy.test"),
        ("HTTPS_PROXY=user:sesame@proxy.test", "HTTPS_PROXY=•••@proxy.test"),
        ("$USER:sesame@proxy.test", "$•••@proxy.test"),
        ("a:bbb=c$user:sesame@proxy.test", "a:bbb=c$•••@proxy.test"),
        ("git+ssh://me:sesame@db.test", "git+ssh://•••@db.test"),
        ("token-eyJhbGciOiJI.eyJzdWIiOiIx.c2ln", "token-•••"),
        ("registry.test/a:v1@sha256:0123", None),
        ("a:v1@sha256:0123", None),
        ("user:$(PASSWORD)@proxy.test", None),
        ("see a.b.c: d.e@f.test", None),
    ],
)
def test_credentials_are_masked_and_nothing_else(text: str, shown: str | None) -> None:
    assert masked(text) == (shown or text)


@given(st.text(st.sampled_from("ab=:/@$ '\"."), max_size=40))
def test_userinfo_is_found_in_every_masked_place(text: str) -> None:
    """These texts can contain no other credential than one in an address, which is masked first."""
    if "://" not in text:
        assert has_userinfo(text) == (masked(text) != text)
    assert masked(masked(text)) == masked(text)
