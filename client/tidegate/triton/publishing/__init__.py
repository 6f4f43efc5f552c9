"""The config.pbtxt of published models, and how Triton treats the repository of `tidegate.publishing`.

    <repository>/<model>/config.pbtxt     generated (config.py): the served versions and the aliases
                        /labels.txt …     other files of the configuration's owner, outside its version directory

This relies on the following behaviour of Triton 2.51 in poll mode, which
tests/client/triton/publishing/test_publishing_triton.py verifies:

- Triton ignores versions that the configuration does not list. If some listed versions do not exist, it serves the
  others. If none exists, the load fails, and Triton keeps serving what it served before.
- Triton unloads a model whose directory exists under one configuration only: an ensemble of models that do not exist.
- If only the set of served versions changes, Triton loads the new versions and drains the removed ones. It does not
  reload the others.
- After any other change (an alias, other fields, a file next to the versions), Triton loads every served version a
  second time and then switches. It refuses no call, but needs the memory twice until then. Comments
  and unchanged text have no effect.
- If one version fails to load, Triton keeps serving what it served before, and retries at every poll.
- If the configuration cannot be read, the last valid one stays in force.
- Triton may load a model without a configuration with guessed settings. So a new model first gets a configuration
  that lists no existing version.
- If files of a version are deleted or renamed while Triton loads it, Triton's polling may stop for good. A Python
  model's process exits without its program, and Triton waits for it. During a second load, Triton reports the model as
  ready. So a model is withdrawn first, and its directory is removed after Triton has unloaded it. Only versions that
  have not been served for a while are removed.
- If Triton can write to the repository, its Python backend creates `__pycache__` in versions. Triton then loads them
  again, because they changed. So mount the repository read-only. No variable prevents this, because the backend's
  Python runs isolated.
"""
