"""A real NVIDIA Dynamo on this machine, with its engine that needs no GPU: a frontend, and a worker for each model.

The engine draws words at random, at the pace of a GPU. Its model has a tokenizer and no weights.
"""

import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import urllib3
from tidegate_contracts.dynamo import MESSAGES

from .process import HOST, Process, free_ports, running, set_aside
from .wheels import environment

GLIBC = (2, 28)
READY_SECONDS = 60.0
WORDS = 4000  # The engine draws tokens of so many; of those that there are not, nothing is read.
LOOPBACK = {
    "DYN_HTTP_HOST": HOST,
    "DYN_TCP_RPC_HOST": HOST,
    "DYN_TCP_RESPONSE_STREAM_HOST": "lo",  # An interface, whatever its name says.
    "DYN_SYSTEM_HOST": HOST,  # Where the frontend gets a model's tokenizer from its worker; else it asks a model hub.
    "HF_HUB_OFFLINE": "1",
    **MESSAGES,
}
"""They listen on every address otherwise. A worker tells of its events (ZeroMQ) on every one whatever is said."""


@dataclass
class Dynamo:
    """A frontend that runs, and its workers."""

    process: Process
    http_port: int
    workers: dict[str, Process]  # By the name of the model that each serves.
    system_ports: dict[str, int]  # Likewise: where each answers probes, and has its engine's metrics.
    _run_worker: Callable[[str, Path | None], Process]

    @property
    def http(self) -> str:
        """Host and port of its HTTP side."""
        return f"{HOST}:{self.http_port}"

    def get(self, path: str) -> tuple[int, Any]:
        """Return the status and the JSON of what it answers."""
        answer = self._ask(path)
        return answer.status, answer.json()

    def served(self) -> set[str]:
        """Return the models that it has a worker for."""
        try:
            return {each["id"] for each in self.get("/v1/models")[1]["data"]}
        except urllib3.exceptions.HTTPError:
            return set()

    def in_flight(self, model: str) -> int:
        """Return how many requests for a model it works on."""
        said = self._ask("/metrics").data.decode()
        name = re.escape(f'dynamo_frontend_inflight_requests{{model="{model}"}}')
        found = re.search(rf"^{name} (\d+)$", said, re.MULTILINE)
        return int(found[1]) if found else 0

    def start_again(self, model: str) -> None:
        """Run a worker in place of one that has ended; it serves when the model is `served`."""
        set_aside(self.workers[model].log)
        self.workers[model] = self._run_worker(model, None)

    def start(self, model: str, folder: Path) -> None:
        """Run a worker of one more model, from a folder; it has it when this returns."""
        worker = self.workers[model] = self._run_worker(model, folder)
        worker.wait_until(lambda: model in self.served(), READY_SECONDS)

    def _ask(self, path: str) -> urllib3.BaseHTTPResponse:
        once = {"connection": "close"}
        return urllib3.request("GET", f"http://{self.http}{path}", headers=once, timeout=10, retries=False)


@contextmanager
def dynamo(folder: Path, models: Sequence[str], options: Sequence[str] = ()) -> Iterator[Dynamo]:
    """Run a Dynamo that serves these models, its files in a folder; it has all of them, and ends with the block.

    `options` are those of the workers, such as `--speedup-ratio 10`. Raises CannotBeHadError.
    """
    python = environment("dynamo", "a real Dynamo (ai-dynamo)", GLIBC) / "bin" / "python"
    write_model(folder / "model")
    variables = (
        os.environ | LOOPBACK | {"DYN_FILE_KV": str(folder / "discovery"), "HOME": str(folder), "TMPDIR": str(folder)}
    )
    [port] = free_ports(1)
    folders, system_ports = dict[str, Path](), dict[str, int]()
    frontend = ["-m", "dynamo.frontend", "--http-port", str(port), "--discovery-backend", "file"]
    with ExitStack() as stack:

        def run(name: str, command: Sequence[str], **more: str) -> Process:
            return stack.enter_context(running(name, [python, *command], folder / f"{name}.log", variables | more))

        def run_worker(model: str, where: Path | None = None) -> Process:
            where = folders[model] = where or folders.get(model, folder / "model")
            system_ports.setdefault(model, free_ports(1)[0])
            # An endpoint of its own: workers of one endpoint share their calls, whatever their models are.
            endpoint = f"dyn://{model.replace('.', '-')}.backend.generate"
            command = ["-m", "dynamo.mocker", "--model-path", str(where), "--model-name", model]
            command += ["--endpoint", endpoint, "--discovery-backend", "file", *options]
            return run(f"worker-{model}", command, DYN_SYSTEM_PORT=str(system_ports[model]))

        process = run("frontend", frontend)
        workers = {model: run_worker(model) for model in models}
        made = Dynamo(process, port, workers, system_ports, run_worker)
        process.wait_until(lambda: made.served() >= set(models), READY_SECONDS)
        yield made


def write_model(folder: Path) -> None:
    """Write what a worker needs of a small Llama: how long it is, its words, and how a chat becomes a text."""
    folder.mkdir(parents=True)
    special = ["<s>", "</s>", "<unk>"]
    vocabulary = {word: number for number, word in enumerate([*special, *(f"word{n}" for n in range(WORDS))])}
    added = [
        {"id": vocabulary[each], "content": each, "special": True}
        | dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
        for each in special
    ]
    template = "{% for message in messages %}{{ message['role'] }} {{ message['content'] }}\n{% endfor %}assistant"
    ends = {"bos_token_id": 0, "eos_token_id": 1}
    files: dict[str, Any] = {
        "config.json": ends
        | {
            "architectures": ["LlamaForCausalLM"], "model_type": "llama", "vocab_size": len(vocabulary),
            "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
            "num_key_value_heads": 2, "max_position_embeddings": 8192, "torch_dtype": "bfloat16", "rms_norm_eps": 1e-5,
        },
        "generation_config.json": ends,
        "tokenizer.json": {
            "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
            "pre_tokenizer": {"type": "WhitespaceSplit"}, "post_processor": None, "decoder": None,
            "model": {"type": "WordLevel", "vocab": vocabulary, "unk_token": "<unk>"},
        },
        "tokenizer_config.json": {
            "bos_token": "<s>", "eos_token": "</s>", "model_max_length": 8192,
            "tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template,
        },
    }  # fmt: skip
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), "utf-8")
