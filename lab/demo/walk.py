"""The walk through the data plane, the room of the slice watched all the while; and what to try in a shell."""

import shlex
import sys
from collections.abc import Sequence

from rich.filesize import decimal

from lab.local_plane.environment import LocalEnvironment
from lab.local_plane.prometheus import Prometheus

from . import playing, zoo
from .alerts import SOONER
from .playing import Scene, claim
from .scenes import SCENES
from .show import Show
from .stage import CALLER, IDLE_SECONDS, LEASE_SECONDS, PROXIES, ROOT, WAIT_SECONDS, Stage
from .visitor import Visitor


def perform(platform: LocalEnvironment, show: Show) -> None:
    """Print what runs, and what is in the zoo, and play all scenes."""
    show.say(
        f"This runs on this machine: a preload Triton, an on-demand Triton with its eviction policy, and {PROXIES} "
        "proxies. They are the real ones, on the processor instead of a GPU.\n"
        f"So that nobody has to wait, a model may go after {IDLE_SECONDS} s without a call (300 s on a platform), and "
        f"leases last {LEASE_SECONDS} s."
    )
    show.console.print()
    show.the_zoo()
    show.say(f"To look on in a browser, while it runs: http://{platform.proxies[0].http}/models")
    play(Stage(platform, Visitor([proxy.http for proxy in platform.proxies], platform.keys[CALLER]), show))


def play(stage: Stage, scenes: Sequence[Scene[Stage]] = SCENES) -> None:
    """Play scenes, and look at the slice all the time: it must never hold more than it has room for."""

    def check() -> None:
        stage.platform.check()
        most, room = stage.most_bytes, zoo.CAPACITY_BYTES
        claim(most <= room, f"{decimal(most)} were taken at one time, and there are {decimal(room)}")

    with stage.sampling():
        playing.play(stage, stage.show, scenes, check)
    stage.show.say(
        f"Room was never overrun: at most {decimal(stage.most_bytes)} of {decimal(zoo.CAPACITY_BYTES)} were taken, at "
        f"{stage.looks} looks."
    )


_CLIENT = """\
import os, numpy, tritonclient.grpc as triton
client = triton.InferenceServerClient(os.environ["TIDEGATE_GRPC"])
given = triton.InferInput("INPUT", [4], "FP32")
given.set_data_from_numpy(numpy.arange(4, dtype=numpy.float32))
who = {"authorization": "Bearer " + os.environ["TIDEGATE_KEY"]}
print(client.infer("moose", [given], headers=who).as_numpy("OUTPUT"))
"""


def to_try(platform: LocalEnvironment, seen: Prometheus | None = None) -> str:
    """Return sentences that end with a colon, each with its command below; the first one sets the others' variables.

    `seen` is what remembers what is called.
    """
    proxy, key = platform.proxies[0], platform.keys[CALLER]
    python = shlex.quote(sys.executable)
    paths = ":".join(f"{ROOT}/{each}" for each in ("", "policies/eviction", "client", "contracts", "service"))
    module = f"PYTHONPATH={shlex.quote(paths)} {python} -m"
    tidegate = f"TIDEGATE_API_KEY=$TIDEGATE_KEY {module} tidegate"
    others = ", ".join(each.http for each in platform.proxies[1:])
    numbers = '{"INPUT": [1, 2, 3, 4]}'
    cold = f"A cold model is loaded on its first call; again at once it is warm, and {IDLE_SECONDS} s later it may go"
    commands = {
        f"In another terminal, first of all (the other proxy is at {others})":
            f"export TIDEGATE_URL=http://{proxy.http} TIDEGATE_GRPC={proxy.grpc} TIDEGATE_KEY={key}",
        cold: _curl("fox", "generate", numbers, "-i"),
        "One that streams": _curl(zoo.SINGER, "generate_stream", '{"COUNT": 5, "DELAY": 300}', "-N"),
        "One that fails to load: twice, and it is put aside": _curl(zoo.BROKEN.name, "generate", numbers, "-i"),
        "Triton's own client, over gRPC": f"{python} - <<'END'\n{_CLIENT}END",
        "What this proxy tells operators of its servers, 1 and closed while all is well":
            f"curl -s http://{proxy.admin}/metrics | grep -E '^tidegate_proxy_(pool_ready|breaker)'",
        f"Where each model is (as a page: http://{proxy.http}/models)": f'{tidegate} status --proxy "$TIDEGATE_URL"',
        "What sits in every slice, and what is in trouble, until Ctrl-C": f'{tidegate} top --proxy "$TIDEGATE_URL"',
        "Why one is not in memory, or who keeps it there": f'{tidegate} why {zoo.BROKEN.name} --proxy "$TIDEGATE_URL"',
    }  # fmt: skip
    if seen is not None:
        commands |= _recorded(seen, module)
    return "\n\n".join(f"{sentence}:\n{command}" for sentence, command in commands.items())


def _recorded(seen: Prometheus, module: str) -> dict[str, str]:
    called = _curl("$model", "generate", '{"INPUT": [1, 2, 3, 4]}', "-o /dev/null")
    models = " ".join(each.name for each in zoo.ANIMALS[:6])
    like_here = (
        f"--capacity {zoo.CAPACITY_BYTES} --policy lru-idle --idle-seconds {IDLE_SECONDS} --wait-seconds {WAIT_SECONDS}"
    )
    played = f"{module} tidegate_eviction simulate --trace zoo.csv.gz {like_here}"
    return {
        f"Calls of the zoo, which a Prometheus remembers ({seen.url})":
            f"for model in {models}; do {called}; sleep 1.5; done",
        f"Alerts, for which an hour is {60 // SOONER} minutes here (as a page: {seen.url}/alerts)":
            f"curl -s {seen.url}/api/v1/alerts",
        "All that was called, as a trace, and what the simulator makes of it (docs/capacity.md)":
            f"{module} cli trace zoo.csv.gz --prometheus {seen.url} && {played}",
    }  # fmt: skip


def _curl(model: str, how: str, said: str, option: str) -> str:
    where = f'"$TIDEGATE_URL/v2/models/{model}/{how}"'
    return f"curl -s {option} {where} -H \"Authorization: Bearer $TIDEGATE_KEY\" -d '{said}'"
