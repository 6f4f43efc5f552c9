"""The settings of an environment in its Namespace's annotation: kind, changed severities, waivers and limits."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass

ANNOTATION = "tidegate.dev/guardrails"
"""The annotation of the Namespace with the settings as JSON, so that the objects carry their settings."""

Kind = Literal["production", "shared", "local"]
"""`local` is a trial on one machine. `shared` is every other environment that is not production."""
Severity = Literal["advisory", "mandatory"]

FORMER_NAMES: Mapping[str, str] = {
    "callers-are-not-the-whole-internet": "callers-are-named",
    "pods-do-not-reach-the-whole-internet-on-every-port": "destinations-are-named",
}
"""Former names of guardrails, and the current ones. Severities and waivers may still use the former names."""

_STRICT = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, validate_by_name=True)
_Text = Annotated[str, Field(pattern=r"\S")]
_Amount = Annotated[int, Field(ge=0)]
_Rule = Annotated[_Text, AfterValidator(lambda name: FORMER_NAMES.get(name, name))]


def _by_current_names(severities: Mapping[str, Severity]) -> dict[str, Severity]:
    """If the former and the current name of a guardrail have different severities, mandatory wins."""
    return {
        FORMER_NAMES.get(name, name): severity
        for name, severity in sorted(severities.items(), key=lambda each: each[1])
    }


@dataclass(frozen=True, config=_STRICT)
class Waiver:
    """An exception from a guardrail, with an owner and a reason."""

    name: _Text
    rule: _Rule
    owner: _Text
    reason: _Text
    until: date  # Its last day.
    object: str | None = None  # `Kind/name` of the one object that it covers. None: every object.

    def covers(self, rule: str, kind: str, name: str) -> bool:
        """Return whether it is about this finding, whatever its date."""
        return self.rule == rule and self.object in (None, f"{kind}/{name}")


@dataclass(frozen=True, config=_STRICT)
class Settings:
    """The settings of one environment. The defaults are those of production, the strictest."""

    kind: Kind = "production"
    severities: Annotated[Mapping[str, Severity], AfterValidator(_by_current_names)] = field(default_factory=dict)
    """Severities that differ from those of the rules."""
    waivers: tuple[Waiver, ...] = ()
    gpu_slices: _Amount | None = None  # The limit of its GPU devices, or None.
    monthly_budget: _Amount | None = None  # The limit of the cost of its devices a month, or None.
    malformed: str = ""  # The reason why the annotation could not be read.


_FORMER = ("written", "prices", "currency")
"""Keys of older versions, which are ignored."""
_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)


def annotation(settings: Settings) -> str:
    """Return settings as the text of the annotation."""
    tree = _SETTINGS.dump_python(settings, mode="json", by_alias=True, exclude={"malformed"})
    tree["waivers"] = [{key: value for key, value in each.items() if value is not None} for each in tree["waivers"]]
    changed = {key: value for key, value in tree.items() if value not in (None, {}, [])}
    return json.dumps(changed, sort_keys=True, ensure_ascii=False)


def settings_of(text: Any) -> Settings:
    """Return the settings in an annotation. If it is malformed, return those of production with the reason."""
    try:
        tree = json.loads(text, object_pairs_hook=_once)
        if "kind" not in tree or "malformed" in tree:
            raise ValueError("kind is missing, or malformed is set")
        known = {key: value for key, value in tree.items() if key not in _FORMER}
        return _SETTINGS.validate_json(json.dumps(known), by_name=False, by_alias=True)
    except ValidationError as error:
        first = error.errors()[0]
        return Settings(malformed=f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except (TypeError, ValueError, RecursionError) as error:
        return Settings(malformed=str(error) or type(error).__name__)


def held_to(settings: Settings) -> str:
    """Return the settings of an environment in one line."""
    severities = (f"{name} {severity}" for name, severity in sorted(settings.severities.items()))
    waivers = (
        f"{each.name} ({each.rule}{f' at {each.object}' if each.object else ''}, until {each.until})"
        for each in settings.waivers
    )
    parts = [
        f"{settings.kind} (its guardrails cannot be read)" if settings.malformed else settings.kind,
        f"severities changed: {', '.join(severities) or 'none'}",
        f"waivers: {', '.join(waivers) or 'none'}",
    ]
    return "; ".join(parts)


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a duplicate key, because readers of JSON differ about which one counts."""
    tree: dict[str, Any] = {}
    for key, value in pairs:
        if key in tree:
            raise ValueError(f"{key!r} occurs twice")
        tree[key] = value
    return tree
