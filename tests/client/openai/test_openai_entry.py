import json
import os
import struct
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidegate import Tidegate
from tidegate.calling.credentials import Credential
from tidegate.calling.proxy import ProxyClient
from tidegate.cli.model import check
from tidegate.errors import ExitCode, TidegateError, UnreachableError, UsageError
from tidegate.findings import Severity
from tidegate.kinds import KINDS, kind_of_entry
from tidegate.publishing import open_repository
from tidegate.registry.golden import Golden
from tidegate.registry.manifest import manifest_of
from tidegate.registry.registration import checked
from tidegate_contracts.manifest import ENTRY_VERSION
from typer import Typer
from typer.testing import CliRunner

from .models import INDEX, change, write_entry

KIND = KINDS["openai"]
app = Typer(pretty_exceptions_enable=False)
app.command()(check)


def cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def headed(header: bytes) -> Callable[[Path], object]:
    return lambda file: file.write_bytes(struct.pack("<Q", len(header)) + header)


def pointer(file: Path) -> None:
    """Write the pointer that git has for a file of git-lfs which was not fetched."""
    file.write_text(f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 988097824\n")


def long(file: Path) -> None:
    with file.open("wb") as opened:
        opened.truncate((1 << 28) + 1)  # a sparse file


def moved(file: Path) -> None:
    target = file.with_name("elsewhere")
    file.rename(target)
    file.symlink_to(target)


def below(file: Path) -> None:
    file.parent.mkdir()
    file.touch()


def remote(*keys: str) -> Callable[[Path], object]:
    """Return settings that name code outside the entry."""

    def write(file: Path) -> None:
        message: dict[str, Any] = {"AutoProcessor": "somebody/model--processing.Processor"}
        for key in reversed(keys):
            message = {key: message}
        file.write_text(json.dumps(message))

    return write


ONE, TWO = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
BROKEN: list[tuple[str, Callable[[Path], object], str]] = [
    ("config.json", Path.unlink, "config.json: error: the file is missing"),
    ("config.json", lambda file: file.write_text("{"), "config.json: error: not a JSON object"),
    ("config.json", lambda file: file.write_text("{}"), "it has no architectures"),
    ("config.json", lambda file: change(file, model_type=None), "it has no model_type"),
    ("config.json", lambda file: change(file, auto_map={"AutoModel": "m.M"}), "config.json: error: it contains code"),
    ("config.json", pointer, "config.json: error: a pointer of git-lfs"),
    ("config.json", lambda file: file.write_text('{\n"a" 1}'), "line 2, column 5: Expecting ':' delimiter"),
    ("config.json", lambda file: file.write_bytes(b'{"a": "\xff"}'), "not valid UTF-8"),
    ("processor_config.json", remote("auto_map"), "processor_config.json: error: it contains code"),
    (
        "video_preprocessor_config.json",
        remote("video", "auto_map"),
        "video_preprocessor_config.json: error: it contains",
    ),
    ("generation_config.json", lambda file: file.write_text("{"), "generation_config.json: error: not a JSON"),
    ("tokenizer.json", Path.unlink, "there is no tokenizer"),
    ("tokenizer.json", lambda file: file.write_text("[]"), "tokenizer.json: error: not a JSON object"),
    ("tokenizer.model", pointer, "run `git lfs pull` in its clone"),
    (ONE, Path.unlink, f"{ONE}: error: the file is missing"),
    (ONE, headed(b'{"a'), "its header cannot be read: line 1, column 2: Unterminated string"),
    (ONE, headed(b"[" * 100_000), "its header cannot be read: nested too deeply"),
    (ONE, headed(b'{"a": {"dtype": "F32", "shape": [2]}}'), "its header cannot be read"),
    (ONE, cut, f"{ONE}: error: the file is incomplete"),
    (ONE, moved, f"{ONE}: error: a symbolic link"),
    (INDEX, lambda file: file.write_text("{}"), "it has no weight_map"),
    ("pytorch_model.bin", pointer, "pytorch_model.bin: error: engines must not load pickles"),
    ("training/optimizer.pt", below, "training/optimizer.pt: error: engines must not"),
    ("modeling.py", Path.touch, "modeling.py: error: it contains code"),
    ("vocab.json", long, "why: it is too long"),
    ("pipe", os.mkfifo, "pipe: error: neither a file nor a directory"),
]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_whole_one_is_recognised_and_nothing_is_found(tmp_path: Path, *, sharded: bool) -> None:
    entry = write_entry(tmp_path / "chat", "one", sharded=sharded)
    assert kind_of_entry(entry) is KIND
    assert kind_of_entry(tmp_path) is KIND
    message = CliRunner().invoke(app, [str(tmp_path)])
    assert (message.stdout, message.exit_code) == (f"{entry}: nothing found\n", 0)


@pytest.mark.parametrize(("name", "damage", "message"), BROKEN, ids=[message for _, _, message in BROKEN])
def test_incomplete_mismatched_or_executable_entries_are_errors(
    tmp_path: Path, name: str, damage: Callable[[Path], object], message: str
) -> None:
    entry = write_entry(tmp_path / "chat", "one", sharded=True)
    damage(entry / name)
    done = CliRunner().invoke(app, [str(entry)])
    assert message in done.stdout
    assert done.exit_code == ExitCode.FOUND
    assert len([each for each in KIND.check(entry) if each.severity is Severity.ERROR]) == 1


@pytest.mark.parametrize(
    "message", [{"auto_map": 17}, [{"type": "Pooling"}], {"auto_map": {}}, json.loads("[" * 900 + "]" * 900)]
)
def test_words_and_lists_of_a_vocabulary_are_not_code(tmp_path: Path, message: object) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    (entry / "vocab.json").write_text(json.dumps(message))
    assert KIND.check(entry) == []


def test_gguf_is_refused_as_weights_of_engines(tmp_path: Path) -> None:
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat/model.gguf").write_bytes(b"GGUF")
    done = CliRunner().invoke(app, [str(tmp_path / "chat")])
    assert "there are no weights\n  why: GGUF is the format of llama.cpp" in done.stdout
    assert done.exit_code == ExitCode.FOUND


@pytest.mark.parametrize("deep", [["config.json"], ["model.safetensors"], []])
def test_a_language_model_whose_files_are_one_directory_too_deep_is_reported(tmp_path: Path, deep: list[str]) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    names = deep or os.listdir(entry)
    (entry / "1").mkdir()
    for name in names:
        (entry / name).rename(entry / "1" / name)
    done = CliRunner().invoke(app, [str(entry)])
    assert "error: this looks like a language model whose files are one directory too deep" in done.stdout
    assert done.exit_code == ExitCode.FOUND


@pytest.mark.parametrize("wrong", ["entry", "golden request"])
def test_an_invalid_entry_is_refused_before_its_weights_are_read(tmp_path: Path, wrong: str) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    if wrong == "entry":
        (entry / "tokenizer.json").unlink()
    begun = []

    @contextmanager
    def progress(what: str, _size: int) -> Iterator[Callable[[int], None]]:
        begun.append(what)
        yield lambda _bytes: None

    message = "there is no tokenizer" if wrong == "entry" else "neither a chat"
    with Tidegate(progress=progress) as tidegate, pytest.raises(TidegateError, match=message):
        tidegate.register(entry, golden={"inputs": []})
    assert begun == []


def test_an_entry_without_its_configuration_is_not_registered(tmp_path: Path) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    (entry / "config.json").unlink()
    with pytest.raises(UsageError, match=r"it has no config\.json"):
        manifest_of(entry)


def test_trusted_code_is_still_a_warning(tmp_path: Path) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    (entry / "modeling.py").touch()
    done = CliRunner().invoke(app, ["--trusted", str(entry)])
    assert "modeling.py: warning: it contains code" in done.stdout
    assert done.exit_code == 0
    with pytest.raises(TidegateError, match="it contains code"):
        checked(entry, "chat")
    assert "it contains code" in checked(entry, "chat", trusted=True)[0]
    (tmp_path / "staged").mkdir()
    entry.rename(tmp_path / "staged" / ENTRY_VERSION)  # like a fetched entry
    found = KIND.check_staged(
        tmp_path / "staged", "chat", open_repository(tmp_path, KIND.configs), backends=None, bring=str
    )
    assert [each.severity for each in found] == [Severity.WARNING]


def test_a_probable_mistake_is_a_warning(tmp_path: Path) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    change(entry / "tokenizer_config.json", chat_template=None)
    [found] = KIND.check(entry)
    assert (found.severity, found.where) == (Severity.WARNING, "tokenizer_config.json")


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)
KEYS = ("architectures", "auto_map", "chat_template", "model", "weight_map")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_entry(tmp_path_factory.mktemp("whole") / "chat", "one", sharded=True)


