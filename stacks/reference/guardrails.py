"""docs/guardrails.md: every guardrail with its reason, its remedy and its severities."""

from pathlib import Path
from textwrap import fill

from policies.guardrails.checking import SETTINGS_RULES
from policies.guardrails.rule import Guardrail
from policies.guardrails.rules import RULES
from policies.guardrails.rules.pod_security import CONTROLS
from policies.guardrails.settings import ANNOTATION

from .tables import filled, table

_WIDTH = 120


def page() -> str:
    """Return the page."""
    about = (f"- `{name}`: {why}" for name, why in SETTINGS_RULES.items())
    rows = [
        (f"[`{rule.name}`](#{rule.name})", rule.production, rule.shared or "–", rule.local or "–") for rule in RULES
    ]
    return filled(
        Path(__file__).parent / "text" / "guardrails.md",
        annotation=ANNOTATION,
        waivers="\n".join(about),
        severities=table(("guardrail", "production", "shared", "local"), rows),
        guardrails="\n".join(map(_section, RULES)),
        controls="\n".join(f"- {control}" for control in CONTROLS),
    )


def _section(rule: Guardrail) -> str:
    return f"### `{rule.name}`\n\n{fill(f'**{rule.title}.** {rule.why}', _WIDTH)}\n\n{fill(rule.do, _WIDTH)}\n"
