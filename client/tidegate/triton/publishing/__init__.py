"""What Triton makes of a repository that `tidegate.publishing` writes, and its configuration.

    <repository>/<model>/config.pbtxt     computed (config.py): which versions are served, what aliases stand for
                        /labels.txt …     what else the configuration's owner has beside its version folder

What that rests on, as Triton 2.51 does it in poll mode
(tests/client/triton/publishing/test_publishing_triton.py shows it):

- A version that the configuration does not name is not looked at. A configuration may name versions that are not
  there: the others serve. One that names none that is there is a load that fails: what served before serves on.
- Of a model whose folder is there it lets go under one configuration alone, that of an ensemble of what is not there.
- When only the set of served versions changes, only what is new is loaded; what goes is drained. Those that were served
  before are not loaded again.
- When anything else of the configuration changes, an alias too, or a file beside the versions, every served version is
  loaded a second time beside the one that answers, and then they change places. No call is refused; until then each
  needs its memory twice. (A comment, or the same text again, changes nothing.)
- When one version fails to load, all that served before serve on; Triton tries again at every poll.
- A configuration that cannot be read leaves the last good one in force.
- A folder of a model without a configuration may be loaded as whatever Triton takes it for: so a new model first has
  a configuration that names no version that is there.
- When files of a version are deleted, or renamed, while it is being loaded, Triton's polling may stop for good: a
  Python model's process that misses its program ends, and is waited for. What is loaded a second time is told to be
  ready all the while. So a model is withdrawn, and its folder goes when Triton has let go of it; and what is removed
  is what has not been served for a while.
- Where Triton may write the repository, its Python backend puts `__pycache__` into versions, and then loads them twice,
  since they have changed: mount it read-only. (No variable keeps it from that, for its Python runs isolated.)
"""
