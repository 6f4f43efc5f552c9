"""What may not happen by accident, above all in production."""

from __future__ import annotations

from typing import Any

import pytest

from stacks.rules import safety
from tests.stacks.definition.examples import GONE, Broken, Kept, check_broken, check_kept, edited_at, said_by

EVERYTHING = {"name": "all", "groups": ["*"]}
ROUTE = {"kind": "http-route", "host": "i.example.com", "gateway": "g", "gatewayNamespace": "gateways"}
PROD_MODELS = "environments/prod/datasets"
WRITERS = {"writers": ["data-scientists"]}
SHARED = 'production environment "prod" shares dataset "models" with environment "dev"'


def shared(dev: dict[str, Any], prod: dict[str, Any]) -> dict[str, Any]:
    """Datasets of dev and prod of one kind that differ in some keys."""
    return {
        "datasets": [{"name": "models", **WRITERS, **dev}],
        PROD_MODELS: [{"name": "models", "writers": ["deployers"], **prod}],
    }


EFS = {"kind": "efs", "fileSystemId": "fs-1"}
NFS = {"kind": "nfs", "server": "nfs.example.com"}
S3 = {"kind": "csi", "driver": "s3.csi.aws.com"}

BROKEN: tuple[Broken, ...] = (
    Broken(
        safety.host_paths_are_for_local_environments,
        {**shared({"kind": "hostPath", "path": "/a"}, {"path": "/b"}), "environments/dev/local": True},
        "kind: »hostPath",
        'dataset "models" is a hostPath, and environment "prod" is not local',
    ),
    Broken(
        safety.nobody_is_granted_everything_in_production,
        {"proxy/access/all": EVERYTHING},
        "- »name: all",
        'access rule "all" lets everybody call every model in production',
    ),
    Broken(
        safety.nobody_is_granted_everything_in_production,
        {"environments/prod/proxy": {"access": [{**EVERYTHING, "actions": ["infer"], "servers": ["main", "**"]}]}},
        "- »name: all",
        'access rule "all" lets everybody call every model in production',
    ),
    Broken(
        safety.secrets_are_never_written_inline,
        {"servers/main/triton": {"environment": {"HF_TOKEN": "x"}}},
        "HF_TOKEN: »x",
        "HF_TOKEN looks like a secret",
    ),
    Broken(
        safety.secrets_are_never_written_inline,
        {"servers/main/triton": {"environment": {"aws_secret_access_key": "x"}}},
        "aws_secret_access_key: »x",
        "keep credentials in a Secret",
    ),
    Broken(
        safety.the_proxy_can_reach_its_identity_provider,
        {"network/reach/identity/by": ["servers"]},
        "issuer: »https",
        "the proxy may not reach idp.example.com",
    ),
    Broken(
        safety.nobody_is_granted_everything_in_production,
        {"proxy/access/all": {**EVERYTHING, "servers": ["main"]}},
        "- »name: all",
        "lets everybody call every model in production",
    ),
    Broken(
        safety.production_shares_no_bucket_that_others_may_write,
        {
            "servers/main/repository": {"url": "s3://bucket/models", "writers": ["data-scientists"]},
            "network/reach/identity/by": ["proxy", "servers"],
        },
        "url: »s3",
        "data-scientists may write s3://bucket/models",
    ),
    Broken(
        safety.servers_can_reach_their_object_store,
        {"servers/main/repository": {"url": "s3://bucket/models"}},
        "url: »s3",
        "it cannot read s3://bucket/models",
    ),
    Broken(
        safety.somebody_may_call_the_proxy,
        {"network/callers": GONE},
        "»reach:",
        'nobody may call the proxy of environment "dev"',
        severity="advisory",
        number=2,
    ),
    Broken(
        safety.somebody_can_authenticate,
        {"proxy/auth": GONE},
        "»access:",
        'the proxy of environment "dev" has no way to know its callers',
        severity="advisory",
        number=2,
    ),
    Broken(
        safety.a_gateway_is_given_no_certificate_of_the_proxy,
        {"proxy/exposure": ROUTE, "proxy/tls": {"kind": "secret", "secret": "tls"}},
        "»kind: secret",
        "tls and an exposure of kind http-route cannot stand together",
    ),
    Broken(
        safety.production_shares_no_dataset_that_others_may_write,
        {PROD_MODELS: GONE},
        "- »name: models",
        f"{SHARED}, where data-scientists may write it",
    ),
    Broken(
        safety.production_shares_no_dataset_that_others_may_write,
        shared(EFS, {}),
        "- »name: models",
        SHARED,
    ),
    Broken(  # the dataset of one lies in that of the other
        safety.production_shares_no_dataset_that_others_may_write,
        shared(EFS, {"domino": {"datasetId": "d1"}}),
        "- »name: models",
        SHARED,
    ),
    Broken(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**EFS, "domino": {"datasetId": "d1"}}, {}),
        "- »name: models",
        SHARED,
    ),
    Broken(  # without an access point dev writes everywhere, below every access point too
        safety.production_shares_no_dataset_that_others_may_write,
        shared(EFS, {"accessPointId": "fsap-1"}),
        "- »name: models",
        SHARED,
    ),
    Broken(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**NFS, "path": "/models"}, {"path": "/models/prod"}),
        "- »name: models",
        SHARED,
    ),
    Broken(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**NFS, "path": "/models"}, {"path": "/models/"}),
        "- »name: models",
        SHARED,
    ),
    Broken(  # two handles, as the driver wants them, and one bucket
        safety.production_shares_no_dataset_that_others_may_write,
        shared(
            {**S3, "volumeHandle": "a", "volumeAttributes": {"bucketName": "models"}},
            {"volumeHandle": "b", "volumeAttributes": {"bucketName": "models"}},
        ),
        "- »name: models",
        SHARED,
    ),
    Broken(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({"kind": "csi", "driver": "d", "volumeHandle": "a"}, {}),
        "- »name: models",
        SHARED,
    ),
)
ISSUER = "https://idp.example.com/realm"
BROKEN += (
    Broken(
        "no_issuer_stands_twice",
        {"proxy/auth/oidc/1": {"issuer": ISSUER, "audiences": ["other"]}},
        f"issuer: »{ISSUER}",
        f"the issuer {ISSUER} stands twice",
    ),
)
SEVERAL = {"proxy/auth/oidc/1": {"issuer": f"{ISSUER}2", "audiences": ["proxy"]}}
BROKEN += (
    Broken(
        safety.access_rules_say_who_vouches_where_several_do,
        {**SEVERAL, "proxy/access/callers": {"groups": ["callers"], "principals": []}},
        "»- callers",
        f'access rule "callers" does not say who vouches for its groups: {ISSUER}, {ISSUER}2 may each',
        severity="advisory",
    ),
    Broken(
        safety.access_rules_say_who_vouches_where_several_do,
        {"proxy/auth/apiKeys": {"secret": "keys"}, "proxy/access/callers": {"groups": [], "principals": ["ci"]}},
        "»- ci",
        f'access rule "callers" does not say who vouches for its principals: {ISSUER}, api-keys may each',
        severity="advisory",
    ),
)
KEPT: tuple[Kept, ...] = (
    Kept(safety.access_rules_say_who_vouches_where_several_do, {**SEVERAL, "proxy/access/callers/source": ISSUER}),
    Kept(
        safety.access_rules_say_who_vouches_where_several_do,
        {"proxy/auth/apiKeys": {"secret": "keys"}, "proxy/access/callers": {"groups": ["callers"], "principals": []}},
    ),
    Kept("no_issuer_stands_twice", {"proxy/auth/oidc/1": {"issuer": f"{ISSUER}2", "audiences": ["proxy"]}}),
    Kept(
        safety.host_paths_are_for_local_environments,
        {
            "datasets": [{"name": "models", "kind": "hostPath", "path": "/a"}],
            "environments/dev/local": True,
            "environments/prod": GONE,
            "dataPlanes/east": GONE,
        },
    ),
    Kept(safety.nobody_is_granted_everything_in_production, {"environments/dev/proxy": {"access": [EVERYTHING]}}),
    Kept(safety.nobody_is_granted_everything_in_production, {"proxy/access/all": {**EVERYTHING, "models": ["ocr"]}}),
    Kept(safety.nobody_is_granted_everything_in_production, {"proxy/access/all": {**EVERYTHING, "servers": ["no"]}}),
    Kept(
        safety.nobody_is_granted_everything_in_production, {"proxy/access/all": {**EVERYTHING, "actions": ["inspect"]}}
    ),
    Kept(safety.secrets_are_never_written_inline, {"servers/main/triton": {"environment": {"OMP_NUM_THREADS": "4"}}}),
    Kept(
        safety.the_proxy_can_reach_its_identity_provider,
        {
            "network/reach": GONE,
            "domino": {},
            "proxy/auth/oidc/0/jwksUrl": "http://keycloak-http.domino-platform/auth/keys",
        },
    ),
    Kept(
        safety.production_shares_no_bucket_that_others_may_write,
        {
            "servers/main/repository": {"url": "s3://bucket/models"},
            "network/reach/identity/by": ["proxy", "servers"],
        },
    ),
    Kept(
        safety.servers_can_reach_their_object_store,
        {
            "servers/main/repository": {"url": "s3://bucket/models"},
            "servers/main/identity": {"cloud": "aws", "roleArn": "arn:aws:iam::123456789012:role/models"},
            "network/reach/identity/by": ["proxy", "servers"],
        },
    ),
    Kept(safety.the_proxy_can_reach_its_identity_provider, {"network/reach": GONE, "proxy/auth/oidc": GONE}),
    Kept(safety.somebody_may_call_the_proxy, {"network/callers": GONE, "domino": {}}),
    Kept(safety.somebody_can_authenticate, {"proxy/auth": {"apiKeys": {"secret": "keys"}}}),
    Kept(safety.somebody_can_authenticate, {"proxy/auth": {"dominoPrincipal": True}, "domino": {}}),
    Kept(safety.a_gateway_is_given_no_certificate_of_the_proxy, {"proxy/exposure": ROUTE}),
    Kept(safety.production_shares_no_dataset_that_others_may_write, {}),
    Kept(
        safety.production_shares_no_dataset_that_others_may_write, {PROD_MODELS: GONE, "datasets/models/writers": GONE}
    ),
    Kept(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**EFS, "domino": {"datasetId": "d1"}}, {"domino": {"datasetId": "d2"}}),
    ),
    Kept(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**EFS, "domino": {"datasetId": "d1"}}, {"domino": {"datasetId": "d12"}}),
    ),
    Kept(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**EFS, "accessPointId": "fsap-1"}, {"accessPointId": "fsap-2"}),
    ),
    Kept(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({**NFS, "path": "/models/dev"}, {"path": "/models/dev-2"}),
    ),
    # The same path on the nodes of two clusters is two folders.
    Kept(
        safety.production_shares_no_dataset_that_others_may_write,
        shared({"kind": "hostPath", "path": "/a"}, {}),
    ),
    # A claim lies in its namespace.
    Kept(safety.production_shares_no_dataset_that_others_may_write, shared({"kind": "claim", "claimName": "c"}, {})),
)


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_what_is_unsafe_is_said_where_it_stands(case: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    check_broken(case, monkeypatch)


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_what_is_safe_is_let_through(case: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kept(case, monkeypatch)


@pytest.mark.parametrize("everybody", ["*", "**", "?*", "*?"])
def test_no_glob_for_everybody_slips_through(everybody: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text = edited_at({"proxy/access/all": {"groups": [everybody], "models": ["x", everybody], "servers": [everybody]}})
    assert said_by(safety.nobody_is_granted_everything_in_production, text, monkeypatch)
