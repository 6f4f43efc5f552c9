"""docs/guardrails.md, written from the rules by `make docs`."""

from textwrap import fill

from .checking import SETTINGS_RULES
from .rule import Guardrail
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
| `tidegate render`, `up`, `preview`, `rollout` | all stacks of the definition, also with `--stack` | \
exit code 1, nothing written or applied |
| `tidegate guardrails <file>`, or `helm template … \\| tidegate guardrails` | the objects in that YAML: one stack | \
exit code 1 |
| `pulumi preview --policy-pack policies/guardrails`, or `up` | what the program declares: one stack | Pulumi stops |

## With plain Pulumi

The policy pack runs with the `python3` that is on the PATH, which needs `pulumi` and `pulumi-policy`. In this
repository, after `make up`:

<!-- not run: Pulumi's engine is in no package registry -->

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
  monthlyBudget: 5000 # what its devices may cost a month there, by the prices under gpus
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


_NOT_JUDGED = """
## What is not judged

Whatever made them, these objects of a stack are looked at: all in a namespace that holds something of Tidegate, by the
annotation on it or by the label `app.kubernetes.io/part-of: tidegate` on one of its objects; and all that are in no
namespace, such as ClusterRoles, which count to each such namespace of the stack. Nobody judges:

- **Other namespaces**: what a stack puts into one that holds nothing of Tidegate, a RoleBinding there included.
- **Who writes the Namespace.** Kind, severities and waivers stand on it: whoever may change it may lower what is
  asked.
- **What the cluster adds**: tokens and sidecars by admission webhooks, defaults, what is applied beside the stack.
- **Kinds of the whole cluster**, but for roles, bindings and volumes: admission webhooks, API services, custom
  resource definitions, classes of priority, storage and ingress.
- **What custom resources say**, but for those that lead to a Service: policies of a mesh, certificates and their
  issuers, and whether the listener that an HTTPRoute belongs to has TLS. Other kinds of network policies are refused
  unread.
- **Whether who is named is right.** IPv4 ranges of /8 or smaller, and namespaces by a label, count as named. Callers
  are told from Prometheus only within one rule of a NetworkPolicy. Where all addresses are allowed on named ports, the
  cluster's own are among them. The metadata addresses are those of EC2, Azure and Google, GKE, ECS and EKS:
  169.254.169.254, 169.254.169.252, 169.254.170.2, fd00:ec2::254.
- **What lies behind objects**: what Secrets, images and models hold, and what a cloud's load balancer does by other
  annotations than those that give it a certificate.
- **Other limits and options**: of processors, processes and ephemeral storage, and Triton's that are not named here.

A role that may do more than read, and a binding to a role that the stack does not hold, are refused, though somebody
may need them: a waiver with `object: RoleBinding/<name>` lets one be.
"""

_PROFILE = (
    "Kubernetes' own checks are a library of Go, and guardrails run wherever Python does: so they are written "
    "here once more. Tests hold them to the originals: to the Kubernetes project's examples, and about any pod "
    "to its checks, built as a program (lab/tools/pod-security)."
)
_ONE_STACK = (
    "`tidegate guardrails` reads one file and the policy pack one program: no other environment can be seen there, "
    "so they compare only the environments within that one stack. `tidegate up`, `preview` and `rollout` compare "
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
    return _BEGIN.format(annotation=ANNOTATION) + about + table + "".join(map(_section, RULES)) + _NOT_JUDGED


def _section(rule: Guardrail) -> str:
    text = f"\n### {rule.name}\n\n{fill(f'**{rule.title}.** {rule.why}', _WIDTH)}\n\n{fill(rule.do, _WIDTH)}\n"
    if rule is pods_fulfil_pod_security_restricted:
        text += "\n" + "".join(f"- {control}\n" for control in CONTROLS) + f"\n{fill(_PROFILE, _WIDTH)}\n"
    if rule is production_shares_nothing_that_others_may_write:
        text += f"\n{fill(_ONE_STACK, _WIDTH)}\n"
    return text
