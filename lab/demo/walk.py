"""The walk through the data plane, which samples the slice's memory throughout, and commands to try in a shell."""

from collections.abc import Sequence

from tidegate.output import size

from lab.local_plane.environment import LocalEnvironment
from lab.local_plane.prometheus import Prometheus

from . import playing, zoo
from .alerts import SOONER
from .playing import Scene, claim
from .scenes import SCENES
from .shell import write_shell
from .show import Show
from .stage import CALLER, IDLE_SECONDS, LEASE_SECONDS, PROXIES, WAIT_SECONDS, Stage
from .visitor import Visitor


def perform(platform: LocalEnvironment, show: Show) -> None:
    """Print what runs and which models there are, and play all scenes."""
    introduce(show)
    show.print(f"To watch the models in a browser, open http://{platform.proxies[0].http}/models")
    play(Stage(platform, Visitor([proxy.http for proxy in platform.proxies], platform.keys[CALLER]), show))


def introduce(show: Show) -> None:
    """Print what runs and which models there are."""
    show.print(
        f"Running on this machine: a preload Triton, an on-demand Triton with its eviction policy, and {PROXIES} "
        "proxies. They are the real programs, on the CPU instead of a GPU.\n"
        f"For a short demo, models can be evicted after {IDLE_SECONDS} s without a call (default: 300 s), and "
        f"leases last {LEASE_SECONDS} s (default: 15 s)."
    )
    show.console.print()
    show.the_zoo()


def play(stage: Stage, scenes: Sequence[Scene[Stage]] = SCENES) -> None:
    """Play scenes, and sample the slice's memory throughout: it must never exceed the capacity."""

    def check() -> None:
        stage.platform.check()
        most, capacity = stage.most_bytes, zoo.CAPACITY_BYTES
        claim(most <= capacity, f"models used {size(most)} at one time, but the capacity is {size(capacity)}")

    with stage.sampling():
        playing.play(stage, stage.show, scenes, check)
    stage.show.print(
        f"Memory never exceeded the capacity: models used at most {size(stage.most_bytes)} of "
        f"{size(zoo.CAPACITY_BYTES)}, in {stage.samples} samples."
    )


_CLIENT = """\
import os, numpy, tritonclient.grpc as triton
client = triton.InferenceServerClient(os.environ["TIDEGATE_GRPC"])
tensor = triton.InferInput("INPUT", [4], "FP32")
tensor.set_data_from_numpy(numpy.arange(4, dtype=numpy.float32))
headers = {"authorization": "Bearer " + os.environ["TIDEGATE_API_KEY"]}
print(client.infer("moose", [tensor], headers=headers).as_numpy("OUTPUT"))
"""


def to_try(platform: LocalEnvironment, seen: Prometheus | None = None) -> str:
    """Return sentences that end with a colon, each with its command below. The first command sets variables. With
    `seen`, they include commands that use what Prometheus has recorded."""
    proxy, key = platform.proxies[0], platform.keys[CALLER]
    variables = {
        "TIDEGATE_URL": f"http://{proxy.http}",
        "DOMINO_INFERENCE_PROXY": f"http://{proxy.http}",
        "TIDEGATE_GRPC": proxy.grpc,
        "TIDEGATE_API_KEY": key,
    }
    programs = {"tidegate": ("-m", "cli"), "python": ()}
    others = ", ".join(each.http for each in platform.proxies[1:])
    numbers = '{"INPUT": [1, 2, 3, 4]}'
    cold = f"Call a cold model. It loads on its first call, and can be evicted {IDLE_SECONDS} s after its last call"
    commands = {
        f"In another terminal, run this first (the other proxy is at {others})":
            f". {write_shell(platform.root, variables, programs)}",
        cold: _curl("fox", "generate", numbers, "-i"),
        "Call a model that streams": _curl(zoo.SINGER, "generate_stream", '{"COUNT": 5, "DELAY": 300}', "-N"),
        "Call a model that fails to load. After two failures it is quarantined":
            _curl(zoo.BROKEN.name, "generate", numbers, "-i"),
        "Use Triton's own client, over gRPC": f"python - <<'END'\n{_CLIENT}END",
        "Show this proxy's metrics of its servers (1 and closed while they are healthy)":
            f"curl -s http://{proxy.admin}/metrics | grep -E '^tidegate_proxy_(pool_ready|breaker)'",
        f"Show where each model is (as a page: http://{proxy.http}/models)":
            'tidegate status --proxy "$TIDEGATE_URL"',
        "Show every slice and every problem, until Ctrl-C": 'tidegate top --proxy "$TIDEGATE_URL"',
        "Explain why a model is not in memory, or which proxies keep it there":
            f'tidegate why {zoo.BROKEN.name} --proxy "$TIDEGATE_URL"',
    }  # fmt: skip
    if seen is not None:
        commands |= _recorded(seen)
    return "\n\n".join(f"{sentence}:\n{command}" for sentence, command in commands.items())


def _recorded(seen: Prometheus) -> dict[str, str]:
    called = _curl("$model", "generate", '{"INPUT": [1, 2, 3, 4]}', "-o /dev/null")
    models = " ".join(each.name for each in zoo.ANIMALS[:6])
    like_here = (
        f"--capacity {zoo.CAPACITY_BYTES} --policy lru-idle --idle-seconds {IDLE_SECONDS} --wait-seconds {WAIT_SECONDS}"
    )
    played = f"python -m tidegate_eviction simulate --trace zoo.csv.gz {like_here}"
    return {
        f"Call six models, so that Prometheus records the calls ({seen.url})":
            f"for model in {models}; do {called}; sleep 1.5; done",
        f"List the alerts. An hour in their rules is {60 // SOONER} minutes here (as a page: {seen.url}/alerts)":
            f"curl -s {seen.url}/api/v1/alerts",
        "Write the recorded calls to a trace, and simulate them (docs/capacity.md)":
            f"tidegate trace --out zoo.csv.gz --prometheus {seen.url} && {played}",
    }  # fmt: skip


def _curl(model: str, operation: str, body: str, option: str) -> str:
    url = f'"$TIDEGATE_URL/v2/models/{model}/{operation}"'
    return f"curl -s {option} {url} -H \"Authorization: Bearer $TIDEGATE_API_KEY\" -d '{body}'"
