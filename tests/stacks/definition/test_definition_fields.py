"""What single values of a definition may be: forms, bounds, types."""

from typing import Any

import pytest

from stacks.definition.base import byte_count, quantity_value
from tests.cases import GONE
from tests.stacks.definition.examples import PRODUCT, assert_refused, edited_at, only_problem, problems

COLD = "servers/main/pools/cold"
TRITON = "servers/main/triton"
NODES: dict[str, Any] = {"nodes": 1, "product": PRODUCT, "perNode": 1}
GROUP = "dataPlanes/lab/gpus/1"
ROUTE = {"kind": "http-route", "host": "i.example.com", "gateway": "g", "gatewayNamespace": "n"}
LONG = "a" * 64

# What is wrong whatever else is said: the value, and the piece of the line that is pointed at. That no bound changes
# by accident is shown by docs/definition.schema.json, which is written from the model.
WRONG: tuple[tuple[str, Any, str], ...] = (
    # names
    ("environments/dev/namespace", "Dev", "namespace: »Dev"),
    ("environments/dev/namespace", LONG, f"namespace: »{LONG}"),
    ("environments/dev/namespace", "dev\n", "namespace: »'dev"),
    ("environments/prod/promotion", {"groups": ["team-*"]}, "- »team-*"),
    ("environments/prod/promotion", {"principals": ["al?ce"]}, "- »al?ce"),
    ("models/churn/name", "../x", "name: »../x"),
    ("models/churn/servedNames", ["meta//llama"], "- »meta//llama"),
    ("models/churn/servedNames", ["meta/../llama"], "- »meta/../llama"),
    ("models/churn/servedNames", ["meta/"], "- »meta/"),
    ("models/churn/servedNames", ["/meta"], "- »/meta"),
    ("models/churn/servedNames", [":8b"], "- »:8b"),
    ("models/churn/servedNames", ["a" * 256], f"- »{'a' * 256}"),
    ("models/churn/alias", "latest", "alias: »latest"),  # MLflow keeps it for itself, and v1, v2, … too
    ("models/churn/alias", "v12", "alias: »v12"),
    ("proxy/priorityClass", "a..b", "priorityClass: »a..b"),
    # labels
    ("environments/dev/labels", {"a b": "x"}, "»a b: x"),
    ("environments/dev/labels", {"Example.com/a": "x"}, "»Example.com/a: x"),
    ("environments/dev/labels", {"a": LONG}, f"a: »{LONG}"),
    ("environments/dev/labels", {"a": "-x"}, "a: »-x"),
    ("environments/dev/annotations", {"": "x"}, "? »''"),
    (f"{COLD}/nodeSelector", {"pool": "a b"}, "pool: »a b"),
    # images
    ("images/proxy/tag", "a:b", "tag: »a:b"),
    ("images/proxy/tag", "latest", "tag: »latest"),  # it moves with every push
    ("images/proxy/repository", "Proxy", "repository: »Proxy"),
    ("images/proxy/repository", "proxy:5000", "repository: »proxy:5000"),  # a tag, not a port
    ("images/proxy/repository", "https://registry/proxy", "repository: »https"),
    ("images/proxy/repository", "a@sha256:" + "0" * 64, "repository: »a@sha256"),
    ("dataPlanes/lab/registries", {"nvcr.io": "https://mirror"}, "nvcr.io: »https"),
    ("dataPlanes/lab/registries", {"https://nvcr.io": "mirror"}, "»https"),
    # quantities
    ("proxy/bodyLimit", "64 Mi", "bodyLimit: »64 Mi"),
    ("proxy/bodyLimit", "0", "bodyLimit: »'0'"),
    ("proxy/bodyLimit", "1500m", "bodyLimit: »1500m"),
    ("proxy/bodyLimit", "64Mi\n", "bodyLimit: »'64Mi"),
    ("proxy/bodyLimit", "٣Gi", "bodyLimit: »٣Gi"),
    ("proxy/bodyLimit", 64, "bodyLimit: »64"),
    ("proxy/resources/cpu", 1, "cpu: »1"),
    ("proxy/resources/cpu", "99999999999999999999Gi", "cpu: »99999999999999999999Gi"),
    ("proxy/resources/cpu", "0m", "cpu: »0m"),
    ("proxy/resources/cpu", "0.0001", "cpu: »'0.0001'"),  # Kubernetes knows thousandths of a core
    ("models/churn/footprint", "1" + "0" * 400, "footprint: »'1000"),
    ("models/churn/footprint", "9223372036854775808", "footprint: »'9223372036854775808'"),  # one more than 64 bits
    ("models/churn/footprint", "9300P", "footprint: »9300P"),
    # numbers
    ("models/churn/versions", [{"version": 2**53 + 1, "weight": 100}], "version: »90071"),  # JSON's numbers
    ("proxy/bodyLimit", "9Pi", "bodyLimit: »9Pi"),  # beyond JSON's numbers
    ("proxy/tracing", {"endpoint": "collector:4318"}, "endpoint: »collector"),
    (f"{TRITON}/environment", {"A-B": "x"}, "»A-B: x"),
    (f"{TRITON}/extraArguments", ["log-info"], "- »log-info"),
    (f"{TRITON}/extraArguments", ["--a b"], "- »--a b"),
    # addresses
    ("network/callers/ingress/cidr", "10.0.0.1/8", "cidr: »10.0.0.1/8"),
    ("network/callers/ingress/cidr", "10.0.0.0/255.0.0.0", "cidr: »10.0.0.0/255"),
    ("network/callers/ingress/cidr", "10.0.0.0/08", "cidr: »10.0.0.0/08"),
    ("network/callers/ingress/cidr", "fe80::%eth0/64", "cidr: »fe80::%eth0/64"),
    ("network/reach/identity/ports", [0], "- »0"),
    ("network/reach/identity/except", ["10.2.0.0"], "- »10.2.0.0"),
    ("proxy/auth/oidc/0/issuer", "idp.example.com", "issuer: »idp.example.com"),
    ("proxy/auth/oidc/0/issuer", "https://user@idp.example.com", "issuer: »https"),
    *(
        ("proxy/auth/oidc/0/jwksUrl", f"https://{where}/certs", "jwksUrl: »https")
        for where in ("[2001:db8::7", "idp.example.com:a", "idp.example.com:0", ":8443", "10.0.0.256", "[fe80::1%a]")
    ),
    ("proxy/exposure", {"kind": "ingress", "host": "I.example.com"}, "host: »I.example.com"),
    ("proxy/exposure", {"kind": "ingress", "host": "i", "path": "x"}, "path: »x"),
    ("proxy/exposure", {"kind": "ingress", "host": "i", "path": "/a/../b"}, "path: »/a/../b"),
    ("proxy/exposure", {"kind": "ingress", "host": "i", "path": "/."}, "path: »/."),
    ("proxy/exposure", {"kind": "ingress", "host": "i", "path": "/a%2Fb"}, "path: »/a%2Fb"),
    ("proxy/exposure", {"kind": "load-balancer", "sourceRanges": ["10.0.0.1/8"]}, "- »10.0.0.1/8"),
    (f"{COLD}/autoscaling", {"kind": "queue", "min": 1, "max": 1, "prometheusAddress": "http:// x"},
     "prometheusAddress: »http:// x"),
    (f"{COLD}/autoscaling", {"kind": "queue", "min": 1, "max": 1}, "»autoscaling:"),
    # datasets and repositories
    ("datasets", [{"name": "models", "kind": "efs", "fileSystemId": "0a1b"}], "fileSystemId: »0a1b"),
    ("datasets", [{"name": "models", "kind": "nfs", "server": "n", "path": "/a/../b"}], "path: »/a/../b"),
    ("datasets", [{"name": "models", "kind": "hostPath", "path": "/a/.."}], "path: »/a/.."),
    ("datasets", [{"name": "models", "kind": "hostPath", "path": "/a\n"}], "path: »'/a"),
    ("servers/main/repository", {"dataset": "models", "path": "/x"}, "path: »/x"),
    ("servers/main/repository", {"dataset": "models", "path": "a//b"}, "path: »a//b"),
    ("servers/main/repository", {"url": "s3://b", "dataset": "models"}, ""),
    ("servers/main/identity", {"cloud": "aws", "roleArn": "role"}, "roleArn: »role"),
    # GPUs
    (f"{COLD}/placement", {"kind": "mig", "profile": "1g10gb"}, "profile: »1g10gb"),
    (f"{COLD}/placement", {"kind": "mig", "profile": "1g.0gb"}, "profile: »1g.0gb"),
    (f"{COLD}/placement", {"kind": "mig", "profile": "1g." + "9" * 5_000 + "gb"}, "profile: »1g.999"),
    (f"{COLD}/placement", {"kind": "mig", "profile": "1g.10gb", "product": "A 100"}, "product: »A 100"),
    (f"{COLD}/placement", {"kind": "dra", "profile": "1g.10gb", "product": "A' || true"}, "product: »A' || true"),
    (f"{COLD}/placement", {"kind": "mig"}, "»placement:"),
    (GROUP, {**NODES, "product": f"{PRODUCT}-MIG-1g.10gb"}, "product: »NVIDIA"),
    (GROUP, {**NODES, "mig": []}, "»mig: []"),
    (GROUP, {**NODES, "mig": [{"gpus": 99, "slices": {}}]}, "gpus: »99"),
    (GROUP, {**NODES, "mig": [{"slices": {"2g.20gb": 1}}] * 17}, "»nodes"),
    (GROUP, {**NODES, "mig": {"slices": {"big": 1}}}, "»big: 1"),
    ("datasets/models/server", "10.0.0.500", "server: »10.0.0.500"),
    ("datasets/models/server", "10.0.0.0/8", "server: »10.0.0.0/8"),
    # what is needed
    ("servers/main/pools", [], "»pools: []"),
    ("servers/main/repository", GONE, "- »name: main"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "value", "at"), WRONG, ids=[f"{path}={str(value)[:40]}" for path, value, _ in WRONG])
