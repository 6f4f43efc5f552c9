"""A registered version, and the words by which MLflow knows it."""

from datetime import datetime
from typing import Final

from tidegate_contracts.message import Message

CLIENT_SUFFIX: Final = "-client"
"""The client model of `densenet` is registered as `densenet-client`."""
LATEST: Final = "latest"

# Tags of versions and runs. `is_parent` and `is_triton_client` are what Domino's reference looks for.
IS_PARENT: Final = "is_parent"
IS_CLIENT: Final = "is_triton_client"
MODEL: Final = "tidegate.model"
MANIFEST: Final = "tidegate.manifest.sha256"
REGISTERED_BY: Final = "tidegate.registered-by"
UNPROVEN: Final = "tidegate.registered-by.unproven"
"""Why who registered may be somebody else than he is said to be; not there where a proxy has asked for a proof."""
GOLDEN: Final = "tidegate.golden.sha256"
SIGNATURE: Final = "tidegate.signature.sha256"
CLIENT: Final = "tidegate.client"
"""Of a version: the version of the client model that goes with it, `densenet-client/3`."""
VERSION: Final = "tidegate.version"
"""Of a version of the client model: the number of the version that it calls."""

# Below the source of a version, where MLflow keeps the empty pyfunc model.
ENTRY_FOLDER: Final = "entry"
MANIFEST_FILE: Final = "manifest.json"


class RegisteredVersion(Message):
    """One version of a model, pinned: nothing that is said of it later changes which files it has."""

    model: str
    number: int
    run_id: str
    """The parent run, which has the files."""
    source: str
    """URI of the version's artifacts, as the registry says it."""
    manifest_sha256: str
    """Digest of its manifest, as it is tagged."""
    registered_by: str
    registered_at: datetime
    """UTC."""
    signed: bool
    client_model: str | None
    """Name and version of the client model, `densenet-client/3`; None where the registration is unfinished."""
    tags: dict[str, str]
    aliases: tuple[str, ...]

    @property
    def unproven(self) -> str:
        """Why `registered_by` may be somebody else; nothing where it was proven."""
        return self.tags.get(UNPROVEN, "")


def golden_file(sha256: str) -> str:
    """Return where a golden request lies; another request is another file, so that a tag decides which one counts."""
    return f"golden-{sha256[:16]}.json"


def signature_file(sha256: str) -> str:
    """Return where a signature lies."""
    return f"signature-{sha256[:16]}.json"
