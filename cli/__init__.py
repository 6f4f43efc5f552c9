"""The command `tidegate`: the commands of platform admins, and those for models, which `client/` also ships alone.

Exit codes: 0 done · 1 failed · 2 wrong definition or command line · 6 no engine for a cluster · 130 stopped with
Ctrl-C. `tidegate --help` lists the exit codes of the commands for models.

| module | commands |
|---|---|
| `app` | all commands |
| `platform` | `check`, `render`, `up`, `down`, `preview`, `rollout`, …: a definition and its clusters |
| `chart` | `values`, `chart`: the same stacks for Helm |
| `capacity` | `trace`, `plan`, `advise`: traffic, and the slices that it needs |
| `options` | options of several commands, and their shell completion |
"""
