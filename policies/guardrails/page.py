"""docs/guardrails.md, written from the rules by `make docs`."""

from textwrap import fill

from .checking import SETTINGS_RULES
from .rule import Rule
from .rules import RULES
from .rules.datasets import production_shares_nothing_that_others_may_write
from .rules.pod_security import CONTROLS, pods_fulfil_pod_security_restricted
from .settings import ANNOTATION

_WIDTH = 120

_BEGIN = """\
# Guardrails

<!-- Written by `make docs` from policies/guardrails/rules. Do not edit. -->

What no stack may do. Each guardrail is a function over the Kubernetes objects of an environment, whatever made them. A
finding that is **mandatory** stops the command, and nothing is written or applied; an **advisory** is only said.
What the words mean is in [concepts.md](concepts.md).

| where | what it looks at | a mandatory finding |
|---|---|---|
| `make up`, `make preview`, `make rollout` | all stacks of the definition, also those that nobody asked for | \
exit code 1, nothing written or applied |
| `make check-chart VALUES=<file>` | what the chart makes of one values file: one stack | exit code 1 |
| `pulumi preview --policy-pack policies/guardrails`, or `up` | what the program declares: one stack | Pulumi stops |

The exit codes are those of the commands that make runs (`python -m rollout`, `python -m charts`). `make` itself ends
with 2 whenever one of them fails, and prints its code: `make: *** [Makefile:…] Error 1`.

## With plain Pulumi

The policy pack runs with the `python3` that is on the PATH, which needs `pulumi` and `pulumi-policy`. After `make up`:

```sh
PATH="$PWD/.venv/bin:$PATH" pulumi preview --policy-pack policies/guardrails
```

Pulumi fixes how severe a policy is when it loads the pack, and here a Namespace says it. So each guardrail is two
policies of the pack, `<guardrail>` (mandatory) and `<guardrail>.advisory`; what is wrong is reported by one of them.

## Settings

They stand in the definition under [guardrails](definition.md#guardrails), in the common part or laid over it by an
environment or a data plane, and ride as the annotation `{annotation}` on the Namespace. A Namespace
without it is held to production's severities.

```yaml
guardrails:
  gpuSlices: 12 # the most that the environment may take on one data plane
  severities:
    every-workload-has-a-budget: mandatory
  waivers:
    - name: shell-for-the-migration
      rule: pods-fulfil-pod-security-restricted
      object: Deployment/migration # every object without
      owner: platform-team
      reason: The old store can only be read as root.
      until: 2027-03-31 # its last day, in UTC
```

A waived finding is still said, with who answers for it and until when. About waivers themselves:

"""


_ONE_STACK = (
    "`make check-chart` has one values file and the policy pack one program: no other environment can be seen there, "
    "so they compare only the environments within that one stack. `make up`, `make preview` and `make rollout` compare "
    "with every stack of the definition, though only one is brought up, and stop for what it breaks in another too."
)


def page() -> str:
    """Return docs/guardrails.md: every rule with its reason, its remedy and its severities."""
    about = "".join(f"- **{name.replace('-', ' ').capitalize()}.** {why}\n" for name, why in SETTINGS_RULES.items())
    rows = "".join(
        f"| [{rule.name}](#{rule.name}) | {rule.production} | {rule.shared or '–'} | {rule.local or '–'} |\n"
        for rule in RULES
    )
    table = (
        "\n## Severities\n\n`production` and `local` are keys of an environment; all other environments are shared. "
        "Where there is a dash,\na guardrail is asked only when `severities` says how severe it is.\n\n"
        f"| guardrail | production | shared | local |\n|---|---|---|---|\n{rows}\n## The guardrails\n"
    )
    return _BEGIN.format(annotation=ANNOTATION) + about + table + "".join(map(_section, RULES))


def _section(rule: Rule) -> str:
    text = f"\n### {rule.name}\n\n{fill(f'**{rule.sentence}** {rule.why}', _WIDTH)}\n\n{fill(rule.do, _WIDTH)}\n"
    if rule is pods_fulfil_pod_security_restricted:
        text += "\n" + "".join(f"- {control}\n" for control in CONTROLS)
    if rule is production_shares_nothing_that_others_may_write:
        text += f"\n{fill(_ONE_STACK, _WIDTH)}\n"
    return text
