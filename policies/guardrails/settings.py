"""What a Namespace says about itself: its kind, the severities that it changes, its waivers and ceilings."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.alias_generators import to_camel
from pydantic.dataclasses import dataclass

ANNOTATION = "tidegate.dev/guardrails"
"""On the Namespace; JSON. With the objects of an environment its settings are there too."""

Kind = Literal["production", "shared", "local"]
"""production; a trial on one machine (local); all others, which people share."""
Severity = Literal["advisory", "mandatory"]

FORMER_NAMES: Mapping[str, str] = {
    "callers-are-not-the-whole-internet": "callers-are-named",
    "pods-do-not-reach-the-whole-internet-on-every-port": "destinations-are-named",
}
"""Guardrails by names that they had before: severities and waivers may use these too."""

_STRICT = ConfigDict(extra="forbid", strict=True, alias_generator=to_camel, validate_by_name=True)
_Said = Annotated[str, Field(pattern=r"\S")]
_Amount = Annotated[int, Field(ge=0)]
_Rule = Annotated[_Said, AfterValidator(lambda name: FORMER_NAMES.get(name, name))]


def _by_names_of_now(severities: Mapping[str, Severity]) -> dict[str, Severity]:
    """Where an old and a new name of one guardrail have different severities, mandatory counts."""
    return {
        FORMER_NAMES.get(name, name): severity
        for name, severity in sorted(severities.items(), key=lambda each: each[1])
    }


@dataclass(frozen=True, config=_STRICT)
class Waiver:
    """Somebody answers for a finding, for a reason and until a day."""

    name: _Said
    rule: _Rule
    owner: _Said
    reason: _Said
    until: date  # Its last day.
    object: str | None = None  # `Kind/name` of the one object that it is about; every object without.

    def covers(self, rule: str, kind: str, name: str) -> bool:
        """Say whether it is about this finding; its date is looked at elsewhere."""
        return self.rule == rule and self.object in (None, f"{kind}/{name}")


@dataclass(frozen=True, config=_STRICT)
class Settings:
    """The settings of one environment. By default those of production, the strictest."""

    kind: Kind = "production"
    severities: Annotated[Mapping[str, Severity], AfterValidator(_by_names_of_now)] = field(default_factory=dict)
    """Severities that differ from the rules' own."""
    waivers: tuple[Waiver, ...] = ()
    gpu_slices: _Amount | None = None  # How many devices the environment may take; any number without.
    monthly_budget: _Amount | None = None  # Money that its devices may cost a month; any without.
    malformed: str = ""  # Why the annotation could not be read.


_FORMER = ("written", "prices", "currency")
"""Keys that older versions wrote."""
_SETTINGS: TypeAdapter[Settings] = TypeAdapter(Settings)


def annotation(settings: Settings) -> str:
    """Return settings as the text of the annotation."""
    tree = _SETTINGS.dump_python(settings, mode="json", by_alias=True, exclude={"malformed"})
    tree["waivers"] = [{key: value for key, value in each.items() if value is not None} for each in tree["waivers"]]
    said = {key: value for key, value in tree.items() if value not in (None, {}, [])}
    return json.dumps(said, sort_keys=True, ensure_ascii=False)


def settings_of(text: Any) -> Settings:
    """Return the settings in an annotation; those of production, and why, where it cannot be read."""
    try:
        said = json.loads(text, object_pairs_hook=_once)
        if "kind" not in said or "malformed" in said:
            raise ValueError("kind is missing, or malformed is said")
        known = {key: value for key, value in said.items() if key not in _FORMER}
        return _SETTINGS.validate_json(json.dumps(known), by_name=False, by_alias=True)
    except ValidationError as error:
        first = error.errors()[0]
        return Settings(malformed=f"{'.'.join(map(str, first['loc']))}: {first['msg']}")
    except (TypeError, ValueError, RecursionError) as error:
        return Settings(malformed=str(error) or type(error).__name__)


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
