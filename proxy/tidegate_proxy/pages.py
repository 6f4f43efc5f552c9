"""The page of models for browsers, and the OpenAPI document: files of this package, served as they are.

Neither holds data of callers, so everybody gets them. The page fetches what it shows as its reader.
Addresses in both are relative, so they also hold below a path.
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
    """Tell whether to answer with a page: to browsers, and not to clients that accept JSON."""
    accept = request.headers.get("accept", "")
    return "text/html" in accept and "application/json" not in accept


def models_page() -> Response:
    """Return the page that shows where models are. It may run its own script, and connect to the proxy alone."""
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
    """Return how a Content-Security-Policy allows the text between these tags of the page, and no other."""
    text = re.findall(rf"<{tag}>(.+?)</{tag}>", page, re.DOTALL)[0]
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
