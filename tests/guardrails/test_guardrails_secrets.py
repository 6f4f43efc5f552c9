"""Credentials: what looks like one is found, what only sounds like one is not."""

import json
from itertools import chain
from typing import Any

from .stacks import PROXY, SMALL, Broken, Edit, Kept, Objects, adding, at, container, findings, prod, thing

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


BROKEN: Broken = {
    (RULE, "Secret/keys"): [
        (adding(thing("Secret", "keys", data={"a": "Yg=="})), "a Secret with its data"),
    ],
    (RULE, STATEFUL_SET): [
        (variable("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI"), "variable AWS_SECRET_ACCESS_KEY"),
        (variable("HF_TOKEN", "abcdefgh"), "variable HF_TOKEN"),
        (variable("NOTE", f"use {AWS}"), "holds an AWS access key"),
        (variable("HTTPS_PROXY", "http://bob:" + "sesame@web-proxy:3128"), "a password in an address"),
        (variable("HTTPS_PROXY", "bob:" + "sesame@web-proxy:3128"), "variable HTTPS_PROXY holds a"),
        (
            at("StatefulSet", SMALL, "spec/template/metadata/annotations", {"example.com/api-key": "hunter2hunter2"}),
            "spec.template.metadata.annotations.example.com/api-key looks like a credential",
        ),
        (words("--password=hunter2"), "argument --password"),
        (words("--api-key", "hunter2"), "argument --api-key"),
        (words(f"--header=Authorization: Bearer {'a1' * 12}"), "an authorization header"),
    ],
    (RULE, f"Service/{PROXY}"): [
        (annotated("hunter2hunter2", "example.com/password"), "password looks like a cred"),
        (annotated(f"Bearer {JWT}"), "a JSON web token"),
        (annotated(f"token {GITHUB}"), "a GitHub token"),
    ],
    (RULE, FURTHER): [
        (data("key.pem", KEY), "data.key.pem holds a private key"),
        (data("CLIENT_SECRET", "hunter2"), "data.CLIENT_SECRET looks like a credential"),
        (data("app.yaml", "user: me\npassword: hunter2\n"), "data.app.yaml gives password"),
        (data("app.ini", "[db]\nclient_secret = hunter2\n"), "gives client_secret"),
        (data("app.json", json.dumps({"a": [{"clientSecret": "hunter2"}]}, indent=1)), "clientSecret"),
    ],
}
KEPT: Kept = {
    RULE: [
        adding(thing("Secret", "empty", type="Opaque")),
        reference("HF_TOKEN"),
        variable("HF_TOKEN", ""),
        variable("HF_TOKEN", "$(HF_TOKEN_OF_TEAM)"),
        variable("HF_TOKEN_PATH", "/var/run/token"),
        variable("GOOGLE_APPLICATION_CREDENTIALS", "/var/run/gcp/key.json"),
        variable("MAX_TOKENS", "4096"),
        variable("SECRET_NAME", "model-keys"),
        variable("MONKEY", "business"),
        variable("CONTACT", "mailto:inference@example.com"),
        variable("IMAGE", "triton:26.08@sha256:0123"),
        words("--http-header=x-token-count"),
        words("--use-api-key", "--verbose"),
        words("reset-password", "somebody-else"),
        words("--model-repository=s3://https://minio.example.com:9000/models"),
        annotated("basic authentication-is-required-for-this-host"),
        data("app.yaml", "tls:\n  secret: inference-tls\n  tokenizer: bert\nmaxTokens: 12\n"),
        data("app.json", json.dumps({"secret": "inference-tls", "token": "", "accessKey": None}, indent=1)),
        data("run.sh", "token=$(cat /var/run/token)\npassword=$PASSWORD\n"),
        data("ca.crt", "-----BEGIN CERTIFICATE-----\nMIIE\n"),
    ],
}


def test_no_finding_says_a_secret() -> None:
    said = ""
    for edit, _ in chain.from_iterable(BROKEN.values()):
        objects: Objects = prod()
        edit(objects)
        said += "".join(map(str, findings(objects)))
    assert RULE in said
    assert [value for value in (AWS, GITHUB, JWT, "hunter2", "sesame", "Yg==") if value in said] == []
