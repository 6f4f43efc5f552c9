"""The registry: MLflow holds every registered version, its files, its digests and its history."""

from .golden import Golden
from .records import Record
from .registry import Registry
from .signing import SigningKey, Trust
from .version import RegisteredVersion

__all__ = ["Golden", "Record", "RegisteredVersion", "Registry", "SigningKey", "Trust"]
