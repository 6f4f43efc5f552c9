"""The models page for browsers, and the OpenAPI document: static files of this package.

Neither contains data, so every caller gets them. The page fetches its data with its reader's credential.
Addresses in both are relative, so they also work below a path.
"""

import re
from base64 import b64encode
from functools import cache
from hashlib import sha256
from pathlib import Path

from fastapi import Request, Response

OPENAPI_PATH = "/openapi.yaml"
_HERE = Path(__file__).parent


def wants_page(request: Request) -> bool:
    """Return whether to send a page: to browsers, but not to clients that accept JSON."""
    accept = request.headers.get("accept", "")
    return "text/html" in accept and "application/json" not in accept


def models_page() -> Response:
    """Return the models page. It can run only its own script, and connect only to the proxy."""
    text = _text("models.html")
    sources = f"script-src {_hash(text, 'script')}; style-src {_hash(text, 'style')}; img-src data:"
    nowhere = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    headers = {
        "content-security-policy": f"{nowhere}; {sources}",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "vary": "accept",
        "x-content-type-options": "nosniff",
    }
    return Response(text, 200, headers, "text/html; charset=utf-8")


def openapi() -> Response:
    """Return the OpenAPI document."""
    return Response(_text("openapi.yaml"), media_type="application/yaml")


@cache
def _text(name: str) -> str:
    return (_HERE / name).read_text("utf-8")


def _hash(page: str, tag: str) -> str:
    """Return the hash with which a Content-Security-Policy allows only the text between these tags of the page."""
    text = re.findall(rf"<{tag}>(.+?)</{tag}>", page, re.DOTALL)[0]
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
