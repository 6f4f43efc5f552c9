"""`pin`: asks the registries for the digests of all images, and writes `images.lock`."""

from pathlib import Path

from stacks.command import CommandError, Outcome, unknown
from stacks.images_lock import FILE_NAME, ImagesLock, PinnedImage, lock_text, read_images_lock
from stacks.load import load
from stacks.problems import DefinitionError, counted, escaped
from stacks.resolve.names import mirrored
from stacks.stack import Definition
from stacks.validate import validate

from .files import write_atomically
from .registries import Answer, ask_all
from .terminal import make, note


def pin_images(path: Path, keep_going: bool, insecure: bool, plane: str | None, outcome: Outcome) -> None:
    """Ask for every image that any stack names, and write the lock file when all answers are there."""
    definition = validate(load(path), ImagesLock())  # whatever stands in the lock file now must not stop us
    questions = references(definition, plane)
    lock_file = path.parent / FILE_NAME
    before = _old_lock(path.parent)
    answers = ask_all(questions, insecure)
    failed = {image: answer.error for image, answer in answers.items() if answer.digest is None}
    for image, error in failed.items():
        asked = questions[image]
        via = f" (asked {asked})" if asked != image else ""
        note(f"not resolved: {image}{via}: {escaped(error)}")
    if failed and not keep_going:
        again = make("pin", KEEP_GOING=1, INSECURE=int(insecure), REGISTRY_PLANE=plane, DEFINITION=path)
        raise CommandError(
            f"{len(failed)} of {counted(list(answers), 'image')} could not be resolved; "
            f"nothing was written.\nTo write the others all the same: {again}"
        )
    pins = new_pins(answers, before)
    _say_changes(pins, before)
    text = lock_text(pins)
    if lock_file.is_file() and lock_file.read_bytes() == text.encode():
        print(f"{escaped(str(lock_file))}: nothing changed, {counted(pins, 'image')} pinned.")
    else:
        write_atomically(lock_file, text)
        outcome.text = f"{lock_file} is written"
        print(f"{escaped(str(lock_file))}: written, {counted(pins, 'image')} pinned.")
    if failed:
        raise CommandError(f"{len(failed)} of {counted(list(answers), 'image')} could not be resolved.")


def references(definition: Definition, plane_name: str | None = None) -> dict[str, str]:
    """Return every image that any stack names, and the reference to ask for: its own, or that of a plane's mirror."""
    planes = {plane.name: plane for plane in definition.header.data_planes}
    if plane_name is not None and plane_name not in planes:
        raise unknown("data plane", plane_name, planes)
    registries = planes[plane_name].registries if plane_name is not None else {}
    images = {image.reference: image for stack in definition.stacks for image in stack.platform.images}
    return {name: f"{mirrored(images[name], registries)}:{images[name].tag}" for name in sorted(images)}


def new_pins(answers: dict[str, Answer], before: ImagesLock) -> list[PinnedImage]:
    """Return the pins to write: what a registry just said, else what one said before for the very same image."""
    digests = {image: answer.digest or before.digest(image) for image, answer in answers.items()}
    return [PinnedImage(image=image, digest=digest) for image, digest in digests.items() if digest is not None]


def _old_lock(folder: Path) -> ImagesLock:
    try:
        return read_images_lock(folder)[0]
    except DefinitionError as error:
        note(f"the lock file is not used, because it cannot be understood: {error.summary()}")
        return ImagesLock()


def _say_changes(pins: list[PinnedImage], before: ImagesLock) -> None:
    for pin in pins:
        old = before.digest(pin.image)
        if old is None:
            print(f"new      {pin.image} {pin.digest}")
        elif old != pin.digest:
            print(f"moved    {pin.image} {old} → {pin.digest}")
    for image in sorted({pin.image for pin in before.images} - {pin.image for pin in pins}):
        print(f"dropped  {image}")
