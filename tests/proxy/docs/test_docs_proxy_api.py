"""The examples in docs/proxy-api.md work with a real Triton, and its tables match the code."""

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import get_args

import grpc
import pytest
from tidegate_contracts import routing
from tidegate_contracts.lease import BusyReason
from tidegate_contracts.openai import is_served_name
from tidegate_proxy import concurrency, pools, problems, serve
from tidegate_proxy.grpc.metadata import MOST_MESSAGE_BYTES
from tidegate_proxy.grpc.response import IDLE_STREAM_SECONDS
from tidegate_proxy.headers import is_request_id
from tidegate_proxy.http import body as body_of_http
from tidegate_proxy.http import head
from tidegate_proxy.http2.frames import MOST_ANSWER_HEAD_BYTES, MOST_HEAD_BYTES
from tidegate_proxy.kinds import parse_path
from tidegate_proxy.memory import OF_CALLERS_WITH_LITTLE, OF_STRANGERS, SHARE, TIMES_FREE
from tidegate_proxy.problems import TYPE_ROOT, ProblemType
from tidegate_proxy.settings import Tunables
from tidegate_proxy.targets import is_name
from tidegate_proxy.upstream import connection

from lab.local_plane.triton import Triton
from stacks.definition.proxy import Proxy, RateLimit

from ..rigs.repository import MODELS
from ..rigs.tables import POOL, SERVER, keyed_proxy, routing_table

PAGE = (Path(__file__).resolve().parents[3] / "docs/proxy-api.md").read_text("utf-8")
CALLER = "reader"


@dataclass(frozen=True)
class Example:
    heading: str
    language: str
    text: str
    shown_as: str
    shown: str

    def __str__(self) -> str:
        return f"{self.heading} ({self.language})"


