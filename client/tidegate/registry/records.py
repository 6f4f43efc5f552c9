"""The history of a model: one record for each thing that was done with a version, which nobody changes afterwards."""

from datetime import datetime
from typing import Literal

from pydantic import AwareDatetime
from tidegate_contracts.message import Message

RECORDS_FOLDER = "tidegate/records"
"""Below the artifacts of the version's run."""
LIMIT_BYTES = 64 << 10


class Record(Message):
    """Who did what with which version, when, and where."""

    what: Literal["register", "deploy", "promote", "rollback", "withdraw"]
    model: str
    version: int
    who: str
    when: AwareDatetime
    previous: int | None = None
    """The version that served before."""
    environment: str | None = None
    plane: str | None = None
    source: str | None = None
    """The environment that the version came from."""
    manifest_sha256: str | None = None
    proxy: str | None = None
    """Address of the proxy through which it was seen to answer."""
    note: str = ""


def in_order(records: list[Record]) -> list[Record]:
    """Return records with the oldest first."""
    return sorted(records, key=lambda record: (record.when, record.version, record.what))


def name_of(when: datetime, what: str, unique: str) -> str:
    """Return the name of a record's file: names sort as the records do."""
    return f"{when:%Y%m%dT%H%M%S.%f}-{what}-{unique}.json"
