"""Brings stacks out: as YAML to apply by any means, or up on a cluster with an engine.

`cli` has the commands that use it.

| module | what happens there |
|---|---|
| `terminal` | what people see, and commands to copy |
| `definition` | commands about the definition alone: `check`, `environments`, `pin` |
| `render` | a stack as objects and YAML texts, for every other command |
| `seen`, `json_document` | what a command has found; the document that --json makes of it |
| `guardrails`, `contexts` | what is looked for before anything is written or applied; which stacks live where |
| `rendering`, `output` | stacks as files |
| `preflight`, `needs` | what a stack needs, and what of it its cluster lacks |
| `cluster` | stacks up in a cluster, and down again |
| `engines/` | what makes a stack true on a cluster: Pulumi, Helm, and whose a stack is |
| `waves/` | `rollout`: one data plane after another |
| `program/` | the Pulumi program |
| `init/` | the repository of a platform of your own |
| `preview`, `changes/` | what would change, and how that is said |
| `tools/` | Helm, kubectl and crane: found, or built into the cache folder |
| `kubectl`, `processes` | asks a cluster, and explains its refusals; runs other programs |
| `live`, `managed_fields` | what a cluster has and would have, and which manager set which field |
| `handover` | fields and objects of people and other engines, before an engine goes to work |
| `health` | whether workloads are well, and why a pod waits |
"""
