"""The definition: *load* → *validate* → *resolve*. `components` declares the result.

| module | purpose |
|---|---|
| `load`, `reading/` | read a file as a plain tree with the line of every value |
| `overlays` | merge environments and data planes into the common part |
| `definition/`, `model_keys` | the typed model: keys, types, defaults, rules about one item |
| `validate`, `rules/` | turn a tree into the typed definition or report every problem, with rules about several items |
| `problems`, `schema_errors` | messages: where, what, why and what to do |
| `stack` | the stacks of a valid definition |
| `resolve/`, `devices`, `images_lock` | the components' arguments, placements in numbers, digests of images |
| `clients`, `reference/` | `environments.json` for clients, and the generated pages and schema |
| `command` | shared code of the commands of `rollout` and `charts` |
"""
