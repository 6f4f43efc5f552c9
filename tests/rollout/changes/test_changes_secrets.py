import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate_contracts.credentials import KNOWN, MASK

from rollout.changes.compare import field_changes
from rollout.changes.page import failed_page
from rollout.changes.secrets import hidden, hidden_text, is_secret_name

from ..conftest import made as any_made
from ..conftest import reported

SECRET = "hunter2-hunter2"


def made(**parts: Any) -> dict[str, Any]:
    return any_made("Deployment") | parts


def container(**parts: Any) -> dict[str, Any]:
    return {"spec": {"template": {"spec": {"containers": [{"name": "c", **parts}]}}}}


PLACES: list[dict[str, Any]] = [
    container(env=[{"name": "DB_PASSWORD", "value": SECRET}]),
    container(env=[{"name": "URL", "value": f"https://user:{SECRET}@host.test/path"}]),
    container(env=[{"name": "https_proxy", "value": f"user:{SECRET}@host.test:3128"}]),
    container(env=[{"name": "DSN", "value": f"host=db user=a password={SECRET} port=1"}]),
    container(env=[{"name": "HEADER", "value": f"Authorization: Bearer {SECRET}"}]),
    container(args=[f"--db-password={SECRET}"]),
    container(args=["--db-password", SECRET]),
    container(args=["serve", f"--header=Authorization: Basic {SECRET}"]),
    container(command=["sh", "-c", f"serve --token={SECRET} --port=1"]),
    container(livenessProbe={"httpGet": {"httpHeaders": [{"name": "X-Auth-Token", "value": SECRET}]}}),
    {"metadata": {"name": "it", "namespace": "ns", "annotations": {"example.com/password": SECRET}}},
    {"spec": {"parameters": {"clientSecret": SECRET}}},
    {"spec": {"csi": {"volumeAttributes": {"source": f"smb://u:{SECRET}@host/share"}}}},
    {"kind": "ConfigMap", "data": {"API_TOKEN": SECRET}},
    {"kind": "ConfigMap", "data": {"f.json": f'{{"upstream": {{"password": "{SECRET}", "host": "h"}}}}'}},
    {"kind": "ConfigMap", "data": {"f.ini": f"[db]\npassword = {SECRET}\n"}},
    {"kind": "Secret", "data": {"anything": SECRET}},
    {"kind": "Secret", "stringData": {"anything": SECRET}},
]


@pytest.mark.parametrize("parts", PLACES)
def test_a_secret_shows_neither_when_it_comes_nor_goes_nor_changes(parts: dict[str, Any]) -> None:
    other = json.loads(json.dumps(parts).replace(SECRET, "sesame-open"))
    without = made(kind=parts.get("kind", "Deployment"))
    for old, new in ((made(**parts), made(**other)), (without, made(**parts)), (made(**parts), without)):
        text = reported(old, new)
        assert " changed" in text
        values = repr([(field.old, field.new) for field in field_changes(old, new)])  # reports cut long texts
        for secret in (SECRET, "sesame-open"):
            assert secret not in text + values


@pytest.mark.parametrize(
    ("parts", "shown"),
    [
        (container(env=[{"name": "MODEL", "value": "bert"}]), "bert"),
        (container(env=[{"name": "TLS_KEY_FILE", "value": "/etc/tls/tls.key"}]), "/etc/tls/tls.key"),
        (container(args=["--grpc-server-key=/etc/tidegate/tls/tls.key"]), "/etc/tidegate/tls/tls.key"),
        (container(command=['secret=$(cat "/run/control/secret") && serve']), "$(cat"),
        (container(env=[{"name": "KEYS", "value": "false"}]), "false"),
        (container(env=[{"name": "TOKENIZER", "value": "bpe"}]), "bpe"),
        (container(image="registry.test/a@sha256:0123"), "registry.test/a@sha256:0123"),
        (container(image="a:1.0@sha256:0123"), "a:1.0@sha256:0123"),
        ({"spec": {"tls": [{"secretName": "my-tls"}]}}, "my-tls"),
        ({"spec": {"tolerations": [{"key": "nvidia.com/gpu"}, {"key": "b"}]}}, "nvidia.com/gpu"),
        ({"spec": {"topologyKey": "kubernetes.io/hostname"}}, "kubernetes.io/hostname"),
        ({"spec": {"note": "user may pass it on; the password is in a Secret"}}, "may pass it on; the password is"),
        ({"spec": {"dsn": "host=db user=x password=$(PASSWORD)"}}, "password=$(PASSWORD)"),
        ({"kind": "ConfigMap", "data": {"URL": "https://host.test:8443/path@v1"}}, "https://host.test:8443/path@v1"),
    ],
)
def test_values_that_are_no_secrets_are_shown(parts: dict[str, Any], shown: str) -> None:
    assert shown in json.dumps(hidden(made(**parts)))


