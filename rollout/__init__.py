"""Writes stacks as YAML to apply with any tool, or applies them to a cluster with an engine.

`cli` has the commands that use it.

| module | contents |
|---|---|
| `terminal` | output, and commands for the user to copy |
| `definition` | commands about the definition alone: `check`, `environments`, `pin` |
| `render` | a stack as objects and YAML texts, for every other command |
| `seen`, `json_document` | the findings of a command, and the document that --json makes of them |
| `guardrails`, `contexts` | checks before anything is written or applied, and the stacks of each cluster |
| `rendering`, `output` | stacks as files |
| `preflight`, `needs` | prerequisites of a stack, and those that its cluster lacks |
| `cluster` | `up` and `down` |
| `engines/` | Pulumi and Helm, and the ownership of stacks |
| `waves/` | `rollout`: one data plane after another |
| `program/` | the Pulumi program |
| `init/` | the repository that `tidegate init` writes |
| `preview`, `changes/` | the differences between two versions, and their report |
| `tools/` | Helm, kubectl and crane: found, or built into the cache directory |
| `kubectl`, `processes` | queries a cluster and explains its errors, and runs other programs |
| `live`, `managed_fields` | the live and the expected objects of a cluster, and the manager of each field |
| `handover` | fields and objects of people and other engines, before an engine runs |
| `health` | the health of workloads, and why a pod waits |
"""
