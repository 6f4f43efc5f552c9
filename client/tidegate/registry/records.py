"""The history of a model: one record for each thing that was done with a version, which nobody changes afterwards."""

import uuid
from collections.abc import Iterable
from datetime import UTC, timedelta
from typing import Final, Literal

from pydantic import AwareDatetime, Field
from tidegate_contracts.message import Message

RECORDS_FOLDER = "tidegate/records"
"""Below the artifacts of the version's run."""
LIMIT_BYTES = 64 << 10
MOST: Final = 10**18
"""More than any version's number."""
AHEAD: Final = timedelta(days=1)
"""A clock may go ahead by so much. A record of a later time is none: it would be the newest one for ever."""


class Record(Message):
    """Who did what with which version, when, and where."""

    what: Literal["register", "golden", "deploy", "promote", "rollback"]
    model: str
    version: int = Field(ge=1, lt=MOST)
    who: str
    when: AwareDatetime
    previous: int | None = Field(None, ge=1, lt=MOST)
    """The version that served before."""
    environment: str | None = None
    plane: str | None = None
    source: str | None = None
    """The environment that the version came from."""
    manifest_sha256: str | None = None
    proxy: str | None = None
    """Address of the proxy through which it was seen to answer."""
    note: str = ""


class Records(list[Record]):
    """Records, the oldest first; and what is lost or lies among them and is none: somebody else must have done that."""

    def __init__(self, records: Iterable[Record], unreadable: Iterable[str] = ()) -> None:
        """Take records in any order, and what could not be read."""
        super().__init__(sorted(records, key=lambda record: (record.when, record.version, record.what)))
        self.unreadable = tuple(unreadable)


def new_path(record: Record) -> str:
    """Return where a record is to lie, which is never written again: names sort as the records do."""
    when = record.when.astimezone(UTC)
    return f"{RECORDS_FOLDER}/{when:%Y%m%dT%H%M%S.%f}-{record.what}-{uuid.uuid4().hex[:12]}.json"
