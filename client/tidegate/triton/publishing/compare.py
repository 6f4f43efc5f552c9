"""What lies in a repository, held against what was registered: byte for byte."""

from collections.abc import Iterator, Mapping

from tidegate_contracts.manifest import Manifest, ManifestFile

from ...errors import TidegateError
from ...hashing import sha256_of
from ...parallel import Progress, in_parallel
from ...repository import Repository
from .config import CONFIG, ENTRY, published_path, read_published, version_number

_THREADS = 4
_BYPRODUCT = "__pycache__"
"""What Triton's Python backend writes beside a model.py, wherever it may write."""


def differences(
    repository: Repository, model: str, number: int, manifest: Manifest, progress: Progress | None = None
) -> list[str]:
    """Return how a published version differs from its manifest, a sentence each; none where every byte is right.

    Python's own by-products are no difference (`strays` lists them).
    """
    expected = {published_path(file.path, number): file for file in manifest.files}
    there = {file.path: file.size for file in repository.files(model) if file.path.startswith(f"{number}/")}
    found = [f"{path} is not there" for path in expected if path not in there]
    found += [f"{path} is in no manifest" for path in there if path not in expected and not is_byproduct(path)]
    to_read = []
    for path, file in expected.items():
        if (size := there.get(path)) == file.size:
            to_read.append((path, file))
        elif size is not None:
            found.append(f"{path} has {size} bytes instead of {file.size}")

    def wrong(item: tuple[str, ManifestFile]) -> str | None:
        path, file = item
        right = sha256_of(repository.chunks(model, path), progress) == file.sha256
        return None if right else f"{path} has other content than was registered"

    found += filter(None, in_parallel(wrong, to_read, _THREADS))
    return sorted(found)


def strays(repository: Repository, model: str, manifests: Mapping[int, Manifest]) -> list[str]:
    """Return what lies below a model and should not, or not so: by the manifests of all versions that are registered.

    A sentence each: versions without a manifest, files that a version's manifest does not name, and files beside the
    versions that are not the configuration's owner's. The configuration itself is not looked at.
    """
    return sorted(_strays(repository, model, manifests))


def _strays(repository: Repository, model: str, manifests: Mapping[int, Manifest]) -> Iterator[str]:
    expected = {
        published_path(file.path, number): file for number, manifest in manifests.items() for file in manifest.files
    }
    config = repository.config(model)
    try:
        owner = read_published(config).owner if config else None
    except TidegateError:
        owner = None
    unknown = set()
    files = repository.files(model)
    for stored in files:
        first, _, rest = stored.path.partition("/")
        number = version_number(first) if rest else None
        if number is not None and number not in manifests:
            unknown.add(number)
        elif number is not None and stored.path not in expected:
            why = " (Python wrote it: Triton's mount of the repository should be read-only)"
            yield f"{stored.path} is in no manifest{why if is_byproduct(stored.path) else ''}"
        elif number is None and stored.path != CONFIG:
            source = None if owner is None else expected.get(f"{owner}/{ENTRY}/{stored.path}")
            if source is None:
                yield f"{stored.path} is of no version that is served"
            elif sha256_of(repository.chunks(model, stored.path)) != source.sha256:
                yield f"{stored.path} is not as version {owner} has it"
    there = {stored.path for stored in files}
    for path in (path.removeprefix(f"{owner}/{ENTRY}/") for path in expected if path.startswith(f"{owner}/{ENTRY}/")):
        if path not in there:
            yield f"{path} is not there, which version {owner} has beside its folder"
    yield from (f"version {number} is not registered" for number in unknown)


def is_byproduct(path: str) -> bool:
    """Tell whether a file is one that Python writes when it runs a model."""
    return path.endswith(".pyc") and path.split("/")[-2:-1] == [_BYPRODUCT]
