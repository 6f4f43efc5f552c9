"""What to try while it runs: commands that work when they are pasted into a shell."""

import shlex
import sys

from lab.local_plane.environment import LocalEnvironment

from . import zoo
from .platform import CALLER, IDLE_SECONDS, ROOT

_CLIENT = """\
import os, numpy, tritonclient.grpc as triton
client = triton.InferenceServerClient(os.environ["TIDEGATE_GRPC"])
given = triton.InferInput("INPUT", [4], "FP32")
given.set_data_from_numpy(numpy.arange(4, dtype=numpy.float32))
who = {"authorization": "Bearer " + os.environ["TIDEGATE_KEY"]}
print(client.infer("moose", [given], headers=who).as_numpy("OUTPUT"))
"""


def to_try(platform: LocalEnvironment) -> str:
    """Return sentences that end with a colon, each with its command below; the first one sets the others' variables."""
    proxy, key = platform.proxies[0], platform.keys[CALLER]
    python = shlex.quote(sys.executable)
    paths = shlex.quote(f"{ROOT}/policies/eviction:{ROOT}/contracts:{ROOT}/service")
    numbers = '{"INPUT": [1, 2, 3, 4]}'
    cold = f"A cold model is loaded on its first call; again at once it is warm, and {IDLE_SECONDS} s later it may go"
    slice_ = f"What sits in the slice now (as a page: http://{platform.policy.admin}/)"
    commands = {
        "In another terminal, first of all":
            f"export TIDEGATE_URL=http://{proxy.http} TIDEGATE_GRPC={proxy.grpc} TIDEGATE_KEY={key}",
        cold: _curl("fox", "generate", numbers, "-i"),
        "One that streams": _curl(zoo.SINGER, "generate_stream", '{"COUNT": 5, "DELAY": 300}', "-N"),
        "One that fails to load: twice, and it is put aside": _curl(zoo.BROKEN.name, "generate", numbers, "-i"),
        "Triton's own client, over gRPC": f"{python} - <<'END'\n{_CLIENT}END",
        slice_: f"PYTHONPATH={paths} {python} -m tidegate_eviction list --address {platform.policy.leases}",
    }  # fmt: skip
    return "\n\n".join(f"{sentence}:\n{command}" for sentence, command in commands.items())


def _curl(model: str, how: str, said: str, option: str) -> str:
    where = f'"$TIDEGATE_URL/v2/models/{model}/{how}"'
    return f"curl -s {option} {where} -H \"Authorization: Bearer $TIDEGATE_KEY\" -d '{said}'"
