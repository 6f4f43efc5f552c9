"""`rollout`: applies an environment to one data plane after another, in waves, with a health gate after each.

| module | contents |
|---|---|
| `command` | `tidegate rollout`, from the command line to the exit code, and dry runs |
| `prepare` | everything before the first plane: a new rollout, a resumed one, a rollback |
| `plan` | the planes of each step: the canary, then waves |
| `journal` | stored rollouts: the state of each plane, the texts, the last good rollouts, the lock |
| `runner` | works through the steps, and knows engines and gates only as two functions |
| `worker` | the process that applies one plane, and how it is started and stopped |
| `gate` | the conditions for the next step |
| `report` | the output before, during and after |
"""
