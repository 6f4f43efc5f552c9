import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..rigs.issuer import Reply, json_reply


@dataclass
class DominoFake:
    """Answers `/v4/auth/principal` as Domino does: always with 200, and for unknown callers as anonymous."""

    url: str = ""
    known: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    mode: str = "well"
    requests: int = 0
    at_once: int = 0
    most_at_once: int = 0

    def answer(self, _: str, headers: Mapping[str, str]) -> Reply:
        self.requests += 1
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        time.sleep({"late": 0.05, "slow": 3}.get(self.mode, 0))
        self.at_once -= 1
        match self.mode:
            case "error" | "forbidden":
                return {"error": 500, "forbidden": 403}[self.mode], b"", {}
            case "redirect":
                return 302, b"", {"Location": "/v4/auth/stolen"}
            case "nameless":
                return json_reply({"isAnonymous": False})
            case "silent":
                return json_reply({"canonicalName": "alice"})
        for name in ("Authorization", "X-Domino-Api-Key"):
            if (found := self.known.get((name, headers.get(name.lower(), "")))) is not None:
                return json_reply({"isAnonymous": False, **found})
        return json_reply({"isAnonymous": True})


def part(value: Any) -> str:
    raw = value if isinstance(value, bytes) else json.dumps(value).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