def test_a_wrong_value_is_said_once_at_its_place(path: str, value: Any, at: str) -> None:
    alone = {"environments/prod/datasets": GONE} if path == "datasets" else {}
    assert_refused(edited_at({**alone, path: value}), at)


RIGHT: tuple[tuple[str, Any], ...] = (
    ("environments/dev/namespace", "a" * 63),
    ("environments/dev/labels", {"example.com/team": "", "a": "A_b.c-9"}),
    ("environments/dev/annotations", {"example.com/Team": "anything at all: ü"}),
    ("models/churn/name", "Churn_2.onnx-a"),
    ("models/churn/versions", [{"version": 2**53, "weight": 100}]),
    ("dataPlanes/lab/registries", {"nvcr.io": "mirror.example.com:5000/nv/c"}),
    ("proxy/bodyLimit", "1.5Mi"),
    ("proxy/resources", {"cpu": "0.25", "memory": "1G"}),
    ("network/callers/ingress/cidr", "2001:db8::/32"),
    ("network/reach/identity/ports", [1, 443, 65535]),
    ("datasets/models/server", "10.0.0.5"),
    ("datasets/models/server", "fd00::5"),
    ("proxy/exposure", {"kind": "load-balancer", "sourceRanges": ["10.0.0.0/8"], "annotations": {"a/b": ""}}),
    ("proxy/exposure", {**ROUTE, "path": "/a/b", "listener": "https"}),
    ("proxy/exposure", {**ROUTE, "path": "/v2-models/.well-known/v2"}),
    ("proxy/auth/oidc/0/jwksUrl", "http://keycloak-http.domino-platform/certs"),
    ("servers/main/repository", {"dataset": "models", "path": "filecache/a-b_c.d"}),
    (f"{TRITON}/extraArguments",
     ["--backend-config=python,shm-default-byte-size=1048576", "--cache-config=local,size=1", "--rate-limit=off"]),
    (GROUP, {**NODES, "product": "NVIDIA-A30", "sharing": {"kind": "time-slicing", "replicas": 48}}),
    ("mesh", {"mode": "istio", "mtls": "PERMISSIVE"}),
    ("proxy/auth/authorities", [{"name": "ours", "secret": "bank-ca", "key": "ca-chain.pem"}]),
    ("proxy/auth/oidc/0/jwksUrl", "https://[2001:db8::7]:8443/certs"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "value"), RIGHT, ids=[f"{path}={str(value)[:40]}" for path, value in RIGHT])
