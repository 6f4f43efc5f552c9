from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest

from rollout import definition as commands
from rollout import tools
from rollout.tools.programs import Program
from stacks.images_lock import read_images_lock
from stacks.validate import read_definition
from tests import registry as registries
from tests.processes import until

from .conftest import Call, Edit, Patch, gone

Push = Callable[[str, str], str]
Script = Callable[[str], None]


@pytest.fixture
def pin(call: Call, definition: Path) -> Call:
    return partial(call, "pin", definition)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A registry with nothing in it: its host and port."""
    with registries.registry(tmp_path_factory.mktemp("registry")) as address:
        yield address


@pytest.fixture
def push(registry: str, tmp_path: Path) -> Push:
    return lambda name, text: registries.push(f"{registry}/{name}", text, tmp_path)


@pytest.fixture
def digests(push: Push, registry: str, edit: Edit) -> dict[str, str]:
    edit("registry.test/", f"{registry}/")
    names = ("triton", "proxy", "eviction-policy")
    return {f"{registry}/{name}:1": push(f"{name}:1", name) for name in names}


def pins(definition: Path) -> dict[str, str]:
    return {pin.image: pin.digest for pin in read_images_lock(definition.parent).images}


def test_every_image_gets_the_digest_from_its_registry(
    pin: Call, definition: Path, digests: dict[str, str], push: Push
) -> None:
    ended = pin(code=0)
    assert pins(definition) == digests
    assert f"images.lock: written, {len(digests)} digests." in ended.out
    assert not [each for each in read_definition(definition).advisories if "digest" in each.what]
    assert [path.name for path in sorted(definition.parent.iterdir())] == ["images.lock", "two.yaml"]
    before = (definition.parent / "images.lock").stat()
    assert f"nothing changed, {len(digests)} digests" in pin().out
    assert (definition.parent / "images.lock").stat().st_ino == before.st_ino
    moved = push("proxy:1", "another proxy")
    image = next(image for image in digests if "/proxy:" in image)
    pin(code=0)
    assert pins(definition)[image] == moved
    push("proxy:1", "proxy")


@pytest.mark.parametrize(
    "lock", [f"images:\n  - {{image: registry.test/old:1, digest: sha256:{'1' * 64}}}\n", "images: [what"]
)
def test_any_content_of_the_lock_file_is_accepted(
    pin: Call, definition: Path, digests: dict[str, str], lock: str
) -> None:
    (definition.parent / "images.lock").write_text(lock, "utf-8")
    pin(code=0)
    assert pins(definition) == digests


@pytest.mark.usefixtures("digests")
def test_when_one_image_fails_nothing_is_written(pin: Call, definition: Path, registry: str, edit: Edit) -> None:
    edit('/proxy, tag: "1"', '/proxy, tag: "nope"')
    ended = pin(code=1)
    assert f"not resolved: {registry}/proxy:nope: " in ended.err
    assert "MANIFEST_UNKNOWN" in ended.err or "404" in ended.err
    assert "1 of 3 images could not be resolved. Nothing was written." in ended.err
    assert not (definition.parent / "images.lock").exists()


def test_a_registry_that_cannot_be_reached_is_a_reason(pin: Call, edit: Edit) -> None:
    edit("registry.test/", "127.0.0.1:1/")
    ended = pin("--insecure", "--registry-plane", "east", code=1)
    assert ended.err.count("not resolved: 127.0.0.1:1/") == 3
    assert "connection refused" in ended.err


def test_a_data_planes_mirror_can_be_queried_instead(
    pin: Call, definition: Path, registry: str, digests: dict[str, str], edit: Edit
) -> None:
    edit(f"{registry}/", "canonical.test/")
    edit("{name: east,", f"{{name: east, registries: {{canonical.test: {registry}}},")
    pin("--registry-plane", "east", code=0)
    assert pins(definition) == {image.replace(registry, "canonical.test"): digest for image, digest in digests.items()}


@pytest.fixture
def fake_crane(tmp_path: Path, monkeypatch: Patch) -> Script:

    def put(script: str) -> None:
        (tmp_path / "crane").write_text(f"#!/bin/sh\n{script}\n", "utf-8")
        (tmp_path / "crane").chmod(0o755)
        monkeypatch.setattr(tools, "path", lambda _: tmp_path / "crane")

    return put


def test_an_invalid_or_endless_response_is_shortened_and_never_written(
    pin: Call, definition: Path, fake_crane: Script
) -> None:
    fake_crane("echo sha256:short")
    assert "crane printed no error (sha256:short)" in pin(code=1).err
    assert not (definition.parent / "images.lock").exists()
    fake_crane("printf 'Error: \\377 what' >&2; head -c 3000000 /dev/zero | tr '\\0' x >&2; exit 1")
    ended = pin(code=1)
    assert "not resolved: registry.test/proxy:1: \ufffd whatxxx" in ended.err
    assert len(ended.err) < 5_000


def test_a_program_that_takes_too_long_is_ended_with_all_that_it_started(fake_crane: Script, tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    pids.touch()
    fake_crane(f"sleep 60 & echo $! >>{pids}; wait")
    found = commands._query_all(dict.fromkeys("abc", "an image"), insecure=False, seconds=0.3)
    assert found == dict.fromkeys("abc", ("", "no response within 0.3 s"))
    until("what it started has ended", lambda: gone(pids), 20)


def test_a_missing_crane_is_reported_with_a_remedy(pin: Call, monkeypatch: Patch) -> None:
    def none(_: Program) -> Path:
        raise tools.ToolError("crane cannot be built: install Go")

    monkeypatch.setattr(tools, "path", none)
    ended = pin()
    assert (ended.code, ended.err) == (1, "crane cannot be built: install Go\n")
