"""The ids of requests: callers' own where they can be used, else new ones."""

import itertools
import os
import re
from collections.abc import Callable

_RUN = os.urandom(5).hex().encode()
_COUNT = itertools.count(1)
is_request_id: Callable[[bytes], object] = re.compile(rb"[0-9A-Za-z._-]{1,128}").fullmatch
"""Whether a caller's own id can be used: anything else is left out of logs and answers."""


def new_request_id() -> bytes:
    """Return an id that no other request of any proxy has."""
    return b"%b-%x" % (_RUN, next(_COUNT))
