"""`retry`: has a running policy take a model out of quarantine."""

import http.client
import json
import shlex
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tidegate_contracts import eviction_process, lease

ADDRESS = f"127.0.0.1:{eviction_process.LEASE_PORT}"
SECONDS = 5.0


class RetryError(Exception):
    """The policy did not answer, or refused; the text is for people."""


def retry(address: str, state: Path, model: str) -> None:
    """Take a model out of quarantine; raises RetryError."""
    path = f"{lease.MODELS_PATH}/{urllib.parse.quote(model, safe='')}/retry"
    command = f"python -m tidegate_eviction retry {shlex.quote(one_line(model))}"
    in_cluster = f"In a cluster: kubectl exec <pod> -c eviction-policy -- {command}"
    try:
        token = (state / eviction_process.ADMIN_TOKEN_FILE).read_text("ascii")
    except (OSError, ValueError) as error:
        raise RetryError(f"{one_line(error)}. Name the policy's state folder with --state. {in_cluster}") from None
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    request = urllib.request.Request(f"http://{address}{path}", method="POST", data=b"")
    request.add_unredirected_header("authorization", f"Bearer {token}")
    try:
        with opener.open(request, timeout=SECONDS) as answer:
            answer.read()
    except urllib.error.HTTPError as error:
        try:
            why = one_line(json.loads(error.read())["why"])
        except (ValueError, KeyError, TypeError):
            port = f"the port of leases ({eviction_process.LEASE_PORT}) of an eviction policy"
            why = f"What answers at {one_line(address)} says {error.code} to POST {path}: is that {port}?"
        raise RetryError(why) from None
    except TimeoutError:
        raise RetryError(
            f"The eviction policy at {one_line(address)} accepts connections, but gives no answer in {SECONDS:.0f} s: "
            "it hangs. Read its log, and delete the pod if it does not recover."
        ) from None
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = one_line(str(getattr(error, "reason", error)))
        why = f"No eviction policy answers at {one_line(address)}: {reason}."
        raise RetryError(f"{why} Set --address to HOST:PORT. {in_cluster}") from None


def one_line(text: object) -> str:
    """Return a text in one line, without control characters, which could be commands to a terminal."""
    return " ".join("".join(sign if sign.isprintable() else " " for sign in str(text)).split())