def examples() -> Iterator[Example]:
    heading = ""
    blocks = list(re.finditer(r"^#+ ([^\n]*)$|^```(\w+)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE))
    for block, after in zip(blocks, [*blocks[1:], None], strict=True):
        if block[1]:
            heading = block[1]
        elif heading == "OpenAI's API":
            continue  # tests/proxy/openai runs it, before another server
        elif block[2] in ("sh", "python"):
            assert after is not None
            assert after[2] in ("text", "json"), f"the page does not show the output of:\n{block[3]}"
            yield Example(heading, block[2], block[3], after[2], after[3])
        else:
            assert block[2] in ("text", "json"), f"no test runs this: {block[0]}"


@pytest.fixture(scope="module")
def reader(real_triton: Triton, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    shares = (routing.VersionShare(version=1, weight=80), routing.VersionShare(version=2, weight=20))
    split = routing.Model(name="versions", server=SERVER, pool=POOL, versions=shares)
    models = [split if model.name == "versions" else model.name for model in MODELS]
    table = routing_table(real_triton.http_port, real_triton.grpc_port, models)
    with keyed_proxy(tmp_path_factory.mktemp("reader"), table, caller=CALLER) as (running, key):
        yield {"TIDEGATE_URL": f"http://{running.http}", "TIDEGATE_GRPC": running.grpc, "TIDEGATE_API_KEY": key}


def has_curl() -> bool:
    if shutil.which("curl") is None:
        return False
    output = subprocess.run(["curl", "--version"], capture_output=True, text=True, check=True).stdout
    return tuple(map(int, re.findall(r"\d+", output)[:2])) >= (7, 82)


@pytest.mark.parametrize("example", list(examples()), ids=str)
def test_an_example_has_the_output_of_the_page(reader: dict[str, str], tmp_path: Path, example: Example) -> None:
    if example.language == "sh" and not has_curl():
        pytest.skip("NOT RUN: THERE IS NO curl 7.82 HERE, so no test ran the examples of docs/proxy-api.md.")
    program = ["bash", "-euo", "pipefail", "-c"] if example.language == "sh" else [sys.executable, "-c"]
    done = subprocess.run(
        [*program, example.text],
        cwd=tmp_path,
        env={**os.environ, **reader},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    if example.shown_as == "json":
        assert json.loads(done.stdout) == json.loads(example.shown)
    else:
        assert done.stdout.replace("\r", "").strip() == example.shown.strip()


def test_the_page_names_every_variable_that_its_examples_use() -> None:
    used = {name for example in examples() for name in re.findall(r"TIDEGATE_\w+", example.text)}
    assert used == set(re.findall(r"^\| `(TIDEGATE_\w+)` \|", PAGE, re.MULTILINE))


def rows(heading: str) -> list[list[str]]:
    below = PAGE.split(f"\n## {heading}\n")[1]
    table = below[below.index("\n|") :].split("\n\n")[0].strip().splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table[2:]]


def test_the_table_of_problems_is_that_of_the_code() -> None:
    assert f"`{TYPE_ROOT}…`" in PAGE
    codes = {code.value[0]: code.name for code in grpc.StatusCode}
    kinds = sorted(ProblemType, key=lambda kind: kind.status)
    expected = [[f"`{kind.word}`", str(kind.status), f"`{codes[kind.grpc_status]}`"] for kind in kinds]
    found = rows("Problems")
    assert [row[:3] for row in found] == expected
    assert all(row[3].endswith(".") for row in found)


def test_the_table_of_reasons_is_that_of_the_code() -> None:
    table = PAGE.split("\n| reason | why |\n")[1].split("\n\n")[0]
    documented = re.findall(r"`([a-z-]+)`", "".join(line.split(" | ")[0] for line in table.splitlines()))
    sources = Path(problems.__file__).parent.rglob("*.py")
    reported = {word for file in sources for word in re.findall(r'\breason="([a-z-]+)"', file.read_text("utf-8"))}
    assert sorted(documented) == sorted(reported | {*get_args(BusyReason)})


def longest(fits: Callable[[str], object]) -> int:
    return max(length for length in range(1, 400) if fits("a" * length))


def test_the_limits_are_those_of_the_code() -> None:
    limits = dict(rows("Limits"))
    rate, body = RateLimit(), Proxy.model_fields["body_limit"].default
    of_caller = limits["of one caller and model, over all proxies (`proxy.rateLimit`)"]
    assert f"{rate.requests_per_minute} a minute, {rate.burst} at once" in of_caller
    assert f" {body.removesuffix('Mi')} MiB by default" in limits["a request's body, compressed or not"]
    unpacked = limits["decompressed JSON over HTTP in which the proxy looks for a sequence"]
    assert unpacked.startswith(f"{body_of_http.MOST_UNPACKED} bytes:")
    over_http = f"HTTP: {head.MOST_HEAD_BYTES} bytes, {head.MOST_HEADERS} headers"
    assert limits["a request's headers"].startswith(f"{over_http}. gRPC: {MOST_HEAD_BYTES} bytes,")
    shares = f"1/{SHARE} of its memory. 3/{OF_STRANGERS} of that for authenticated callers, of which one can have "
    most = Fraction(TIMES_FREE, TIMES_FREE + 1) * (1 - Fraction(1, OF_CALLERS_WITH_LITTLE))
    assert limits["memory that the proxy holds for callers"] == f"{shares}{most}"
    of_server = f"HTTP: {connection.MOST_HEADERS} bytes. gRPC: {MOST_ANSWER_HEAD_BYTES} bytes."
    assert limits["a server's response headers, or trailers"].startswith(of_server)
    assert limits["a server's `grpc-message`"].startswith(f"{MOST_MESSAGE_BYTES} bytes,")
    assert limits["the list of an engine's models (OpenAI's API)"].startswith(f"{pools.MOST_LISTED} bytes.")
    timeouts = [f"{each:g} s" for each in (Tunables.head_seconds, serve.KEEP_ALIVE_SECONDS, IDLE_STREAM_SECONDS)]
    assert limits["timeouts: a request's head, an idle connection, an idle gRPC stream"] == ", ".join(timeouts)
    assert limits["characters of a request id"] == str(longest(lambda text: bool(is_request_id(text.encode()))))
    assert limits["a name of a server or model"].startswith(f"{longest(is_name)} characters")
    further = limits["another name of a language model (`servedNames`)"]
    assert further.startswith(f"{longest(is_served_name)} characters")
    assert limits["waiting requests for each running one"].startswith(f"{concurrency.WAITING_FOR_EACH}.")


def test_every_address_of_a_model_is_one_that_the_proxy_knows() -> None:
    found = re.findall(r"`(?:GET|POST) (/v2/models/\{model\}\S*)`", PAGE)
    assert {parse_path(path.format(model="m")).verb for path in found} == {  # type: ignore[union-attr]
        "infer", "generate", "generate_stream", "ready", "metadata", "config", "stats",
    }  # fmt: skip
