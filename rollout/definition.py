"""Commands about the definition alone.

`check` summarises it and checks the guardrails as `up` does. `pin` reads the digests of its images from the registries,
through crane, and writes `images.lock`.
"""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from subprocess import TimeoutExpired

from stacks import devices
from stacks.command import CommandError, ExitStatus, unknown
from stacks.images_lock import FILE_NAME, ImagesLock, PinnedImage, lock_text
from stacks.load import load
from stacks.problems import advisory_text, counted, escaped, listed, shortened
from stacks.stack import Definition
from stacks.validate import read_definition, validate

from . import processes, tools
from .files import write_atomically
from .guardrails import enforce, findings
from .render import render
from .seen import CommandReport
from .terminal import note, progress

_AT_ONCE = 8
_LONGEST_ERROR = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_definition(path: Path, seen: CommandReport) -> None:
    """Check a definition, with everything that `up` would refuse, and print a one-line summary. Raises DefinitionError
    with every broken rule, or CommandError with the guardrails that its stacks break."""
    definition = seen.definition = read_definition(path)
    stacks = progress(definition.stacks, len(definition.stacks), "stacks rendered")
    seen.guardrails = findings(render(stack, definition) for stack in stacks)
    guarded = enforce(seen.guardrails, f"checked {counted(definition.stacks, 'stack')} and changed nothing")
    servers = {server.name for stack in definition.stacks for server in stack.platform.servers}
    models = {model.name for stack in definition.stacks for model in stack.platform.models}
    names = listed((stack.name for stack in definition.stacks), most=8)
    held = f"{counted(definition.stacks, 'stack')} ({names}), {counted(servers, 'server')}, {counted(models, 'model')}"
    print(f"{escaped(definition.file)}: ok – {held}")
    for text in (*devices.bill(definition.stacks), advisory_text(definition.advisories), guarded):
        if text:
            print(text)


def pin_images(path: Path, insecure: bool, plane: str | None, outcome: ExitStatus) -> None:
    """Query the digest of every image of every stack, and write the lock file if all of them were found."""
    definition = validate(load(path), ImagesLock())  # ignores the present lock file, which may be wrong
    references = _references(definition, plane)
    lock_file = path.parent / FILE_NAME
    digests = _query_all(references, insecure)
    failed = [image for image, (digest, _) in digests.items() if not digest]
    for image in failed:
        via = f" (queried {references[image]})" if references[image] != image else ""
        note(f"not resolved: {image}{via}: {escaped(digests[image][1])}")
    if failed:
        raise CommandError(f"{len(failed)} of {counted(digests, 'image')} could not be resolved. Nothing was written.")
    pins = [PinnedImage(image=image, digest=digest) for image, (digest, _) in digests.items()]
    text = lock_text(pins)
    if lock_file.is_file() and lock_file.read_bytes() == text.encode():
        print(f"{escaped(str(lock_file))}: nothing changed, {counted(pins, 'digest')}.")
    else:
        write_atomically(lock_file, text)
        outcome.text = f"{lock_file} is written"
        print(f"{escaped(str(lock_file))}: written, {counted(pins, 'digest')}.")


def _references(definition: Definition, plane_name: str | None) -> dict[str, str]:
    """Return every image of every stack, and the reference to query: its own, or that of a plane's mirror."""
    planes = {plane.name: plane for plane in definition.header.data_planes}
    if plane_name is not None and plane_name not in planes:
        raise unknown("data plane", plane_name, planes)
    registries = planes[plane_name].registries if plane_name is not None else {}
    images = {image.reference: image for stack in definition.stacks for image in stack.platform.images}
    return {name: f"{images[name].mirrored(registries)}:{images[name].tag}" for name in sorted(images)}


def _query_all(references: Mapping[str, str], insecure: bool, seconds: float = 120) -> dict[str, tuple[str, str]]:
    """Return the digest of each image, or an empty text and the error. Ctrl-C stops all queries."""
    try:
        crane = tools.path(tools.CRANE)
    except tools.ToolError as error:
        raise CommandError(str(error)) from None
    command = [str(crane), "digest", *(["--insecure"] if insecure else [])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        queries = {pool.submit(_query, [*command, where], seconds): image for image, where in references.items()}
        try:
            done = progress(as_completed(queries), len(queries), "images resolved")
            found = {queries[future]: future.result() for future in done}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end_all()
            raise
    return {image: found[image] for image in references}


def _query(command: list[str], seconds: float) -> tuple[str, str]:
    try:
        done = processes.run(command, seconds=seconds)
    except TimeoutExpired:
        return "", f"no response within {seconds:g} s"
    digest = done.stdout.strip()
    if done.returncode == 0 and _DIGEST.fullmatch(digest):
        return digest, ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    error = lines[-1].removeprefix("Error: ") if lines else f"crane printed no error ({digest or 'no digest'})"
    return "", shortened(error, _LONGEST_ERROR)
