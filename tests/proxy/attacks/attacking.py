"""A process of attackers, each a thread. It reads commands from standard input: `<attack> <number> <seconds>`. It
answers each with a line of JSON: what they did, and the first error other than a closed connection."""

import json
import resource
import ssl
import sys
import threading
import time
import traceback
from collections import Counter
from contextlib import suppress

from . import over_grpc, over_http, over_openai
from .attackers import ATTACKS, EACH, NO_KEY, Attack, Attacker

__all__ = ["ATTACKS", "over_grpc", "over_http", "over_openai"]


def run(name: str, number: int, seconds: float, ports: tuple[int, int], keys: list[str]) -> dict[str, object]:
    """Attack with `number` attackers simultaneously. Return what they did."""
    attack, tls = ATTACKS[name], None
    if attack.over_tls:
        tls = ssl.create_default_context()
        tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    chosen = [""] if attack.whose == NO_KEY else keys if attack.whose == EACH else keys[:1]
    end = time.monotonic() + seconds
    attackers = [Attacker(*ports, chosen[at % len(chosen)], end, tls) for at in range(number)]
    errors: list[str] = []
    threads = [threading.Thread(target=_attack, args=(attack, each, errors), daemon=True) for each in attackers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    did: Counter[str] = sum((each.did for each in attackers), Counter())
    return {"did": did, "error": "".join(errors[:1])}


def _attack(attack: Attack, attacker: Attacker, errors: list[str]) -> None:
    try:
        with suppress(OSError):
            attack.do(attacker)
    except Exception:
        errors.append(traceback.format_exc())
    attacker.close()


def main() -> None:
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    http_port, grpc_port, *keys = sys.argv[1:]
    for line in sys.stdin:
        name, number, seconds = line.rstrip("\n").split("\t")
        print(json.dumps(run(name, int(number), float(seconds), (int(http_port), int(grpc_port)), keys)), flush=True)


if __name__ == "__main__":
    main()
