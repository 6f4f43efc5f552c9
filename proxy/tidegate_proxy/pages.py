"""Pages for browsers: where models are, and the API's documentation. Nothing in them comes from elsewhere.

They hold no data, and so anybody gets them: what a page shows it asks for itself, as whoever looks at it. Addresses in
them are relative: they are the same below a path.
"""

import asyncio
import gzip
from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Final

from fastapi import Request, Response

from . import overview

_START: Final = 'SwaggerUIBundle({ url: "openapi.json", dom_id: "#swagger-ui", validatorUrl: null });'
_DOCUMENTATION: Final = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Tidegate inference proxy</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="swagger-ui"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script>{_START}</script>
</body>
</html>
"""
ASSETS: Final = {"swagger-ui.css": "text/css", "swagger-ui-bundle.js": "text/javascript"}
"""What the documentation is shown with, and its media types: Swagger UI, as the package `fastapi-swagger` has it."""


def wants_page(request: Request) -> bool:
    """Tell whether a page is to be answered: to browsers, and not to who takes JSON."""
    accept = request.headers.get("accept", "")
    return "text/html" in accept and "application/json" not in accept


def models_page() -> Response:
    """Return the page that shows where models are, of the address at which it is read."""
    return _page(overview.PAGE, f"script-src {_hash(overview.SCRIPT)}; style-src {_hash(overview.LOOK)}; img-src data:")


def documentation() -> Response:
    """Return the page that shows the OpenAPI document; what it is shown with is below it: `ASSETS`."""
    return _page(_DOCUMENTATION, f"script-src 'self' {_hash(_START)}; style-src 'self'; img-src data:")


async def asset(name: str) -> Response:
    """Return one of `ASSETS`, compressed: every browser takes that, and it is a quarter of the bytes."""
    headers = {"content-encoding": "gzip", "cache-control": "max-age=3600", "x-content-type-options": "nosniff"}
    return Response(await asyncio.to_thread(_compressed, name), 200, headers, ASSETS[name])


@cache
def _compressed(name: str) -> bytes:
    return gzip.compress((files("fastapi_swagger") / "resources" / name).read_bytes())


def _page(text: str, sources: str) -> Response:
    nowhere = "default-src 'none'; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    headers = {
        "content-security-policy": f"{nowhere}; {sources}",
        "cache-control": "no-store",
        "referrer-policy": "no-referrer",
        "vary": "accept",
        "x-content-type-options": "nosniff",
    }
    return Response(text, 200, headers, "text/html; charset=utf-8")


def _hash(text: str) -> str:
    """Return how a Content-Security-Policy allows this text between two tags, and no other."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"
