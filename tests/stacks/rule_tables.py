"""Tables of what breaks each rule and what comes near; `test_rules_every` asks every rule about its rows."""

from collections.abc import Mapping, Sequence
from typing import Any

from .definition.examples import Rule

BrokenTable = dict[Rule, Sequence[tuple[Any, ...]]]
"""Edits of the base definition that break a rule, the place that is shown (`key: »value`), a part of what is said; then
the severity and the number of problems, where they are not `error` and 1."""
KeptTable = Mapping[Rule, Sequence[Mapping[str, Any]]]
"""Edits of the base definition that come near a rule and do not break it."""