@given(
    st.sampled_from(["config.json", "tokenizer.json", "tokenizer_config.json", INDEX]),
    st.dictionaries(st.sampled_from(KEYS), ANY) | st.builds(lambda vocab: {"model": {"vocab": vocab}}, ANY),
)
def test_any_content_of_its_files_causes_no_defect(whole: Path, name: str, message: dict[str, Any]) -> None:
    before = (whole / name).read_bytes()
    try:
        change(whole / name, **message)
        for each in KIND.check(whole):
            assert each.where
    finally:
        (whole / name).write_bytes(before)


def test_its_directory_in_the_manifest_is_the_versions(tmp_path: Path) -> None:
    entry = write_entry(tmp_path / "chat", "one")
    (entry / "1_Pooling").mkdir()
    (entry / "1_Pooling" / "config.json").write_text("{}")
    paths = [each.path for each in manifest_of(entry).files]
    assert paths == sorted(f"1/{file.relative_to(entry)}" for file in entry.rglob("*") if file.is_file())


CHAT = {"messages": [{"role": "user", "content": "word1"}], "temperature": 0}


@pytest.mark.parametrize(
    ("request_", "outputs", "message"),
    [
        ({"inputs": []}, None, "neither a chat"),
        (CHAT | {"prompt": ""}, None, "neither a chat"),
        (CHAT | {"stream": True}, None, "a stream"),
        (CHAT | {"temperature": 0.5}, {"text": ["one"]}, "temperature to 0"),
        (CHAT, {"embedding": [[1.0]]}, "the output embedding"),
        ({"input": "word1"}, {"text": ["one"]}, "the output text"),
    ],
)
def test_a_golden_request_that_cannot_be_compared_is_refused(
    request_: dict[str, Any], outputs: dict[str, list[Any]] | None, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        KIND.check_golden(Path(), Golden(request=request_, outputs=outputs), "golden.json")


class Engine(ProxyClient):
    def __init__(self, answer: dict[str, Any]) -> None:
        super().__init__("http://nowhere.test", Credential())
        self.answer = answer
        self.requested: list[tuple[str, dict[str, Any]]] = []

    def openai(self, call: str, body: Mapping[str, Any], **_how: Any) -> dict[str, Any]:
        self.requested.append((call, dict(body)))
        return self.answer


def judged(request_: dict[str, Any], outputs: dict[str, list[Any]], answer: dict[str, Any]) -> tuple[str, list[str]]:
    engine = Engine(answer)
    found = KIND.ask(engine, "m", request_, version=3)
    [(call, body)] = engine.requested
    assert body == request_ | {"model": "m-v3"}
    return call, Golden(request=request_, outputs=outputs).differences(found)


def test_embeddings_are_compared_with_a_tolerance() -> None:
    request_ = {"input": ["word1"]}
    answer = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, -0.25]}]}
    assert judged(request_, {"embedding": [[0.50001, -0.25]]}, answer) == ("embeddings", [])
    _, [off] = judged(request_, {"embedding": [[0.51, -0.25]]}, answer)
    assert "0.5 instead of 0.51" in off


def test_texts_are_compared_exactly() -> None:
    chat = {"choices": [{"index": 0, "message": {"role": "assistant", "content": "on e"}}]}
    assert judged(CHAT, {"text": ["on e"]}, chat) == ("chat/completions", [])
    assert judged(CHAT, {"text": ["on e "]}, chat)[1]
    request_ = {"prompt": "word1", "temperature": 0}
    text = {"choices": [{"index": 0, "text": "on e"}]}
    assert judged(request_, {"text": ["on e"]}, text) == ("completions", [])
    assert judged(request_, {"text": ["one"]}, text)[1]
    nothing: dict[str, Any] = {"choices": [{"message": {"content": None, "tool_calls": []}}]}
    assert judged(CHAT, {"text": [""]}, nothing)[1] == []


def test_an_invalid_version_is_never_sent() -> None:
    engine = Engine({})
    with pytest.raises(UsageError, match="'champion' is not a version"):
        KIND.ask(engine, "m", CHAT, version="champion")
    assert engine.requested == []


def test_an_invalid_response_of_the_api_is_reported() -> None:
    with pytest.raises(UnreachableError, match="not a response of /v1/chat/completions"):
        judged(CHAT, {}, {"choices": [{}]})