def test_the_harmless_part_of_an_address_shows_and_a_change_of_its_secret_is_reported() -> None:
    one, other, elsewhere = (
        made(spec={"url": f"https://{who}@{host}/"}) for who, host in (("u:a1", "x"), ("u:b2", "x"), ("u:a1", "y"))
    )
    assert f"spec.url https://{MASK}@x/ → https://{MASK}@y/" in reported(one, elsewhere)
    assert "spec.url (values are not shown)" in reported(one, other)


def test_only_white_space_within_json_is_a_change_too_and_hides_its_secrets() -> None:
    one, other = (made(kind="ConfigMap", data={"f": f'{{"password":{gap}"{SECRET}"}}'}) for gap in ("", " "))
    text = reported(one, other)
    assert "1 changed" in text
    assert SECRET not in text


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ("password DB_PASSWD x-api-key apiKey HF_TOKEN AWS_SECRET_ACCESS_KEY clientSecret Cookie DB_PASS", True),
        ("HOME keyboard TOKENIZER_PATH passenger pass_through AZURE_STORAGE_AUTH_TYPE", False),
    ],
)
def test_names_of_secrets_and_other_names(names: str, expected: bool) -> None:
    assert {name: is_secret_name(name) for name in names.split()} == dict.fromkeys(names.split(), expected)


EXAMPLES = {
    "a private key": ("-----BEGIN RSA PRIVATE KEY-----\nMIIabc\n-----END RSA PRIVATE KEY-----", "MIIabc"),
    "an AWS access key": ("AKIA" + "A1B2" * 4,) * 2,
    "a GitHub token": ("ghp_" + "a1B2c3" * 6,) * 2,
    "a Google API key": ("AIza" + "a1B2c" * 7,) * 2,
    "a Slack token": ("xoxb-" + "1234567890-abc",) * 2,
    "an NGC key": ("nvapi-" + "a1B2" * 10,) * 2,
    "a Hugging Face token": ("hf_" + "a1B2c3" * 5,) * 2,
    "a JSON web token": ("eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0dXJl",) * 2,
    "a password in an address": ("postgres://me:sesame@db.test/x", "sesame"),
    "an authorization header": ("Bearer " + "a1B2" * 5, "a1B2" * 5),
    "an API key": ("sk-proj-" + "a1B2" * 5,) * 2,
    "a Slack webhook": ("https://hooks.slack.com/services/T000/B000/xyzxyz", "xyzxyz"),
    "a signed address": ("https://a.test/x?sv=1&sig=a1B2c3D4e5F6g7H8%3D&se=2", "a1B2c3D4e5F6g7H8"),
    "a password in a connection string": ("host=db user=x pass sesame", "sesame"),
}


def test_every_look_that_the_guardrail_knows_is_tried_here() -> None:
    assert list(EXAMPLES) == [name for name, _ in KNOWN]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        *EXAMPLES.values(),
        ("sk-" + "a1B2" * 8,) * 2,
        ("https://a.test/x?sig=a1B2c3D4e5F6g7H8", "a1B2c3D4e5F6g7H8"),
        ("host=db user=x pass=sesame", "sesame"),
        ("machine db.test login me password sesame", "sesame"),
    ],
)
def test_secrets_that_the_guardrail_recognises_are_hidden_in_report_and_page(text: str, secret: str) -> None:
    assert any(pattern.search(text) for _, pattern in KNOWN)
    for value in (text, f"see {text} there", f"one\n{text}\ntwo"):
        one, other = made(spec={"note": "none"}), made(spec={"note": value})
        values = [field.new for field in field_changes(one, other)]
        for shown in (reported(one, other), reported(other, one), repr(values), failed_page("It", value)):
            assert secret not in shown


_TEXTS = st.text(st.sampled_from("abK =:/@-_.'\"${}\n•") | st.characters(), max_size=60)


@given(text=_TEXTS)
def test_hiding_twice_hides_no_more(text: str) -> None:
    once = hidden_text(text)
    assert hidden_text(once) == once


_TREES = st.recursive(
    st.none() | st.booleans() | st.integers() | _TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_TEXTS, inner, max_size=4),
    max_leaves=12,
)


@given(tree=st.dictionaries(st.sampled_from(["spec", "data", "kind", "metadata"]), _TREES))
def test_an_object_keeps_its_shape_with_any_content(tree: dict[str, Any]) -> None:
    def shape(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: shape(inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [shape(inner) for inner in value]
        return str if isinstance(value, str) else value

    assert shape(hidden(tree)) == shape(tree)
    assert hidden(tree) == hidden(tree)
