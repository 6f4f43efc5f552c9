"""What a program of the Python backend imports, and its requirements.txt names, against what the server's image has."""

import ast
import re
import sys
from collections.abc import Collection, Iterator
from typing import Final

from ....findings import Finding, error, warning
from ..entry import Entry
from ..frameworks.python import LIMIT, imports
from ..words import closest

REQUIREMENTS: Final = "requirements.txt"
_BACKENDS_OWN: Final = {"triton_python_backend_utils", "c_python_backend_utils"}
_MODULES: Final = {
    "attrs": "attr", "beautifulsoup4": "bs4", "gitpython": "git", "grpcio": "grpc", "mysqlclient": "mysqldb",
    "nvidia-ml-py": "pynvml", "opencv-contrib-python": "cv2", "opencv-contrib-python-headless": "cv2",
    "opencv-python": "cv2", "opencv-python-headless": "cv2", "pillow": "pil", "protobuf": "google",
    "pycryptodome": "crypto", "scikit-image": "skimage", "scikit-learn": "sklearn", "setuptools": "pkg_resources",
}  # fmt: skip
"""Modules of packages whose names have nothing of them. Of others the module is named as the package begins: zmq of
pyzmq, faiss of faiss-cpu, llama_cpp of llama-cpp-python."""
_PINNED = re.compile(r"\s*([A-Za-z0-9][A-Za-z0-9._-]*)(?:\[[^]]*\])?\s*(?:==\s*([^\s;,#*]+)(?=[\s;,#]|$))?")


def check(entry: Entry, programs: Collection[tuple[str, bytes]], packages: Collection[str] | None) -> Iterator[Finding]:
    """Yield what is missing on a server whose Python has these packages, `name` or `name==version`.

    A module may be called otherwise than its package: that it is missing is sure only where requirements.txt says so.
    Of versions only those pinned by `==` are compared.
    """
    if packages is None:
        return
    has = dict(_read(each) for each in packages)
    wanted = [each for file in entry.files if file.size < LIMIT for each in _wanted(entry, file.path)]
    lacking = {name for _, name, _ in wanted} - has.keys()
    for path, source in programs:
        yield from _imports(entry, path, source, has, lacking)
    for where, name, version in wanted:
        if name in lacking:
            what, why = f"it wants {name}, which the server's image does not have", "Triton does not read the file"
            yield warning(what, where, f"nothing installs it: {why}")
        elif version and has[name] and version not in (has[name], has[name].partition("+")[0]):
            yield warning(f"it wants {name} {version}, and the server's image has {has[name]}", where)


def _named(packages: Collection[str]) -> set[str]:
    """Return the modules that are called as these packages, or as is known of them; all in lower case."""
    return {each.replace("-", "_") for name in packages for each in (name, _MODULES.get(name, name))}


def _begun(packages: Collection[str]) -> set[str]:
    """Return the modules that are called as these packages begin, behind what only says that it is for Python."""
    found = set()
    for name in packages:
        parts = re.sub(r"^py(thon)?-|^py(?=[^-]+$)", "", name).split("-")
        found |= {"_".join(parts[: end + 1]) for end in range(len(parts))}
    return found


def _imports(
    entry: Entry, path: str, source: bytes, has: Collection[str], lacking: Collection[str]
) -> Iterator[Finding]:
    try:
        program = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return  # which is told elsewhere
    version = path.partition("/")[0]
    own = {each.partition("/")[0].removesuffix(".py") for each in entry.files_of(int(version))}
    surely = imports(ast.Module([each for each in program.body if isinstance(each, ast.Import | ast.ImportFrom)], []))
    there, gone = _named(has), _named(lacking)
    # What requirements.txt calls by the module's own name is not taken for a part of another package.
    there |= _begun(has) - gone
    gone |= _begun(lacking)
    for module in sorted(imports(program) - sys.stdlib_module_names - _BACKENDS_OWN - own):
        if module.lower() in there:
            continue
        what, do = (
            f"it imports {module}, ",
            "have it installed in the image, or bring an environment (EXECUTION_ENV_PATH)",
        )
        if module in surely and module.lower() in gone:
            do += "; where it comes from elsewhere, take its line out of requirements.txt"
            yield error(f"{what}which requirements.txt names and the server's image does not have", path, do=do)
        else:
            do = closest(module, _named(has), f"unless another package has it, {do}")
            yield warning(f"{what}which the server's image does not seem to have", path, do=do)


def _wanted(entry: Entry, path: str) -> Iterator[tuple[str, str, str]]:
    """Yield the place, package and pinned version of each line of a requirements.txt that holds everywhere."""
    if path.split("/")[-1] != REQUIREMENTS:
        return
    for number, line in enumerate((entry.folder / path).read_text("utf-8", "replace").splitlines(), 1):
        # A marker (PEP 508) may well say that it is for other machines.
        if line.strip() and not line.lstrip().startswith(("#", "-")) and ";" not in line.partition("#")[0]:
            yield f"{path}:{number}", *_read(line)


def _read(line: str) -> tuple[str, str]:
    """Return the name of a package, as the index spells it, and its version where one is pinned."""
    found = _PINNED.match(line)
    return (re.sub(r"[-_.]+", "-", found[1]).lower(), found[2] or "") if found else (line.strip(), "")
