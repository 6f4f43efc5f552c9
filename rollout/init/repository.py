"""Writes the repository of a platform: its definition, and the requirement that pins this program."""

import json
import os
import re
import subprocess
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from string import Template
from urllib.parse import urlsplit
from urllib.request import url2pathname

from pydantic import TypeAdapter, ValidationError

from charts.project import DISTRIBUTION, ROOT, version
from charts.values_file import scalar
from stacks.command import WRONG_INPUT, CommandError, ExitStatus
from stacks.definition.gpu_products import gpu_product
from stacks.definition.placement import Product
from stacks.images_lock import FILE_NAME, ImagesLock, lock_text
from stacks.load import parse
from stacks.problems import escaped
from stacks.reference import schema_text
from stacks.stack import Definition
from stacks.validate import validate

from ..terminal import in_shell, note, tidegate

TEXTS = Path(__file__).parent / "text"
DEFINITION = "stacks/inference.yaml"


def write_repository(folder: Path, outcome: ExitStatus, gpu: str | None = None, repository: str | None = None) -> None:
    """Write a platform's repository into an empty folder, and say what it is and how to go on.

    Raises CommandError or DefinitionError before anything is written.
    """
    if folder == Path():  # an empty text
        raise CommandError("Name the folder to write, such as ../platform.", WRONG_INPUT)
    _require_empty(folder)
    text = _filled("inference.yaml", version=version(), **_placed(gpu))
    definition = validate(parse(text, DEFINITION), ImagesLock())
    requirement = _requirement(repository)
    files = _files(text, definition, requirement)
    outcome.text = f"{folder} is not complete"
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content, "utf-8")
    if not _git(folder, "rev-parse", "--show-toplevel"):
        _git(folder, "init", "--quiet")
    _tell(folder, requirement)


def _files(text: str, definition: Definition, requirement: str) -> dict[str, str]:
    config = {
        f"stacks/Pulumi.{stack.name}.yaml": "config:\n"
        f"  tidegate:environment: {stack.environment.name}\n"
        f"  tidegate:dataPlane: {stack.data_plane.name}\n"
        for stack in definition.stacks
    }
    return {
        "requirements.txt": _filled("requirements.txt", requirement=requirement),
        DEFINITION: text,
        "stacks/definition.schema.json": schema_text(),
        f"stacks/{FILE_NAME}": lock_text(()),
        **config,
        "Pulumi.yaml": (TEXTS / "Pulumi.yaml").read_text("utf-8"),
        "__main__.py": (TEXTS / "program.txt").read_text("utf-8"),
        ".github/workflows/tidegate.yaml": (TEXTS / "github.yaml").read_text("utf-8"),
        ".gitlab-ci.yml": (TEXTS / "gitlab.yaml").read_text("utf-8"),
        ".gitignore": "/.cache/\n/build/\n/charts/tidegate/\n/.venv\n__pycache__/\n",
    }


def _filled(name: str, **parts: str) -> str:
    return Template((TEXTS / name).read_text("utf-8")).substitute(parts)


def _tell(folder: Path, requirement: str) -> None:
    print(f"{escaped(str(folder))}: a platform that pins Tidegate {version()} ({escaped(requirement)})")
    print(f"  {DEFINITION} is the definition; what you must replace in it is marked with ←")
    print("  Previews: .github/workflows on GitHub, .gitlab-ci.yml on GitLab; delete the one that you do not need")
    print(f"Go on there:\n  cd {in_shell(folder)}\n  python3 -m venv .venv")
    print("  . .venv/bin/activate && pip install -r requirements.txt\n  tidegate check && tidegate render")
    print("  git add --all && git commit --message='Our platform'")


# ---- what is asked of this machine ----


def _require_empty(folder: Path) -> None:
    """Refuse a folder of this checkout, and one with anything in it but a repository of git that was just made."""
    if Path(os.path.realpath(folder)).is_relative_to(ROOT):  # resolve() fails at a link that leads to itself
        what = "lies in this checkout of Tidegate, and a platform is a repository of its own"
    elif folder.is_dir():
        names = sorted(path.name for path in folder.iterdir() if path.name != ".git")
        if not names:
            return
        what = f"is not empty: it holds {', '.join(map(escaped, names[:5]))}{', …' if len(names) > 5 else ''}"
    elif folder.exists() or folder.is_symlink():
        what = "is no folder"
    else:
        return
    again = tidegate("init", "../platform")
    raise CommandError(f"{escaped(str(folder))} {what}.\nNothing was written. Name another: {again}", WRONG_INPUT)


