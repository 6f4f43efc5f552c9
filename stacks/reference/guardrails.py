"""docs/guardrails.md: every guardrail with its reason, its remedy and its severities."""

from pathlib import Path
from textwrap import fill

from policies.guardrails.checking import SETTINGS_RULES
from policies.guardrails.rule import Guardrail
from policies.guardrails.rules import RULES
from policies.guardrails.settings import ANNOTATION

from .tables import filled, table

_WIDTH = 120
_STRICT = ("mandatory", "advisory", "–")


def page() -> str:
    """Return the page."""
    about = (f"- `{name}`: {why}" for name, why in SETTINGS_RULES.items())
    alike: dict[tuple[str, str], list[str]] = {}
    for rule in RULES:
        alike.setdefault((rule.shared or "–", rule.local or "–"), []).append(f"[`{rule.name}`](#{rule.name})")
    rows = [(*each, ", ".join(alike[each])) for each in sorted(alike, key=lambda each: [*map(_STRICT.index, each)])]
    return filled(
        Path(__file__).parent / "text" / "guardrails.md",
        annotation=ANNOTATION,
        waivers="\n".join(about),
        severities=table(("shared", "local", "guardrails"), rows),
        guardrails="\n".join(map(_section, RULES)),
    )


def _section(rule: Guardrail) -> str:
    why, do = (fill(text, _WIDTH) for text in (f"**{rule.title}.** {rule.why}", f"{rule.do} {rule.lower}"))
    return f"### `{rule.name}`\n\n{why}\n\n{do}\n"
