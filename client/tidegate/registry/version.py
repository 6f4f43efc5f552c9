"""A registered version, the words by which MLflow knows it, and its history: a record for each thing done with it."""

import uuid
from collections.abc import Iterable
from datetime import UTC, timedelta
from typing import Final, Literal

from pydantic import AwareDatetime, Field
from tidegate_contracts.message import Message

CLIENT_SUFFIX: Final = "-client"  # The client model of `densenet` is registered as `densenet-client`.
LATEST: Final = "latest"

# Tags of versions and runs. `is_parent` and `is_triton_client` are what Domino's reference looks for.
IS_PARENT: Final = "is_parent"
IS_CLIENT: Final = "is_triton_client"
MODEL: Final = "tidegate.model"
MANIFEST: Final = "tidegate.manifest.sha256"
REGISTERED_BY: Final = "tidegate.registered-by"
UNPROVEN: Final = "tidegate.registered-by.unproven"
"""Why the registrant's name may be a false one; not there where a proxy has asked for a proof."""
GOLDEN: Final = "tidegate.golden.sha256"
SIGNATURE: Final = "tidegate.signature.sha256"
CLIENT: Final = "tidegate.client"  # Of a version: the client model's version that goes with it, `densenet-client/3`.
VERSION: Final = "tidegate.version"  # Of a version of the client model: the number of the version that it calls.

# Below the source of a version, where MLflow keeps the empty pyfunc model.
ENTRY_FOLDER: Final = "entry"
MANIFEST_FILE: Final = "manifest.json"

RECORDS_FOLDER: Final = "tidegate/records"  # Below the artifacts of the version's run.
REMOVALS_FOLDER: Final = "tidegate/removals"  # Of `undeploy`, which earlier clients would take for no record.
ATTEMPTS_FOLDER: Final = "tidegate/attempts"
"""Beside it, what began and what failed: clients that know nothing of it meet no records that they cannot read."""
LIMIT_BYTES: Final = 64 << 10
MOST: Final = 10**18  # More than any version's number.
AHEAD: Final = timedelta(days=1)
"""A clock may go ahead by so much. A record of a later time is none: it would be the newest one for ever."""


class RegisteredVersion(Message):
    """One version of a model, pinned: nothing that is said of it later changes which files it has."""

    model: str
    number: int
    run_id: str  # The parent run, which has the files.
    source: str  # URI of the version's artifacts, as the registry says it.
    manifest_sha256: str
    registered_by: str
    client_model: str | None
    """Its name and version, `densenet-client/3`; None where the registration is unfinished, and of language models."""
    tags: dict[str, str]

    @property
    def unproven(self) -> str:
        """Why `registered_by` may be another person; nothing where it was proven."""
        return self.tags.get(UNPROVEN, "")


def extra_file(kind: Literal["golden", "signature"], sha256: str) -> str:
    """Return where a golden request or a signature lies; another one is another file, and a tag says which counts."""
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
    source: str | None = None  # The environment that the version came from.
    manifest_sha256: str | None = None
    proxy: str | None = None  # Address of the proxy through which it was seen to answer.
    note: str = ""
    ended: Literal["done", "failed", "interrupted"] = "done"
    """`interrupted`, which is written when an operation begins, is what it was unless a later one says how it ended."""

    def content(self) -> bytes:
        """Return the bytes of its file."""
        exclude = {"ended"} if self.ended == "done" else None  # which earlier clients do not know
        return self.model_dump_json(by_alias=True, exclude=exclude).encode()

    def new_path(self) -> str:
        """Return where it is to lie, which is never written again: names sort as the records do."""
        when = self.when.astimezone(UTC)
        done = REMOVALS_FOLDER if self.what == "undeploy" else RECORDS_FOLDER
        folder = done if self.ended == "done" else ATTEMPTS_FOLDER
        return f"{folder}/{when:%Y%m%dT%H%M%S.%f}-{self.what}-{uuid.uuid4().hex[:12]}.json"


class Records(list[Record]):
    """Records, the oldest first; and what is lost or lies among them and is none: somebody else must have done that."""

    def __init__(self, records: Iterable[Record], unreadable: Iterable[str] = ()) -> None:
        super().__init__(sorted(records, key=lambda record: (record.when, record.version, record.what)))
        self.unreadable = tuple(unreadable)
