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

_LOOK: Final = """
:root { color-scheme: light dark; --line: #8886; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 80rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.3rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .25rem .6rem; border-bottom: 1px solid var(--line); vertical-align: top; }
td:nth-child(4) { white-space: nowrap; }
td:last-child { overflow-wrap: anywhere; }
.place td { border: 0; opacity: .75; }
.resident td:nth-child(3) { color: #2e8b57; }
.failed td:nth-child(3), .quarantined td:nth-child(3), .unreachable td:nth-child(3) { color: #c0392b; }
"""
_SCRIPT: Final = """
"use strict";
const find = (id) => document.getElementById(id);

function row(kind, at, name, where) {
  const failures = (at.failures ?? []).map((each) => (each.version ? `version ${each.version}: ` : "") + each.why);
  const held = (at.leases ?? []).map((each) => `held by ${each.holder}, ${each.inFlight} in flight`);
  const waiting = at.waiters ? [`${at.waiters} wait for it`] : [];
  const why = [...(failures.length ? failures : [at.why ?? ""]), ...held, ...waiting].filter(Boolean).join("; ");
  const since = (at.since ?? "").replace("T", " ").replace("Z", " UTC");
  const made = find("models").insertRow();
  made.className = kind + " " + at.state;
  for (const text of [name, where, at.state, since, (at.versions ?? []).join(", "), why])
    made.insertCell().textContent = text;
}

async function look() {
  const headers = { accept: "application/json" };
  const key = find("key").value.trim();
  if (key) headers.authorization = "Bearer " + key;
  let told;
  try {
    const answer = await fetch(location.pathname, { headers, cache: "no-store" });
    told = await answer.json();
    if (!answer.ok) throw new Error(told.detail ?? `It answers ${answer.status}.`);
  } catch (error) {
    find("said").textContent = error.message;
    return;
  }
  find("said").textContent = `${told.models.length} that you may inspect in ${told.environment}, as of ` +
    new Date().toISOString().slice(0, 19).replace("T", " ") + " UTC";
  find("models").replaceChildren();
  for (const model of told.models) {
    const [only, ...others] = model.places ?? [];
    const alone = only && !others.length;
    row("model", alone ? only : model, model.model, `${model.server}/${model.pool}`);
    if (!alone) for (const place of model.places ?? []) row("place", place, "", place.replica);
  }
}

find("who").addEventListener("submit", (event) => { event.preventDefault(); look(); });
look();
"""
_MODELS: Final = f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>Models</title>
<style>{_LOOK}</style>
</head>
<body>
<h1>Models</h1>
<form id="who">
<label>Token or API key <input id="key" type="password" autocomplete="off"></label> <button>Look</button>
</form>
<p id="said" role="status"></p>
<table>
<thead><tr><th>Model<th>Server<th>State<th>Since<th>Versions<th>Why, and who holds it</tr></thead>
<tbody id="models"></tbody>
</table>
<script>{_SCRIPT}</script>
</body>
</html>
"""
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
    return _page(_MODELS, f"script-src {_hash(_SCRIPT)}; style-src {_hash(_LOOK)}")


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
