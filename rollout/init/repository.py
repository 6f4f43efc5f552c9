"""Writes the repository of a platform, with a definition and a requirement that pins this version of Tidegate."""

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
from stacks.command import WRONG_INPUT, CommandError, ExitStatus, in_shell
from stacks.definition.gpu_products import gpu_product
from stacks.definition.placement import Product
from stacks.images_lock import FILE_NAME, ImagesLock, lock_text
from stacks.load import parse
from stacks.problems import escaped
from stacks.reference import schema_text
from stacks.stack import Definition
from stacks.validate import validate

from ..terminal import note

TEXTS = Path(__file__).parent / "text"
DEFINITION = "stacks/inference.yaml"


def write_repository(folder: Path, outcome: ExitStatus, gpu: str | None = None, repository: str | None = None) -> None:
    """Write a platform's repository into an empty directory, and print the next steps. Raises CommandError or
    DefinitionError before anything is written."""
    if folder == Path():  # an empty text
        raise CommandError("Name the directory to write to, such as ../platform.", WRONG_INPUT)
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
        _git(folder, "init", "--quiet", "--initial-branch=main")
    _print_next_steps(folder, requirement)


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


def _print_next_steps(folder: Path, requirement: str) -> None:
    print(f"{escaped(str(folder))}: a platform that uses Tidegate {version()} ({escaped(requirement)})")
    print(f"  {DEFINITION}: the definition. Replace the values on lines marked with ←.")
    print("  Previews of changes: .github/workflows for GitHub, .gitlab-ci.yml for GitLab. Delete the other one.")
    print(f"Next, run:\n  cd {in_shell(folder)}\n  python3 -m venv .venv")
    print("  . .venv/bin/activate && pip install -r requirements.txt\n  tidegate check && tidegate render")
    print("  git add --all && git commit --message='Our platform'")


def _require_empty(folder: Path) -> None:
    """Refuse a directory in this checkout, and one that contains more than a new git repository."""
    if Path(os.path.realpath(folder)).is_relative_to(ROOT):  # resolve() fails at a link that leads to itself
        what = "is in this checkout of Tidegate, but a platform needs a separate repository"
    elif folder.is_dir():
        names = sorted(path.name for path in folder.iterdir() if path.name != ".git")
        if not names:
            return
        what = f"is not empty: it contains {', '.join(map(escaped, names[:5]))}{', …' if len(names) > 5 else ''}"
    elif folder.exists() or folder.is_symlink():
        what = "is not a directory"
    else:
        return
    do = "Nothing was written. Choose an empty directory, or delete this one, and run the command again."
    raise CommandError(f"{escaped(str(folder))} {what}.\n{do}", WRONG_INPUT)


def _requirement(repository: str | None) -> str:
    """Return the requirement that installs this version elsewhere: from git, or from a package index."""
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
        what = f"{escaped(str(root))} is not a git checkout, so it has no revision that a platform could pin"
        raise CommandError(f"{what}.\nClone Tidegate with git, and run `tidegate init` there.")
    found = repository or _git(root, "config", "remote.origin.url")
    if not found or Path(found).exists():
        found = Path(found or root).resolve().as_uri()
        if not repository:
            what = "the platform installs Tidegate from a directory of this machine, which others cannot reach"
            note(f"warning: {what}.\n  Set the address of its git repository in requirements.txt.")
    elif not _git(root, "branch", "--remotes", "--contains", revision):
        note(f"warning: revision {revision[:10]} is on no branch of `origin`. Push it, so that others can install it.")
    if _git(root, "status", "--porcelain", "--untracked-files=no"):
        note(f"warning: this checkout has uncommitted changes. The platform uses {revision[:10]}, without them.")
    return _from_git(found, revision)


def _from_git(address: str, revision: str) -> str:
    # Tokens must not be written to files. git prompts for them, or its credential helper has them.
    address = re.sub(r"^(https?://)[^/@]*@", r"\1", address)
    if scp := re.fullmatch(r"([\w.-]+@[\w.-]+):(?!//)(.+)", address):  # git@example.com:tidegate.git
        address = f"ssh://{scp[1]}/{scp[2]}"
    if not re.fullmatch(r"[a-z+]+://[^\s;#]+", address):
        do = "Set another one with --repository"
        raise CommandError(f"pip cannot install from the address {escaped(address)}. {do}.")
    if address.startswith("file:"):  # the only form in which pip reads it
        return f"git+{address}@{revision}#egg={DISTRIBUTION}"
    return f"{DISTRIBUTION} @ git+{address}@{revision}"


def _git(folder: Path, *arguments: str) -> str:
    """Return git's output, or an empty text if it fails or is not installed."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _placed(gpu: str | None) -> dict[str, str]:
    """Return three parts of the definition: placement, capacity and the GPUs of a data plane."""
    if gpu is None:
        return {"placement": "{kind: cpu}", "capacity": "", "gpus": ""}
    try:
        TypeAdapter(Product).validate_python(gpu)
    except ValidationError:
        what = f"{escaped(gpu)} is not a GPU product"
        do = "Set the node label nvidia.com/gpu.product, such as NVIDIA-A100-SXM4-80GB, without -MIG-… or -SHARED"
        raise CommandError(f"{what}.\n{do}.", WRONG_INPUT) from None
    known, product, capacity = gpu_product(gpu), scalar(gpu), ""
    if known is None:
        what = f"Tidegate does not know the memory of GPU product {escaped(gpu)}, so it cannot check it"
        note(f"warning: {what}. Set loading.capacity to the memory for models.")
        capacity = "\n          capacity: 8Gi # ← memory for models"
    placement, nodes, cut = f"{{kind: gpu, product: {product}}}", 2, ""
    if known is not None and known.profiles:
        half = next(profile for profile in known.plain if 2 * known.profiles[profile][1] == known.slices[1])
        placement, nodes = f"{{kind: mig, profile: {half}, product: {product}}}", 1
        cut = f"\n        mig: {{slices: {{{half}: 2}}}} # how NVIDIA's GPU operator cuts each of them"
    gpus = f"\n    gpus: # ←\n      - nodes: {nodes}\n        product: {product}\n        perNode: 1{cut}"
    return {"placement": placement, "capacity": capacity, "gpus": gpus}
