"""What the operating system and object stores say, as errors that people can act on."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from ..errors import RefusedError, TidegateError, UnfinishedError, UnreachableError

_AGAIN = "run the same command again: it goes on from here"
_NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
_FORBIDDEN = {errno.EACCES, errno.EPERM, errno.EROFS}
_CODE = re.compile(r"<(Code|Message)>([^<]*)<")
"""What an S3 says is wrong. Nothing else of its answer is shown: it may hold tokens."""
_STATUS = re.compile(r"status code: (\d{3}[^:<]*)")


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn the errors of files within the block into TidegateError."""
    try:
        yield
    except OSError as error:
        raise of_file(error, where) from error


def of_file(error: OSError, where: str) -> TidegateError:
    """Return the error to show for one of the operating system's."""
    why = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
    if error.errno in _NO_ROOM:
        what = "there is no room left; what served before serves on"
        return UnfinishedError(what, where=where, why=why, do=f"make room (tidegate prune), then {_AGAIN}")
    if error.errno in _FORBIDDEN:
        return RefusedError("the repository cannot be written", where=where, why=why, do="ask whoever owns the volume")
    if error.errno == errno.EXDEV:
        what = "files cannot be renamed into the repository, so nothing can be published whole"
        do = "give the repository a folder of its own below the dataset's root, on one file system with it"
        return RefusedError(what, where=where, why=why, do=do)
    what = "the volume of the repository does not answer as it should; what served before serves on"
    do = f"see that the volume is there and mounted, then {_AGAIN}"
    return UnreachableError(what, where=where, why=why, do=do)


def of_store(error: Exception, where: str) -> TidegateError:
    """Return the error to show for one of obstore's."""
    text = str(error)
    said = [found[2] for found in _CODE.finditer(text)] or [found[1].strip() for found in _STATUS.finditer(text)]
    why = ": ".join(said) or type(error).__name__
    if any(word in why for word in ("AccessDenied", "Forbidden", "InvalidAccessKey", "SignatureDoesNotMatch", "403")):
        do = "see that the credentials of this process may read and write the bucket below the repository's parent"
        return RefusedError("the object store refuses it", where=where, why=why, do=do)
    if any(word in why for word in ("Expired", "401", "Unauthorized", "InvalidToken")):
        do = f"renew the credentials, then {_AGAIN}"
        return RefusedError("the object store does not take the credentials", where=where, why=why, do=do)
    do = f"see that the bucket is there and its address is right, then {_AGAIN}"
    return UnreachableError("the object store does not answer as it should", where=where, why=why, do=do)