def _requirement(repository: str | None) -> str:
    """Return the requirement that installs this very program elsewhere: from git, or from a package index."""
    try:
        installed = distribution(DISTRIBUTION)
    except PackageNotFoundError:  # this is a checkout
        return _of_checkout(ROOT, repository)
    origin = json.loads(installed.read_text("direct_url.json") or "{}")
    if "vcs_info" in origin:
        return _from_git(repository or origin["url"], origin["vcs_info"]["commit_id"])
    if "dir_info" in origin:
        return _of_checkout(Path(url2pathname(urlsplit(origin["url"]).path)), repository)
    return f"{DISTRIBUTION}=={installed.version}"


def _of_checkout(root: Path, repository: str | None) -> str:
    revision = _git(root, "rev-parse", "HEAD")
    if not revision or _git(root, "rev-parse", "--show-toplevel") != str(root):
        what = f"{escaped(str(root))} is no git checkout, so there is no revision that a platform could pin"
        raise CommandError(f"{what}.\nClone Tidegate with git, and run `tidegate init` there.")
    found = repository or _git(root, "config", "remote.origin.url")
    if not found or Path(found).exists():
        found = Path(found or root).resolve().as_uri()
        if not repository:
            what = "the platform fetches Tidegate from a folder of this machine, which CI and colleagues do not have"
            note(f"{what}.\nName its address: {tidegate('init', '<folder>', repository='<address>')}")
    elif not _git(root, "branch", "--remotes", "--contains", revision):
        note(f"{revision[:10]} is on no branch of `origin`: push it, or nobody else can fetch what the platform pins.")
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        note(f"this checkout has changes that are not committed: the platform gets {revision[:10]}, without them.")
    return _from_git(found, revision)


def _from_git(address: str, revision: str) -> str:
    # A token must not be written down; git asks for it, or its credential helper knows it.
    address = re.sub(r"^(https?://)[^/@]*@", r"\1", address)
    if scp := re.fullmatch(r"([\w.-]+@[\w.-]+):(?!//)(.+)", address):  # git@example.com:tidegate.git
        address = f"ssh://{scp[1]}/{scp[2]}"
    if not re.fullmatch(r"[a-z+]+://[^\s;#]+", address):
        raise CommandError(f"{escaped(address)} is no address that pip can fetch: name another with --repository.")
    if address.startswith("file:"):  # which pip reads in this form only
        return f"git+{address}@{revision}#egg={DISTRIBUTION}"
    return f"{DISTRIBUTION} @ git+{address}@{revision}"


def _git(folder: Path, *arguments: str) -> str:
    """Return what git says; nothing where it fails or there is no git."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


# ---- GPUs ----


def _placed(gpu: str | None) -> dict[str, str]:
    """Return what a replica runs on, what models may take there, and a data plane's GPUs: parts of the definition."""
    if gpu is None:
        return {"placement": "{kind: cpu}", "capacity": "", "gpus": ""}
    try:
        TypeAdapter(Product).validate_python(gpu)
    except ValidationError:
        what = f"{escaped(gpu)} is no GPU product"
        do = "Say the node label nvidia.com/gpu.product, such as NVIDIA-A100-SXM4-80GB, without -MIG-… or -SHARED"
        raise CommandError(f"{what}.\n{do}.", WRONG_INPUT) from None
    known, product, capacity = gpu_product(gpu), scalar(gpu), ""
    if known is None:
        what = f"Tidegate knows no GPU product {escaped(gpu)}, so that nothing about its memory is checked"
        note(f"{what}: set loading.capacity to what models may take of it.")
        capacity = "\n          capacity: 8Gi # ← what models may take of its memory"
    placement, nodes, cut = f"{{kind: gpu, product: {product}}}", 2, ""
    if known is not None and known.profiles:
        half = next(profile for profile in known.plain if 2 * known.profiles[profile][1] == known.slices[1])
        placement, nodes = f"{{kind: mig, profile: {half}, product: {product}}}", 1
        cut = f"\n        mig: {{slices: {{{half}: 2}}}} # how NVIDIA's GPU operator cuts each of them"
    gpus = f"\n    gpus: # ←\n      - nodes: {nodes}\n        product: {product}\n        perNode: 1{cut}"
    return {"placement": placement, "capacity": capacity, "gpus": gpus}
