"""Commands about the definition alone.

`check` says what is in it, and holds it to the guardrails as `up` does. `pin` asks the registries for the digests of
its images, through crane, and writes `images.lock`.
"""

import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from subprocess import TimeoutExpired

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

SECONDS = 120  # For one image.
_AT_ONCE = 8
_LONGEST_ERROR = 1_000
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


def check_definition(path: Path, seen: CommandReport) -> None:
    """Read a definition and say in a line what is in it, once nothing is wrong with it that `up` would refuse.

    Raises DefinitionError with every broken rule, or CommandError with the guardrails that its stacks break.
    """
    definition = seen.definition = read_definition(path)
    stacks = progress(definition.stacks, len(definition.stacks), "stacks rendered")
    seen.guardrails = findings(render(stack, definition) for stack in stacks)
    guarded = enforce(seen.guardrails, "nothing was to be written")
    servers = {server.name for stack in definition.stacks for server in stack.platform.servers}
    models = {model.name for stack in definition.stacks for model in stack.platform.models}
    names = listed((stack.name for stack in definition.stacks), most=8)
    held = f"{counted(definition.stacks, 'stack')} ({names}), {counted(servers, 'server')}, {counted(models, 'model')}"
    print(f"{escaped(definition.file)}: ok – {held}")
    for text in (advisory_text(definition.advisories), guarded):
        if text:
            print(text)


# ---- pin ----


def pin_images(path: Path, insecure: bool, plane: str | None, outcome: ExitStatus) -> None:
    """Ask for every image that any stack names, and write the lock file when all answers are there."""
    definition = validate(load(path), ImagesLock())  # whatever stands in the lock file now must not stop us
    questions = _references(definition, plane)
    lock_file = path.parent / FILE_NAME
    answers = _ask_all(questions, insecure)
    failed = [image for image, (digest, _) in answers.items() if not digest]
    for image in failed:
        via = f" (asked {questions[image]})" if questions[image] != image else ""
        note(f"not resolved: {image}{via}: {escaped(answers[image][1])}")
    if failed:
        raise CommandError(f"{len(failed)} of {counted(answers, 'image')} could not be resolved; nothing was written.")
    pins = [PinnedImage(image=image, digest=digest) for image, (digest, _) in answers.items()]
    text = lock_text(pins)
    if lock_file.is_file() and lock_file.read_bytes() == text.encode():
        print(f"{escaped(str(lock_file))}: nothing changed, {counted(pins, 'image')} pinned.")
    else:
        write_atomically(lock_file, text)
        outcome.text = f"{lock_file} is written"
        print(f"{escaped(str(lock_file))}: written, {counted(pins, 'image')} pinned.")


def _references(definition: Definition, plane_name: str | None) -> dict[str, str]:
    """Return every image that any stack names, and the reference to ask for: its own, or that of a plane's mirror."""
    planes = {plane.name: plane for plane in definition.header.data_planes}
    if plane_name is not None and plane_name not in planes:
        raise unknown("data plane", plane_name, planes)
    registries = planes[plane_name].registries if plane_name is not None else {}
    images = {image.reference: image for stack in definition.stacks for image in stack.platform.images}
    return {name: f"{images[name].mirrored(registries)}:{images[name].tag}" for name in sorted(images)}


def _ask_all(questions: Mapping[str, str], insecure: bool) -> dict[str, tuple[str, str]]:
    """Return the digest of each image, or an empty text and why there is none; Ctrl-C ends the asking."""
    try:
        crane = tools.path(tools.CRANE)
    except tools.ToolError as error:
        raise CommandError(str(error)) from None
    command = [str(crane), "digest", *(["--insecure"] if insecure else [])]
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        asked = {pool.submit(_ask, [*command, reference]): image for image, reference in questions.items()}
        try:
            done = progress(as_completed(asked), len(asked), "images asked for")
            found = {asked[future]: future.result() for future in done}
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            processes.end_all()
            raise
    return {image: found[image] for image in questions}


def _ask(command: list[str]) -> tuple[str, str]:
    try:
        done = processes.run(command, seconds=SECONDS)
    except TimeoutExpired:
        return "", f"no answer within {SECONDS} s"
    digest = done.stdout.strip()
    if done.returncode == 0 and _DIGEST.fullmatch(digest):
        return digest, ""
    lines = [line for line in done.stderr.splitlines() if line.strip()]
    error = lines[-1].removeprefix("Error: ") if lines else f"crane said nothing ({digest or 'no digest'})"
    return "", shortened(error, _LONGEST_ERROR)
