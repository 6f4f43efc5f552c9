import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import tidegate_proxy
import yaml
from tidegate_contracts.openai import LONGEST_SERVED_NAME, SERVED_NAME_PATTERN
from tidegate_contracts.whereabouts import Whereabouts
from tidegate_proxy.problems import TYPE_ROOT, ProblemType
from tidegate_proxy.targets import NAME_PATTERN, VERSION_PATTERN

from rollout.tools.running import tail

from ..rigs.tables import SERVER, keyed_proxy, routing_table
from .running_proxy import ENVELOPE, MODEL, RunningProxy, request
from .upstream import Received, replying, response, running_upstream

METHODS = ("get", "put", "post", "delete", "options", "head", "patch", "trace")
KNOWN = {"model": MODEL, "server": "vision", "version": "1"}
MISSPELT = {"model": "-m", "server": "-s", "version": "v1"}


@pytest.mark.anyio
async def test_every_documented_path_works_and_accepts_no_other_method(here: RunningProxy) -> None:
    document = yaml.safe_load((await here.ask(request("/openapi.yaml", method="GET", key=None))).body)
    paths = {path: item for path, item in document["paths"].items() if "/v1/" not in path}  # tests/proxy/openai
    operations = [(method.upper(), path) for path, item in paths.items() for method in METHODS if method in item]
    assert len(operations) > 30
    for method, path in operations:
        body = ENVELOPE % b'{"inputs":[]}' if path == "/predict" else b"{}"
        reply = await here.ask(request(path.format(**KNOWN), body, method))
        assert reply.status == 200, (method, path, reply)
        refused = await here.ask(request(path.format(**KNOWN), method="PUT"))
        assert (refused.status, refused.problem) == (405, "method-not-allowed"), path
        assert refused.headers["allow"] == method, path
        if "{model}" in path:
            reply = await here.ask(request(path.format(**MISSPELT), method=method))
            assert (reply.status, reply.problem) == (404, "unknown"), path
            assert reply.json()["detail"].startswith("There is no address '")


def test_the_document_agrees_with_the_names_problems_and_messages_of_the_code() -> None:
    document = yaml.safe_load((Path(tidegate_proxy.__file__).parent / "openapi.yaml").read_text("utf-8"))
    schemas, parameters = document["components"]["schemas"], document["components"]["parameters"]
    assert schemas["Problem"]["properties"]["type"]["enum"] == [TYPE_ROOT + each.word for each in ProblemType]
    patterns = {name: item["schema"].get("pattern") for name, item in parameters.items()}
    assert (patterns["model"], patterns["server"]) == (f"^{NAME_PATTERN}$", f"^{NAME_PATTERN}$")
    assert patterns["version"] == f"^{VERSION_PATTERN}$"
    assert patterns["served"] == f"^{SERVED_NAME_PATTERN}$"
    assert parameters["served"]["schema"]["maxLength"] == LONGEST_SERVED_NAME
    messages = Whereabouts.model_json_schema()
    states = messages["$defs"].pop("State")["enum"]
    assert set(states) <= set(re.findall(r"\w+", schemas["Place"]["properties"]["state"]["description"]))
    for name, message in {**messages["$defs"], "Whereabouts": messages}.items():
        assert schemas[name]["properties"].keys() == message["properties"].keys(), name
        assert set(schemas[name]["required"]) == set(message["required"]), name


MOST_SECONDS = 240  # A timeout that is long enough for a busy machine.
TENSOR = {"name": "y", "datatype": "FP32", "shape": [1], "data": [1.0]}
STATS = {"model_stats": [{"name": "m", "version": "1"}]}
ANSWERS = {
    "infer": {"model_name": "m", "model_version": "1", "outputs": [TENSOR]},
    "stats": STATS,
    "v2": {"name": "triton", "version": "2", "extensions": []},
    "m": {"name": "m", "platform": "python", "versions": ["1"], "inputs": [], "outputs": []},
    "config": {"name": "m"},
    "generate": {"text": "all"},
}
# Allowed beyond the document: 404 for names that are not valid. The models check their own bodies.
CHECKS = "not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance,"
CHECKS += (
    "response_headers_conformance,positive_data_acceptance,unsupported_method,allow_header_conformance,ignored_auth"
)


def like_triton(received: Received) -> bytes:
    """Answer as Triton does, for a model that accepts any request."""
    last = received.path.rpartition("/")[2]
    if last == "ready":
        return response()
    if last == "generate_stream":
        return response(b'data: {"text":"all"}\n\n', kind="text/event-stream")
    return response(json.dumps(ANSWERS.get(last, ANSWERS["m"])).encode())


@pytest.mark.thorough
def test_the_proxy_conforms_to_its_openapi_document(tmp_path: Path) -> None:
    config = tmp_path / "schemathesis.toml"
    config.write_text(f'[parameters]\n"path.model" = "m"\n"path.server" = "{SERVER}"\n')
    with (
        running_upstream(replying(like_triton)) as behind,
        keyed_proxy(tmp_path, routing_table(behind.port, behind.port, ["m"])) as (front, key),
    ):
        options = ["--checks", CHECKS, "--max-examples", "5", "--phases", "examples,coverage,fuzzing"]
        options += ["--header", f"X-API-Key: {key}", "--request-timeout", "10", "--suppress-health-check", "all"]
        options += ["--generation-with-security-parameters", "false"]  # it would add a second credential
        command = [sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"]
        done = subprocess.run(
            [*command, f"http://{front.http}/openapi.yaml", *options, "--no-shrink", "--output-sanitize", "false"],
            capture_output=True,
            text=True,
            timeout=MOST_SECONDS,
            cwd=tmp_path,
            check=False,
        )
        assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
        generated = re.search(r"(\d+) generated", done.stdout)
        assert generated is not None, done.stdout[-4000:]
        assert int(generated[1]) > 1000
        log = tail(front.process.log)
        assert "Traceback" not in front.process.log.read_text(), log
