"""Asks each replica of the proxy whether it is ready, and whether it reaches each server.

This runs in the pod of `helm test`, in the proxy's image, with Python's standard library alone. Arguments: the host and
the port of the proxy's probes, then the paths to ask for. Exit code 1, and a line that says why, when a check fails.
"""

import http.client
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor

PATIENCE_SECONDS = 60
PAUSE_SECONDS = 2
ANSWER_SECONDS = 5
AT_ONCE = 16


def addresses(host: str) -> list[str]:
    """Return the addresses of the proxy's replicas; none when none is ready."""
    try:
        return sorted({str(found[4][0]) for found in socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)})
    except OSError:
        return []


def failure(address: str, port: int, path: str) -> str:
    """Return why a check failed; an empty text when it passed."""
    connection = http.client.HTTPConnection(address, port, timeout=ANSWER_SECONDS)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read(300).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as error:
        return f"no answer ({error or type(error).__name__})"
    finally:
        connection.close()
    if answer.status == 200:
        return ""
    return f"HTTP {answer.status} " + "".join(letter if letter.isprintable() else " " for letter in body).strip()


def main(host: str, port: str, *paths: str) -> int:
    """Check every path of every replica, again and again until all pass or patience ends; return the exit code."""
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        asked = [(address, path) for address in addresses(host) for path in paths]
        with ThreadPoolExecutor(AT_ONCE) as several:  # so that many which do not answer take no longer than one
            answers = several.map(lambda one: failure(one[0], int(port), one[1]), asked)
            checks = [(address, path, why) for (address, path), why in zip(asked, answers, strict=True)]
        passed = bool(checks) and not any(why for _, _, why in checks)
        if passed or time.monotonic() > end:
            break
        time.sleep(PAUSE_SECONDS)
    if not checks:
        print(f"FAILED  {host} has no address: no replica of the proxy is ready, or cluster DNS does not answer")
    for address, path, why in checks:
        print(f"FAILED  proxy {address} {path}: {why}" if why else f"ok      proxy {address} {path}")
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