def test_a_right_value_is_let_through(path: str, value: Any) -> None:
    assert problems(edited_at({path: value})) == []


@pytest.mark.parametrize(
    ("quantity", "count"),
    [("1", 1), ("1k", 1000), ("1Ki", 1024), ("1.5Gi", 3 * 2**29), ("2M", 2 * 10**6), ("1Pi", 2**50), ("1000m", 1)],
)
def test_a_quantity_has_the_value_that_kubernetes_gives_it(quantity: str, count: int) -> None:
    assert quantity_value(quantity) == count
    assert byte_count(quantity) == count


@pytest.mark.parametrize("quantity", ["", "1 Gi", "Gi", "1e3", "+1", "-1", "1GiB", "0x1", "1_000", "१", "1\n", "1Gi\n"])
def test_what_is_no_quantity_has_no_value(quantity: str) -> None:
    with pytest.raises(ValueError, match="is no Kubernetes quantity"):
        quantity_value(quantity)


@pytest.mark.parametrize("runbooks", ["docs/runbooks.html", "https://:8443/runbooks.html"])
def test_a_page_that_is_none_is_answered_with_an_address_of_a_page(runbooks: str) -> None:
    found = only_problem(edited_at({"monitoring/runbooks": runbooks}))
    assert "idp" not in str(found)
    assert "https://docs.example.com/runbooks.html" in str(found) or "names no host" in str(found)
