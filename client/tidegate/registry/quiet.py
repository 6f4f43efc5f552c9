"""MLflow and its libraries say much that is of use to those who write models for MLflow, and to nobody here."""

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet(*names: str) -> Iterator[None]:
    """Let loggers, MLflow's by default, tell nothing but errors for a while, and leave warnings unsaid."""
    loggers = [logging.getLogger(name) for name in names or ("mlflow",)]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(record=True):
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
