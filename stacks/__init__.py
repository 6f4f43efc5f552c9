"""The stack definition: *load* → *validate* → *resolve*; what comes out, `components` declares.

| module | what happens there |
|---|---|
| `load`, `reading/` | a file becomes a plain tree in which every value knows its line |
| `overlays` | environments and data planes are laid over the common part |
| `definition/`, `model_keys` | the typed model: keys, types, defaults, rules that concern one item; what its keys are |
| `validate`, `rules/` | a tree becomes the typed definition, or every reason why it is none; rules over several items |
| `problems`, `schema_errors` | how people are told what is wrong: where, what, why and what to do |
| `stack` | what a definition that can be used consists of |
| `resolve/`, `devices`, `images_lock` | a stack as the components' arguments; placements in numbers; images' digests |
| `clients`, `reference/` | what clients are told; the pages and the schema that are written from the code |
| `command` | what the commands of `rollout` and `charts` share |
"""
