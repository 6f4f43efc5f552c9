"""Finds a model's best configuration: sweeps instances and batches on a real Triton, with the real perf_analyzer.

It drives perf_analyzer itself, not through `triton-model-analyzer`. That one (1.58, as its source says) copies the
model with its weights before it measures, counts the memory of the tritonserver process alone, without those in which
Python models run, measures windows of a number of requests unless told otherwise, and would bring numba, optuna 3.6.1,
docker and gevent along into a package that is to stay small.
"""
