"""A version can come into each environment, and somebody can bring it."""

from stacks.rules import promotion
from tests.stacks.definition.examples import GONE, BrokenTable, KeptTable

NO_ISSUER = {"proxy/auth/oidc": GONE, "proxy/auth/apiKeys": {"secret": "keys"}}

BROKEN: BrokenTable = {
    promotion.promotions_come_from_other_environments: [
        ({"environments/prod/promotion": {"from": "dve"}}, "from: »dve",
         'environment "prod" takes versions from an unknown environment, "dve"'),
        ({"environments/prod/promotion": {"from": "prd"}}, "from: »prd", "There are: dev."),
        ({"environments/prod/promotion": {"from": "prod"}}, "from: »prod",
         'environment "prod" takes versions from itself'),
    ],
    promotion.promotions_begin_somewhere: [
        ({"environments/dev/promotion": {"from": "prod"}, "environments/prod/promotion": {"from": "dev"}},
         "from: »prod", "go round in a circle: dev ← prod ← dev"),
        # whoever only waits for a circle is not part of it
        ({"environments/dev/promotion": {"from": "test"}, "environments/prod/promotion": {"from": "test"},
         "environments/test": {"namespace": "testing", "promotion": {"from": "stage"}},
         "environments/stage": {"promotion": {"from": "test"}}}, "from: »stage",
         "go round in a circle: test ← stage ← test"),
    ],
    promotion.versions_can_come_from_their_environment:
        [({"environments/staging": {}, "environments/prod/promotion": {"from": "staging"}}, "from: »staging",
          'takes versions from "staging", which lives on no data plane', "advisory")],
    promotion.groups_that_promote_are_told_by_an_issuer:
        [({**NO_ISSUER, "environments/prod/promotion": {"groups": ["deployers", "admins"]}}, "»apiKeys:",
          'only deployers, admins may bring versions into environment "prod", and its proxy knows no groups',
          "advisory")],
    promotion.those_who_promote_may_look_and_call: [
        ({"environments/prod/promotion": {"groups": ["callers"]}, "proxy/access/callers/actions": ["inspect"]},
         "»- name: callers",
         'callers may bring versions into environment "prod", and no access rule lets them infer there', "advisory"),
        # a group is no principal
        ({"environments/prod/promotion": {"principals": ["callers", "alice"]},
         "proxy/access/callers/principals": ["al*"]}, "»- name: callers",
         'callers may bring versions into environment "prod", and no access rule lets them inspect there', "advisory",
         2),
    ],
}  # fmt: skip

KEPT: KeptTable = {
    promotion.promotions_begin_somewhere: [
        {"environments/prod/promotion": {"from": "stage"}, "environments/stage": {"promotion": {"from": "dev"}},
         "environments/other": {"promotion": {"from": "dev"}}},
        # Said by the rule above.
        {"environments/prod/promotion": {"from": "prod"}},
        {"environments/prod/promotion": {"from": "dve"}},
    ],
    promotion.groups_that_promote_are_told_by_an_issuer: [
        {"environments/prod/promotion": {"groups": ["deployers"]}},
        {**NO_ISSUER, "environments/prod/promotion": {"groups": ["deployers"], "principals": ["alice"]}},
    ],
    promotion.those_who_promote_may_look_and_call: [
        {"environments/prod/promotion": {"groups": ["deployers"]}, "proxy/access/callers/groups": ["dep*"]},
    ],
}  # fmt: skip
