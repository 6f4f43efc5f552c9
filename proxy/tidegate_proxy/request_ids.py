"""The ids of requests: callers' own where they can be used, else new ones."""

import itertools
import os
import re

_RUN = os.urandom(5).hex().encode()
_COUNT = itertools.count(1)
_REQUEST_ID = re.compile(rb"[0-9A-Za-z._-]{1,128}")


def new_request_id() -> bytes:
    """Return an id that no other request of any proxy has."""
    return b"%b-%x" % (_RUN, next(_COUNT))


def is_request_id(value: bytes) -> bool:
    """Tell whether a caller's own id can be used: anything else is left out of logs and answers."""
    return _REQUEST_ID.fullmatch(value) is not None
