"""The command `tidegate`: what platform admins run, and the commands for models, which `client/` has alone too.

Exit codes: 0 done · 1 it could not be done · 2 the definition or the command line is wrong · 6 no engine for a
cluster · 130 stopped with Ctrl-C. Those of the commands for models: `tidegate --help` lists them.

| module | commands |
|---|---|
| `app` | all of them together |
| `platform` | `check`, `render`, `up`, `down`, `preview`, `rollout`, … : a definition and its clusters |
| `chart` | `values`, `chart`: the same stacks for Helm |
| `capacity` | `trace`, `plan`, `advise`: traffic, and the slices that it needs |
| `options` | options that several commands have, and what a shell completes for them |
"""
