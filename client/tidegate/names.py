"""Names of models and servers: safe as a folder, in an address, in a registry and in a routing table."""

import re
from typing import Final

RULE: Final = "take letters, digits, '_', '-' and '.', not more than 127, and no '.' or '-' in front"
_NAME: Final = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,126}")
"""As the definition of environments and the proxy have it."""


def is_name(text: str) -> bool:
    """Tell whether a text is such a name."""
    return _NAME.fullmatch(text) is not None
