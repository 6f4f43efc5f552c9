"""What is named somewhere must exist, and fit."""

from stacks.rules import references
from tests.stacks.definition.examples import GONE, BrokenTable, KeptTable

WINDOW = {"name": "nightly", "opens": "0 1 * * *", "durationSeconds": 3600}
WINDOWS = "servers/main/pools/cold/loading/warmWindows"
AWS = {"cloud": "aws", "roleArn": "arn:aws:iam::123456789012:role/models"}

ISSUER = "https://idp.example.com/realm"
BROKEN: BrokenTable = {
    references.data_planes_name_environments_that_exist: [
        ({"dataPlanes/lab/environments": ["dev", "deb"]}, "- »deb",
         'data plane "lab" hosts an unknown environment, "deb"'),
        ({"dataPlanes/lab/environments": ["prd"]}, "- »prd", 'Did you mean "prod"? There are: dev, prod.'),
    ],
    references.canaries_are_planes_of_the_first_wave: [
        ({"environments/prod/rollout": {"canary": "lab"}}, "canary: »lab",
         'environment "prod" does not live on its canary, "lab"'),
        ({"dataPlanes/lab/environments": ["dev", "prod"], "dataPlanes/lab/wave": 2,
         "environments/prod/rollout": {"canary": "lab"}}, "canary: »lab",
         'the canary "lab" is of wave 2, and wave 1 goes before it'),
    ],
    references.every_environment_lives_somewhere:
        [({"environments/staging": {}}, "- »name: staging", 'environment "staging" lives on no data plane',
          "advisory")],
    references.images_that_are_used_are_named: [
        ({"servers/main/image": "tritn"}, "image: »tritn",
         'server "main" uses an image that is not in images, "tritn"'),
        ({"images/proxy": GONE}, "»- name: triton", 'images has no "proxy"'),
        ({"images/eviction-policy": GONE}, "»- name: triton", 'images has no "eviction-policy"'),
    ],
    references.repositories_name_datasets_that_exist: [
        ({"servers/main/repository/dataset": "modles"}, "dataset: »modles", 'Did you mean "models"?'),
        ({"datasets": GONE, "environments/prod/datasets": GONE}, "dataset: »models", "There are none."),
    ],
    references.models_name_servers_and_pools_that_exist: [
        ({"models/churn/server": "mian"}, "server: »mian", 'model "churn" is on an unknown server, "mian"'),
        ({"models/churn/pool": "worm"}, "pool: »worm", 'model "churn" is on an unknown pool of server "main", "worm"'),
        ({"models/churn/pool": GONE}, "- »name: churn", "Add pool: one of warm, cold."),
        # an overlay may take away what the common part relies on
        ({"environments/prod/servers": [{"name": "main", "pools": [{"name": "warm", "remove": True}]}]}, "pool: »warm",
         "There are: cold."),
    ],
    references.warm_windows_name_models_of_their_pool:
        [({WINDOWS: [{**WINDOW, "models": ["ocr", "churn"]}]}, "»- ocr",
          'warm window "nightly" names a model that this pool does not serve, "churn"')],
    references.claims_that_exist_are_none_of_ours:
        [({"datasets/-": {"name": "other", "kind": "claim", "claimName": "models"}}, "claimName: »models",
          "uses the claim models")],
    references.cloud_identity_fits_the_object_store: [
        ({"servers/main/repository": {"url": "gs://bucket/models"}, "servers/main/identity": AWS}, "cloud: »aws",
         'server "main" reads gs:// with an identity of aws'),
        ({"servers/main/repository": {"url": "s3://bucket/models"}, "network/reach/identity/by": ["proxy", "servers"]},
         "url: »s3://bucket/models", "Add identity with cloud: aws.", "advisory"),
    ],
    references.domino_principals_need_the_domino_integration:
        [({"proxy/auth/dominoPrincipal": True}, "dominoPrincipal: »true", "there is no domino section")],
    references.access_rules_name_servers_and_models_that_exist: [
        ({"proxy/access/callers/servers": ["mian"]}, "- »mian",
         'access rule "callers" names servers that are not there, "mian"', "advisory"),
        ({"proxy/access/callers/models": ["churn", "orc*"]}, "- »orc*", 'names models that are not there, "orc*"',
         "advisory"),
    ],
    references.access_rules_name_sources_that_are_believed: [
        ({"proxy/access/callers/source": "api-keys"}, "source: »api-keys",
         'access rule "callers" is for callers of api-keys, whom proxy.auth does not believe'),
        ({"proxy/access/callers/source": f"{ISSUER}/"}, f"source: »{ISSUER}/", f'Did you mean "{ISSUER}"?'),
    ],
    references.mirrors_are_of_registries_that_are_used:
        [({"dataPlanes/lab/registries": {"nvcr.oi": "mirror"}}, "»- name: triton", 'Did you mean "nvcr.io"?',
          "advisory")],
}  # fmt: skip
KEPT: KeptTable = {
    references.access_rules_name_sources_that_are_believed: [
        {"proxy/auth/apiKeys": {"secret": "keys"}, "proxy/access/callers/source": "api-keys"},
    ],
    references.mirrors_are_of_registries_that_are_used: [
        {"images/proxy/repository": "library/proxy", "dataPlanes/lab/registries": {"docker.io": "mirror"}},
    ],
    references.canaries_are_planes_of_the_first_wave:
        [{"dataPlanes/lab/environments": ["dev", "prod"], "environments/prod/rollout": {"canary": "lab"}}],
    references.images_that_are_used_are_named:
        [{"images/eviction-policy": GONE, "servers/main/pools/cold/loading": {"mode": "preload"}}],
    references.repositories_name_datasets_that_exist:
        [{"servers/main/repository": {"url": "s3://bucket"}, "datasets": GONE, "environments/prod/datasets": GONE}],
    references.models_name_servers_and_pools_that_exist:
        [{"models/churn/pool": GONE, "servers/main/pools/cold": GONE, "models/ocr": GONE}],
    references.warm_windows_name_models_of_their_pool: [{WINDOWS: [{**WINDOW, "models": ["ocr"]}]}],
    references.claims_that_exist_are_none_of_ours:
        [{"datasets/-": {"name": "other", "kind": "claim", "claimName": "theirs"}}],
    references.cloud_identity_fits_the_object_store: [
        {"servers/main/repository": {"url": "s3://bucket/models"}, "servers/main/identity": AWS,
         "network/reach/identity/by": ["proxy", "servers"]},
        # An identity serves other purposes too: a model may read from a bucket at run time.
        {"servers/main/identity": AWS},
    ],
}  # fmt: skip
