"""What may not happen by accident, above all in production."""

from typing import Any

from stacks.rules import safety
from tests.stacks.definition.examples import GONE, BrokenTable, KeptTable

EVERYTHING = {"name": "all", "groups": ["*"]}
ANY_GLOBS = [{"groups": [glob], "models": ["x", glob], "servers": [glob]} for glob in ("*", "**", "?*", "*?")]
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

ISSUER = "https://idp.example.com/realm"
SEVERAL = {"proxy/auth/oidc/1": {"issuer": f"{ISSUER}2", "audiences": ["proxy"]}}
BROKEN: BrokenTable = {
    safety.host_paths_are_for_local_environments:
        [({**shared({"kind": "hostPath", "path": "/a"}, {"path": "/b"}), "environments/dev/local": True},
          "kind: »hostPath", 'dataset "models" is a hostPath, and environment "prod" is not local')],
    safety.nobody_is_granted_everything_in_production: [
        *(({"proxy/access/all": rule}, "- »name: all", "lets everybody call every model") for rule in ANY_GLOBS),
        ({"proxy/access/all": EVERYTHING}, "- »name: all",
         'access rule "all" lets everybody call every model in production'),
        ({"environments/prod/proxy": {"access": [{**EVERYTHING, "actions": ["infer"], "servers": ["main", "**"]}]}},
         "- »name: all", 'access rule "all" lets everybody call every model in production'),
        ({"proxy/access/all": {**EVERYTHING, "servers": ["main"]}}, "- »name: all",
         "lets everybody call every model in production"),
    ],
    safety.secrets_are_never_written_inline: [
        ({"servers/main/triton": {"environment": {"HF_TOKEN": "x"}}}, "HF_TOKEN: »x", "HF_TOKEN looks like a secret"),
        ({"servers/main/triton": {"environment": {"aws_secret_access_key": "x"}}}, "aws_secret_access_key: »x",
         "keep credentials in a Secret"),
    ],
    safety.the_proxy_can_reach_its_identity_provider:
        [({"network/reach/identity/by": ["servers"]}, "issuer: »https", "the proxy may not reach idp.example.com")],
    safety.servers_can_reach_their_object_store:
        [({"servers/main/repository": {"url": "s3://bucket/models"}}, "url: »s3", "it cannot read s3://bucket/models")],
    safety.somebody_may_call_the_proxy:
        [({"network/callers": GONE}, "»reach:", 'nobody may call the proxy of environment "dev"', "advisory", 2)],
    safety.somebody_can_authenticate:
        [({"proxy/auth": GONE}, "»access:", 'the proxy of environment "dev" has no way to know its callers', "advisory",
          2)],
    safety.a_gateway_is_given_no_certificate_of_the_proxy:
        [({"proxy/exposure": ROUTE, "proxy/tls": {"kind": "secret", "secret": "tls"}}, "»kind: secret",
          "tls and an exposure of kind http-route cannot stand together")],
    safety.production_shares_nothing_that_others_may_write: [
        ({"servers/main/repository": {"url": "s3://bucket/models", "writers": ["data-scientists"]},
          "network/reach/identity/by": ["proxy", "servers"]}, "url: »s3",
          'shares s3://bucket/models with environment "dev", where data-scientists may write s3://bucket/models'),
        ({PROD_MODELS: GONE}, "- »name: models", f'{SHARED}, where data-scientists may write dataset "models"'),
        (shared(EFS, {}), "- »name: models", SHARED),
        # the dataset of one lies in that of the other
        (shared(EFS, {"domino": {"datasetId": "d1"}}), "- »name: models", SHARED),
        (shared({**EFS, "domino": {"datasetId": "d1"}}, {}), "- »name: models", SHARED),
        # without an access point dev writes everywhere, below every access point too
        (shared(EFS, {"accessPointId": "fsap-1"}), "- »name: models", SHARED),
        (shared({**NFS, "path": "/models"}, {"path": "/models/prod"}), "- »name: models", SHARED),
        (shared({**NFS, "path": "/models"}, {"path": "/models/"}), "- »name: models", SHARED),
        # two handles, as the driver wants them, and one bucket
        (shared({**S3, "volumeHandle": "a", "volumeAttributes": {"bucketName": "models"}},
         {"volumeHandle": "b", "volumeAttributes": {"bucketName": "models"}}), "- »name: models", SHARED),
        (shared({"kind": "csi", "driver": "d", "volumeHandle": "a"}, {}), "- »name: models", SHARED),
    ],
    safety.no_issuer_stands_twice:
        [({"proxy/auth/oidc/1": {"issuer": ISSUER, "audiences": ["other"]}}, f"issuer: »{ISSUER}",
          f"the issuer {ISSUER} stands twice")],
    safety.access_rules_say_who_vouches_where_several_do: [
        ({**SEVERAL, "proxy/access/callers": {"groups": ["callers"], "principals": []}}, "»- callers",
         f'access rule "callers" does not say who vouches for its groups: {ISSUER}, {ISSUER}2 may each', "advisory"),
        ({"proxy/auth/apiKeys": {"secret": "keys"}, "proxy/access/callers": {"groups": [], "principals": ["ci"]}},
         "»- ci", f'access rule "callers" does not say who vouches for its principals: {ISSUER}, api-keys may each',
         "advisory"),
    ],
}  # fmt: skip
KEPT: KeptTable = {
    safety.access_rules_say_who_vouches_where_several_do: [
        {**SEVERAL, "proxy/access/callers/source": ISSUER},
        {"proxy/auth/apiKeys": {"secret": "keys"}, "proxy/access/callers": {"groups": ["callers"], "principals": []}},
    ],
    safety.host_paths_are_for_local_environments:
        [{"datasets": [{"name": "models", "kind": "hostPath", "path": "/a"}], "environments/dev/local": True,
          "environments/prod": GONE, "dataPlanes/east": GONE}],
    safety.nobody_is_granted_everything_in_production: [
        {"environments/dev/proxy": {"access": [EVERYTHING]}},
        {"proxy/access/all": {**EVERYTHING, "models": ["ocr"]}},
        {"proxy/access/all": {**EVERYTHING, "servers": ["no"]}},
        {"proxy/access/all": {**EVERYTHING, "actions": ["inspect"]}},
    ],
    safety.the_proxy_can_reach_its_identity_provider: [
        {"network/reach": GONE, "domino": {},
         "proxy/auth/oidc/0/jwksUrl": "http://keycloak-http.domino-platform/auth/keys"},
    ],
    safety.somebody_may_call_the_proxy: [{"network/callers": GONE, "domino": {}}],
    safety.somebody_can_authenticate: [
        {"proxy/auth": {"apiKeys": {"secret": "keys"}}},
    ],
    safety.production_shares_nothing_that_others_may_write: [
        {"servers/main/repository": {"url": "s3://bucket/models"}, "network/reach/identity/by": ["proxy", "servers"]},
        {PROD_MODELS: GONE, "datasets/models/writers": GONE},
        shared({**EFS, "domino": {"datasetId": "d1"}}, {"domino": {"datasetId": "d2"}}),
        shared({**EFS, "domino": {"datasetId": "d1"}}, {"domino": {"datasetId": "d12"}}),
        shared({**EFS, "accessPointId": "fsap-1"}, {"accessPointId": "fsap-2"}),
        shared({**NFS, "path": "/models/dev"}, {"path": "/models/dev-2"}),
        # The same path on the nodes of two clusters is two folders.
        shared({"kind": "hostPath", "path": "/a"}, {}),
        # A claim lies in its namespace.
        shared({"kind": "claim", "claimName": "c"}, {}),
    ],
}  # fmt: skip
