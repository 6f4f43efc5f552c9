"""A real NVIDIA Dynamo on this machine, with an engine that needs no GPU: a frontend, and a worker for each model.

The engine generates random words at the speed of a GPU. Its model has a tokenizer and no weights.
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
WORDS = 4000  # The size of the vocabulary. The engine also generates unknown tokens, which give no text.
LOOPBACK = {
    "DYN_HTTP_HOST": HOST,
    "DYN_TCP_RPC_HOST": HOST,
    "DYN_TCP_RESPONSE_STREAM_HOST": "lo",  # The name of an interface.
    "DYN_SYSTEM_HOST": HOST,  # Here the frontend gets a model's tokenizer, not from a model hub.
    "HF_HUB_OFFLINE": "1",
    **MESSAGES,
}
"""Without these variables they listen on every address. A worker always publishes its events (ZeroMQ) on every one."""


@dataclass
class Dynamo:
    """A running frontend and its workers."""

    process: Process
    http_port: int
    workers: dict[str, Process]  # By the name of its model.
    system_ports: dict[str, int]  # By model: the port of the worker's probes and of its engine's metrics.
    _run_worker: Callable[[str, Path | None], Process]

    @property
    def http(self) -> str:
        return f"{HOST}:{self.http_port}"

    def get(self, path: str) -> tuple[int, Any]:
        response = self._get(path)
        return response.status, response.json()

    def served(self) -> set[str]:
        """Return the models that have a worker."""
        try:
            return {each["id"] for each in self.get("/v1/models")[1]["data"]}
        except urllib3.exceptions.HTTPError:
            return set()

    def in_flight(self, model: str) -> int:
        text = self._get("/metrics").data.decode()
        name = re.escape(f'dynamo_frontend_inflight_requests{{model="{model}"}}')
        found = re.search(rf"^{name} (\d+)$", text, re.MULTILINE)
        return int(found[1]) if found else 0

    def start_again(self, model: str) -> None:
        """Restart a worker that has ended. It serves when the model is `served`."""
        set_aside(self.workers[model].log)
        self.workers[model] = self._run_worker(model, None)

    def start(self, model: str, folder: Path) -> None:
        """Run a worker of another model from a directory, and wait until it serves."""
        worker = self.workers[model] = self._run_worker(model, folder)
        worker.wait_until(lambda: model in self.served(), READY_SECONDS)

    def _get(self, path: str) -> urllib3.BaseHTTPResponse:
        once = {"connection": "close"}
        return urllib3.request("GET", f"http://{self.http}{path}", headers=once, timeout=10, retries=False)


@contextmanager
def dynamo(folder: Path, models: Sequence[str]) -> Iterator[Dynamo]:
    """Run a Dynamo with these models until the block ends, with its files in a directory. Raises CannotBeHadError."""
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
            # Each model has a separate endpoint: workers of one endpoint share their calls, whatever their models are.
            endpoint = f"dyn://{model.replace('.', '-')}.backend.generate"
            command = ["-m", "dynamo.mocker", "--model-path", str(where), "--model-name", model]
            command += ["--endpoint", endpoint, "--discovery-backend", "file"]
            return run(f"worker-{model}", command, DYN_SYSTEM_PORT=str(system_ports[model]))

        process = run("frontend", frontend)
        workers = {model: run_worker(model) for model in models}
        made = Dynamo(process, port, workers, system_ports, run_worker)
        process.wait_until(lambda: made.served() >= set(models), READY_SECONDS)
        yield made


def write_model(folder: Path) -> None:
    """Write a worker's files of a small Llama: its limits, its vocabulary, and its chat template."""
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
