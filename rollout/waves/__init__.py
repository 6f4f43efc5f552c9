"""`rollout`: brings an environment up in one data plane after another, in waves, each behind a health gate.

| module | what happens there |
|---|---|
| `command` | what `tidegate rollout` does, from the command line to the exit code; dry runs |
| `prepare` | everything before the first plane: a new rollout, one that goes on, one taken back |
| `plan` | which planes go in which step: the canary, then waves |
| `journal` | what is kept: where each plane stands, the texts, the last good rollouts, the lock |
| `runner` | works through the steps; knows engines and gates as two functions only |
| `worker` | the process that brings one plane up, and how it is started and stopped |
| `gate` | what must hold before the next step |
| `report` | what people see before, during and after |
"""
