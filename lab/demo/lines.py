"""What to try while it runs: commands that work when they are pasted into a shell."""

import shlex
import sys
from dataclasses import dataclass

from . import zoo
from .platform import IDLE_SECONDS, ROOT, Platform

_CLIENT = """\
import os, numpy, tritonclient.grpc as triton
client = triton.InferenceServerClient(os.environ["TIDEGATE_GRPC"])
given = triton.InferInput("INPUT", [4], "FP32")
given.set_data_from_numpy(numpy.arange(4, dtype=numpy.float32))
who = {"authorization": "Bearer " + os.environ["TIDEGATE_KEY"]}
print(client.infer("moose", [given], headers=who).as_numpy("OUTPUT"))
"""


@dataclass(frozen=True)
class Line:
    """A command, and what it shows."""

    sentence: str
    command: str


def lines(platform: Platform) -> list[Line]:
    """Return what can be tried on a platform that runs; the first one sets the others' variables."""
    proxy = platform.proxies[0]
    python = shlex.quote(sys.executable)
    paths = shlex.quote(f"{ROOT}/policies/eviction:{ROOT}/contracts:{ROOT}/service")
    numbers = '{"INPUT": [1, 2, 3, 4]}'
    return [
        Line(
            "In another terminal, first of all",
            f"export TIDEGATE_URL=http://{proxy.http} TIDEGATE_GRPC={proxy.grpc} TIDEGATE_KEY={platform.key}",
        ),
        Line(
            f"A cold model is loaded on its first call; again at once it is warm, and {IDLE_SECONDS} s later it may go",
            _curl("fox", "generate", numbers, "-i"),
        ),
        Line("One that streams", _curl(zoo.SINGER, "generate_stream", '{"COUNT": 5, "DELAY": 300}', "-N")),
        Line("One that fails to load: twice, and it is put aside", _curl(zoo.BROKEN.name, "generate", numbers, "-i")),
        Line("Triton's own client, over gRPC", f"{python} - <<'END'\n{_CLIENT}END"),
        Line(
            f"What sits in the slice now (as a page: http://{platform.policy.admin}/)",
            f"PYTHONPATH={paths} {python} -m tidegate_eviction list --address {platform.policy.leases}",
        ),
    ]


def text(wanted: list[Line]) -> str:
    """Return them for people: sentences that end with a colon, each with its command below."""
    return "\n\n".join(f"{line.sentence}:\n{line.command}" for line in wanted)


def _curl(model: str, how: str, said: str, option: str) -> str:
    where = f'"$TIDEGATE_URL/v2/models/{model}/{how}"'
    return f"curl -s {option} {where} -H \"Authorization: Bearer $TIDEGATE_KEY\" -d '{said}'"
