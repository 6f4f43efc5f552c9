"""A version can come into each environment, and somebody can bring it."""

from __future__ import annotations

import pytest

from stacks.rules import promotion
from tests.stacks.definition.examples import GONE, Broken, Kept, check_broken, check_kept

NO_ISSUER = {"proxy/auth/oidc": GONE, "proxy/auth/apiKeys": {"secret": "keys"}}

BROKEN: tuple[Broken, ...] = (
    Broken(
        promotion.promotions_come_from_other_environments,
        {"environments/prod/promotion": {"from": "dve"}},
        "from: »dve",
        'environment "prod" takes versions from an unknown environment, "dve"',
    ),
    Broken(
        promotion.promotions_come_from_other_environments,
        {"environments/prod/promotion": {"from": "prd"}},
        "from: »prd",
        "There are: dev.",
    ),
    Broken(
        promotion.promotions_come_from_other_environments,
        {"environments/prod/promotion": {"from": "prod"}},
        "from: »prod",
        'environment "prod" takes versions from itself',
    ),
    Broken(
        promotion.promotions_begin_somewhere,
        {"environments/dev/promotion": {"from": "prod"}, "environments/prod/promotion": {"from": "dev"}},
        "from: »prod",
        "go round in a circle: dev ← prod ← dev",
    ),
    Broken(  # whoever only waits for a circle is not part of it
        promotion.promotions_begin_somewhere,
        {
            "environments/dev/promotion": {"from": "test"},
            "environments/prod/promotion": {"from": "test"},
            "environments/test": {"namespace": "testing", "promotion": {"from": "stage"}},
            "environments/stage": {"promotion": {"from": "test"}},
        },
        "from: »stage",
        "go round in a circle: test ← stage ← test",
    ),
    Broken(
        promotion.versions_can_come_from_their_environment,
        {"environments/staging": {}, "environments/prod/promotion": {"from": "staging"}},
        "from: »staging",
        'takes versions from "staging", which lives on no data plane',
        severity="advisory",
    ),
    Broken(
        promotion.groups_that_promote_are_told_by_an_issuer,
        {**NO_ISSUER, "environments/prod/promotion": {"groups": ["deployers", "admins"]}},
        "»apiKeys:",
        'only deployers, admins may bring versions into environment "prod", and its proxy knows no groups',
        severity="advisory",
    ),
    Broken(
        promotion.those_who_promote_may_look_and_call,
        {"environments/prod/promotion": {"groups": ["callers"]}, "proxy/access/callers/actions": ["inspect"]},
        "»- name: callers",
        'callers may bring versions into environment "prod", and no access rule lets them infer there',
        severity="advisory",
    ),
    Broken(  # a group is no principal
        promotion.those_who_promote_may_look_and_call,
        {
            "environments/prod/promotion": {"principals": ["callers", "alice"]},
            "proxy/access/callers/principals": ["al*"],
        },
        "»- name: callers",
        'callers may bring versions into environment "prod", and no access rule lets them inspect there',
        severity="advisory",
        number=2,
    ),
)

KEPT: tuple[Kept, ...] = (
    Kept(promotion.promotions_come_from_other_environments, {"environments/prod/promotion": {"from": "dev"}}),
    Kept(promotion.promotions_come_from_other_environments, {"environments/prod/promotion": {"groups": ["deployers"]}}),
    Kept(
        promotion.promotions_begin_somewhere,
        {
            "environments/prod/promotion": {"from": "stage"},
            "environments/stage": {"promotion": {"from": "dev"}},
            "environments/other": {"promotion": {"from": "dev"}},
        },
    ),
    # Said by the rule above.
    Kept(promotion.promotions_begin_somewhere, {"environments/prod/promotion": {"from": "prod"}}),
    Kept(promotion.promotions_begin_somewhere, {"environments/prod/promotion": {"from": "dve"}}),
    Kept(promotion.versions_can_come_from_their_environment, {"environments/prod/promotion": {"from": "dev"}}),
    Kept(
        promotion.groups_that_promote_are_told_by_an_issuer, {"environments/prod/promotion": {"groups": ["deployers"]}}
    ),
    Kept(promotion.those_who_promote_may_look_and_call, {"environments/prod/promotion": {"groups": ["callers"]}}),
    Kept(
        promotion.those_who_promote_may_look_and_call,
        {"environments/prod/promotion": {"groups": ["deployers"]}, "proxy/access/callers/groups": ["dep*"]},
    ),
    Kept(
        promotion.groups_that_promote_are_told_by_an_issuer,
        {**NO_ISSUER, "environments/prod/promotion": {"groups": ["deployers"], "principals": ["alice"]}},
    ),
)


@pytest.mark.parametrize("case", BROKEN, ids=str)
def test_a_promotion_that_cannot_happen_is_said_where_it_stands(case: Broken, monkeypatch: pytest.MonkeyPatch) -> None:
    check_broken(case, monkeypatch)


@pytest.mark.parametrize("case", KEPT, ids=str)
def test_a_promotion_that_can_happen_is_let_through(case: Kept, monkeypatch: pytest.MonkeyPatch) -> None:
    check_kept(case, monkeypatch)
