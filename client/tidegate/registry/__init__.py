"""The registry: MLflow has every registered version, its files, its digests and its history."""

from .golden import Golden
from .registry import Registry
from .signing import SigningKey
from .version import Record, RegisteredVersion

__all__ = ["Golden", "Record", "RegisteredVersion", "Registry", "SigningKey"]
