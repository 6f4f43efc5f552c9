"""Credentials: what looks like one is found, what only sounds like one is not."""

import json
from typing import Any

import pytest

from .stacks import PROXY, SMALL, Case, Edit, Objects, adding, at, container, findings, prod, thing

RULE = "secrets-are-never-inline"
STATEFUL_SET, FURTHER = f"StatefulSet/{SMALL}", "ConfigMap/further"
# Made up here, and put together so that nobody's scanner takes this file for a leak.
AWS, GITHUB = "AKIA" + "ABCDEFGHIJKLMNOP", "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8"
JWT = ".".join(("eyJhbGciOiJIUzI1NiJ9", "eyJzdWIiOiIxMjM0NSJ9", "c2lnbmF0dXJl"))
KEY = "-----BEGIN " + "RSA PRIVATE KEY-----\nMIIE\n"


def variable(name: str, value: Any) -> Edit:
    return lambda objects: container(objects, SMALL).setdefault("env", []).append({"name": name, "value": value})


def reference(name: str) -> Edit:
    source = {"name": name, "valueFrom": {"secretKeyRef": {"name": "s", "key": "k"}}}
    return lambda objects: container(objects, SMALL).setdefault("env", []).append(source)


def words(*words: str) -> Edit:
    return lambda objects: container(objects, SMALL)["args"].extend(words)


def data(key: str, value: str) -> Edit:
    return adding(thing("ConfigMap", "further", data={key: value}))


def annotated(value: str, name: str = "example.com/note") -> Edit:
    return at("Service", PROXY, "metadata/annotations", {name: value})


BROKEN = (
    Case(RULE, adding(thing("Secret", "keys", data={"a": "Yg=="})), "Secret/keys", "a Secret with its data"),
    Case(RULE, adding(thing("Secret", "keys", stringData={"a": "b"})), "Secret/keys", "a Secret with its data"),
    Case(RULE, variable("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"), STATEFUL_SET, "variable AWS_SECRET_ACCESS_KEY"),
    Case(RULE, variable("HF_TOKEN", "abcdefgh"), STATEFUL_SET, "variable HF_TOKEN"),
    Case(RULE, variable("DB_PASSWORD", "hunter2"), STATEFUL_SET, "variable DB_PASSWORD"),
    Case(RULE, variable("SERVICE_APIKEY", "k3y"), STATEFUL_SET, "variable SERVICE_APIKEY"),
    Case(RULE, variable("NOTE", f"use {AWS}"), STATEFUL_SET, "holds an AWS access key"),
    Case(
        RULE, annotated("Zx81kkLMn", "example.com/auth-token"), f"Service/{PROXY}", "auth-token looks like a credential"
    ),
    Case(RULE, annotated("hunter2hunter2", "example.com/password"), f"Service/{PROXY}", "password looks like a cred"),
    Case(RULE, words("--password=hunter2"), STATEFUL_SET, "argument --password"),
    Case(RULE, words("--api-key", "hunter2"), STATEFUL_SET, "argument --api-key"),
    Case(RULE, words(f"--header=Authorization: Bearer {'a1' * 12}"), STATEFUL_SET, "an authorization header"),
    Case(
        RULE, words("--model-repository=s3://minio:" + "sesame@store/models"), STATEFUL_SET, "a password in an address"
    ),
    Case(RULE, annotated(f"Bearer {JWT}"), f"Service/{PROXY}", "a JSON web token"),
    Case(RULE, annotated(f"token {GITHUB}"), f"Service/{PROXY}", "a GitHub token"),
    Case(RULE, data("key.pem", KEY), FURTHER, "data.key.pem holds a private key"),
    Case(RULE, data("CLIENT_SECRET", "hunter2"), FURTHER, "data.CLIENT_SECRET looks like a credential"),
    Case(RULE, data("app.yaml", "user: me\npassword: hunter2\n"), FURTHER, "data.app.yaml gives password"),
    Case(RULE, data("app.ini", "[db]\nclient_secret = hunter2\n"), FURTHER, "gives client_secret"),
    Case(RULE, data("app.json", json.dumps({"a": [{"clientSecret": "hunter2"}]}, indent=1)), FURTHER, "clientSecret"),
)
KEPT = (
    Case(RULE, adding(thing("Secret", "empty", type="Opaque"))),
    Case(RULE, reference("HF_TOKEN")),
    Case(RULE, variable("HF_TOKEN", "")),
    Case(RULE, variable("HF_TOKEN", "$(HF_TOKEN_OF_TEAM)")),
    Case(RULE, variable("HF_TOKEN_PATH", "/var/run/token")),
    Case(RULE, variable("GOOGLE_APPLICATION_CREDENTIALS", "/var/run/gcp/key.json")),
    Case(RULE, variable("MAX_TOKENS", "4096")),
    Case(RULE, variable("TOKENIZERS_PARALLELISM", "maybe")),
    Case(RULE, variable("USE_TOKEN", "true")),
    Case(RULE, variable("SECRET_NAME", "model-keys")),
    Case(RULE, variable("MONKEY", "business")),
    Case(RULE, words("--http-header=x-token-count")),
    Case(RULE, words("--token-file=/var/run/token")),
    Case(RULE, words("--use-api-key", "--verbose")),
    Case(RULE, words("reset-password", "somebody-else")),
    Case(RULE, words("--model-repository=s3://https://minio.example.com:9000/models")),
    Case(RULE, annotated("basic authentication-is-required-for-this-host")),
    Case(RULE, annotated("nginx-ingress/auth-secret")),
    Case(RULE, data("app.yaml", "tls:\n  secret: inference-tls\n  tokenizer: bert\nmaxTokens: 12\n")),
    Case(RULE, data("app.json", json.dumps({"secret": "inference-tls", "token": "", "accessKey": None}, indent=1))),
    Case(RULE, data("run.sh", "token=$(cat /var/run/token)\npassword=$PASSWORD\n")),
    Case(RULE, data("ca.crt", "-----BEGIN CERTIFICATE-----\nMIIE\n")),
)


@pytest.mark.parametrize("value", [AWS, GITHUB, JWT, "hunter2", "sesame", "Yg=="])
def test_no_finding_says_a_secret(value: str) -> None:
    said = ""
    for case in BROKEN:
        objects: Objects = prod()
        case.edit(objects)
        said += "".join(map(str, findings(objects)))
    assert RULE in said
    assert value not in said
