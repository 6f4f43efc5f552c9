"""Brings stacks out: as YAML for anybody to apply, or up on a cluster with the engine that is there.

`python -m rollout up|check|preview|pin DEFINITION` is what the Makefile calls. Exit codes: 0 done · 1 it could not be
done · 2 the definition or the command line is wrong · 3 no engine for a cluster · 130 stopped with Ctrl-C.
"""
