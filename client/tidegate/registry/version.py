"""A registered version, its tags in MLflow, and its history: one record per operation."""

import uuid
from collections.abc import Iterable
from datetime import UTC, timedelta
from typing import Final, Literal

from pydantic import AwareDatetime, Field
from tidegate_contracts.message import Message

CLIENT_SUFFIX: Final = "-client"  # The client model of `densenet` has the name `densenet-client`.
LATEST: Final = "latest"

# Tags of versions and runs. Domino's reference implementation reads `is_parent` and `is_triton_client`.
IS_PARENT: Final = "is_parent"
IS_CLIENT: Final = "is_triton_client"
MODEL: Final = "tidegate.model"
MANIFEST: Final = "tidegate.manifest.sha256"
REGISTERED_BY: Final = "tidegate.registered-by"
UNPROVEN: Final = "tidegate.registered-by.unproven"
"""Why the registrant's name may be wrong. Absent if a proxy authenticated the registrant."""
GOLDEN: Final = "tidegate.golden.sha256"
SIGNATURE: Final = "tidegate.signature.sha256"
CLIENT: Final = "tidegate.client"  # Of a version: its client model's name and version, `densenet-client/3`.
VERSION: Final = "tidegate.version"  # Of a version of the client model: the number of the version that it calls.

# Below the source of a version, where MLflow keeps the empty pyfunc model.
ENTRY_FOLDER: Final = "entry"
MANIFEST_FILE: Final = "manifest.json"

RECORDS_FOLDER: Final = "tidegate/records"  # Below the artifacts of the version's run.
REMOVALS_FOLDER: Final = "tidegate/removals"  # Of `undeploy`. Earlier clients could not read these records.
ATTEMPTS_FOLDER: Final = "tidegate/attempts"
"""Started and failed operations. Separate, because earlier clients could not read these records."""
LIMIT_BYTES: Final = 64 << 10
MOST: Final = 10**18  # More than any version's number.
AHEAD: Final = timedelta(days=1)
"""How far a clock may be ahead. A record with a later time is invalid, or else it would be the newest for ever."""


class RegisteredVersion(Message):
    """One version of a model. Its files never change, whatever is added to it later."""

    model: str
    number: int
    run_id: str  # the parent run, which has the files
    source: str  # URI of the version's artifacts, from the registry
    manifest_sha256: str
    registered_by: str
    client_model: str | None
    """Its name and version, `densenet-client/3`. None if the registration is unfinished, and for language models."""
    tags: dict[str, str]

    @property
    def unproven(self) -> str:
        """Why `registered_by` may be wrong. Empty if a proxy authenticated the registrant."""
        return self.tags.get(UNPROVEN, "")


def extra_file(kind: Literal["golden", "signature"], sha256: str) -> str:
    """Return the file of a golden request or a signature. Each has a separate file, and a tag has the valid one."""
    return f"{kind}-{sha256[:16]}.json"


class Record(Message):
    """One operation on a version: what, by whom, when, and in which environment."""

    what: Literal["register", "golden", "deploy", "promote", "rollback", "undeploy"]
    model: str
    version: int = Field(ge=1, lt=MOST)
    who: str
    when: AwareDatetime
    previous: int | None = Field(None, ge=1, lt=MOST)
    environment: str | None = None
    plane: str | None = None
    source: str | None = None  # the environment that the version came from
    manifest_sha256: str | None = None
    proxy: str | None = None  # address of the proxy through which the version answered
    note: str = ""
    ended: Literal["done", "failed", "interrupted"] = "done"
    """`interrupted` is written when an operation starts. A later record has its result."""

    def content(self) -> bytes:
        exclude = {"ended"} if self.ended == "done" else None  # earlier clients do not know this field
        return self.model_dump_json(by_alias=True, exclude=exclude).encode()

    def new_path(self) -> str:
        """Return a new path for the record. Paths sort like the records, and are never written again."""
        when = self.when.astimezone(UTC)
        done = REMOVALS_FOLDER if self.what == "undeploy" else RECORDS_FOLDER
        folder = done if self.ended == "done" else ATTEMPTS_FOLDER
        return f"{folder}/{when:%Y%m%dT%H%M%S.%f}-{self.what}-{uuid.uuid4().hex[:12]}.json"


class Records(list[Record]):
    """Records, the oldest first, and the names of unreadable or lost ones, which someone else must have damaged."""

    def __init__(self, records: Iterable[Record], unreadable: Iterable[str] = ()) -> None:
        super().__init__(sorted(records, key=lambda record: (record.when, record.version, record.what)))
        self.unreadable = tuple(unreadable)
