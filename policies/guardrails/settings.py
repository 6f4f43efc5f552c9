"""What a Namespace says about itself: its kind, the severities that it changes, its waivers, ceilings and prices."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import date
from typing import Any, Literal, get_args

from .money import CURRENCY, Hourly

ANNOTATION = "tidegate.dev/guardrails"
"""On the Namespace; JSON. With the objects of an environment its settings are there too."""

Kind = Literal["production", "shared", "local"]
"""production; a trial on one machine (local); all others, which people share."""
Severity = Literal["advisory", "mandatory"]
KINDS: tuple[Kind, ...] = get_args(Kind)
SEVERITIES: tuple[Severity, ...] = get_args(Severity)


@dataclass(frozen=True)
class Waiver:
    """Somebody answers for a finding, for a reason and until a day."""

    name: str
    rule: str
    owner: str
    reason: str
    until: date  # Its last day.
    object: str | None = None  # `Kind/name` of the one object that it is about; every object without.

    def covers(self, rule: str, kind: str, name: str) -> bool:
        """Say whether it is about this finding; its date is looked at elsewhere."""
        return self.rule == rule and self.object in (None, f"{kind}/{name}")


@dataclass(frozen=True)
class Settings:
    """The settings of one environment. By default those of production, the strictest."""

    kind: Kind = "production"
    severities: Mapping[str, Severity] = field(default_factory=dict)  # Severities that differ from the rules' own.
    waivers: tuple[Waiver, ...] = ()
    gpu_slices: int | None = None  # How many devices the environment may take; any number without.
    written: tuple[str, ...] = ()
    """Claims and bucket addresses whose content somebody may write from outside of the servers."""
    monthly_budget: int | None = None  # Money that its devices may cost a month; any without.
    prices: Hourly = field(default_factory=dict)  # Of the devices of its data plane.
    currency: str = CURRENCY
    malformed: str = ""  # Why the annotation could not be read.


def annotation(settings: Settings) -> str:
    """Return settings as the text of the annotation."""
    tree = {
        "kind": settings.kind,
        "severities": dict(settings.severities),
        "waivers": [
            {key: value for key, value in asdict(each).items() if value is not None} for each in settings.waivers
        ],
        "gpuSlices": settings.gpu_slices,
        "written": list(settings.written),
        "monthlyBudget": settings.monthly_budget,
        "prices": {product: dict(of) for product, of in settings.prices.items()},
        "currency": settings.currency if settings.prices else None,
    }
    said = {key: value for key, value in tree.items() if value not in (None, {}, [])}
    return json.dumps(said, sort_keys=True, ensure_ascii=False, default=date.isoformat)


def settings_of(text: Any) -> Settings:
    """Return the settings in an annotation; those of production, and why, where it cannot be read."""
    try:
        tree = json.loads(text, object_pairs_hook=_once)
        _only(tree, "kind", "severities", "waivers", "gpuSlices", "written", "monthlyBudget", "prices", "currency")
        severities, slices, written = tree.get("severities", {}), tree.get("gpuSlices"), tree.get("written", [])
        if tree["kind"] not in KINDS or not isinstance(severities, dict) or not {*severities.values()} <= {*SEVERITIES}:
            raise ValueError("kind or severities have a value that there is not")
        for key in ("gpuSlices", "monthlyBudget"):
            if (most := tree.get(key)) is not None and (type(most) is not int or most < 0):
                raise ValueError(f"{key} is no whole number")
        money = {"monthly_budget": tree.get("monthlyBudget"), **_prices(tree)}
        if not isinstance(written, list) or not all(isinstance(each, str) for each in written):
            raise ValueError("written is no list of texts")
        waivers = tuple(map(_waiver, tree.get("waivers", [])))
        return Settings(tree["kind"], severities, waivers, slices, tuple(written), **money)
    except KeyError as error:
        return Settings(malformed=f"{error.args[0]} is missing")
    except (TypeError, ValueError, AttributeError, RecursionError) as error:
        return Settings(malformed=str(error) or type(error).__name__)


def _prices(tree: Any) -> dict[str, Any]:
    prices, currency = tree.get("prices", {}), tree.get("currency", CURRENCY)
    said = [price for of in prices.values() for price in of.values() if price is not None]
    if not isinstance(currency, str) or not all(type(price) in (int, float) and price >= 0 for price in said):
        raise ValueError("prices or currency have a value that there is not")
    return {"prices": prices, "currency": currency}


def _waiver(tree: Any) -> Waiver:
    _only(tree, "name", "rule", "owner", "reason", "object", "until")
    said = {key: tree[key] for key in ("name", "rule", "owner", "reason")}
    if not all(isinstance(value, str) and value.strip() for value in said.values()):
        raise ValueError("a waiver needs a name, a rule, an owner and a reason")
    if not isinstance(about := tree.get("object"), str | None):
        raise ValueError("the object of a waiver is no text")
    return Waiver(**said, object=about, until=date.fromisoformat(tree["until"]))


def held_to(settings: Settings) -> str:
    """Return in a line what an environment is held to."""
    severities = (f"{name} {severity}" for name, severity in sorted(settings.severities.items()))
    waivers = (
        f"{each.name} ({each.rule}{f' at {each.object}' if each.object else ''}, until {each.until})"
        for each in settings.waivers
    )
    parts = [
        f"{settings.kind} (its guardrails cannot be read)" if settings.malformed else settings.kind,
        f"severities changed: {', '.join(severities) or 'none'}",
        f"waivers: {', '.join(waivers) or 'none'}",
        f"GPU slices: {'any number' if settings.gpu_slices is None else settings.gpu_slices}",
        *([f"money a month: {settings.monthly_budget}"] if settings.monthly_budget is not None else []),
        *([f"written from outside: {', '.join(settings.written)}"] if settings.written else []),
    ]
    return "; ".join(parts)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: one reader would take the first, another the last."""
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise ValueError(f"{key!r} stands there twice")
        tree[key] = value
    return tree


def _only(tree: Any, *known: str) -> None:
    """Refuse what is no mapping, and unknown keys: a mistyped one would be without effect."""
    if not isinstance(tree, dict):
        raise ValueError("it is no mapping")
    if unknown := sorted(tree.keys() - set(known)):
        raise ValueError(f"{unknown[0]!r} is no setting")
