"""`tidegate model new`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import UsageError
from .output import Json, answering, note, print_json

if TYPE_CHECKING:
    from ..triton.entries.write import NewEntry

Texts = list[str] | None
_TENSOR = "NAME:TYPE:DIMS"


def _complete() -> list[str]:
    from ..triton.entries.detect import Framework

    return list(Framework)


def new(
    name: Annotated[str, typer.Argument(help="The model's name; its entry is a folder of this name.")],
    sources: Annotated[
        list[Path],
        typer.Argument(metavar="SOURCE", help="The model's file or folder; several entries: an ensemble."),
    ],
    into: Annotated[Path, typer.Option("--into", help="The folder in which the entry is made.")] = Path("."),
    framework: Annotated[
        str,
        typer.Option(
            metavar="FRAMEWORK",
            autocompletion=_complete,
            help="What the model is made with, where its files do not tell, or not as they should: onnx, python, …",
        ),
    ] = "",
    input_: Annotated[
        Texts,
        typer.Option(
            "--input",
            metavar=_TENSOR,
            help="An input, such as image:FP32:3,224,224; -1 is any size. TYPE or DIMS may "
            "be empty for a tensor that the file tells of.",
        ),
    ] = None,
    output: Annotated[Texts, typer.Option("--output", metavar=_TENSOR, help="An output, written the same way.")] = None,
    max_batch_size: Annotated[
        int, typer.Option(metavar="N", min=0, help="The largest batch; 0 is none. DIMS leave it out.")
    ] = 0,
    optional: Annotated[Texts, typer.Option(metavar="INPUT", help="An input that requests may leave out.")] = None,
    ragged: Annotated[
        Texts, typer.Option(metavar="INPUT", help="An input batched although its requests differ in shape.")
    ] = None,
    labels: Annotated[
        Texts, typer.Option(metavar="OUTPUT=FILE", help="A file with the names of an output's classes, a line each.")
    ] = None,
    dynamic_batching: Annotated[bool, typer.Option("--dynamic-batching", help="Let Triton form batches.")] = False,
    preferred_batch_size: Annotated[
        list[int] | None, typer.Option(metavar="N", min=1, help="A batch of this size is not held back for more.")
    ] = None,
    queue_delay: Annotated[
        str, typer.Option(metavar="TIME", help="How long requests wait to be batched, such as 500us or 5ms.")
    ] = "",
    preserve_ordering: Annotated[
        bool, typer.Option("--preserve-ordering", help="Answer in the order of the requests.")
    ] = False,
    priority_levels: Annotated[int, typer.Option(metavar="N", min=0, help="Priorities; 1 is the highest.")] = 0,
    default_priority: Annotated[
        int, typer.Option(metavar="N", min=0, help="That of requests that say none; else it is the lowest.")
    ] = 0,
    queue_size: Annotated[
        int, typer.Option(metavar="N", min=0, help="How many requests may wait; 0 is any number.")
    ] = 0,
    queue_timeout: Annotated[str, typer.Option(metavar="TIME", help="How long a request may wait.")] = "",
    timeout_action: Annotated[
        str, typer.Option(metavar="ACTION", help="What becomes of one that waited too long: reject, delay.")
    ] = ("reject"),
    allow_timeout_override: Annotated[
        bool, typer.Option("--allow-timeout-override", help="Let requests bring a shorter time.")
    ] = False,
    queue_policy: Annotated[
        Texts,
        typer.Option(metavar="LEVEL:RULES", help="Of one priority: 1:timeout=10ms,action=delay,size=100,override."),
    ] = None,
    sequence_batching: Annotated[
        str, typer.Option(metavar="STRATEGY", help="Requests belong to sequences: direct or oldest.")
    ] = "",
    sequence_idle: Annotated[
        str, typer.Option(metavar="TIME", help="After how long a sequence without requests is given up.")
    ] = "",
    max_candidates: Annotated[int, typer.Option(metavar="N", min=0, help="Sequences at once (oldest).")] = 0,
    sequence_control: Annotated[
        Texts, typer.Option(metavar="NAME:KIND[:TYPE]", help="An input that Triton fills: start, ready, end, corrid.")
    ] = None,
    sequence_state: Annotated[
        Texts, typer.Option(metavar="INPUT:OUTPUT:TYPE:DIMS", help="What Triton keeps between a sequence's requests.")
    ] = None,
    instances: Annotated[
        Texts, typer.Option(metavar="COUNT[:KIND[:GPUS]]", help="Copies that run at once: 2, 1:gpu:0,1 or 4:cpu.")
    ] = None,
    rate_limiter: Annotated[
        Texts, typer.Option(metavar="NAME=COUNT[:global]", help="A resource that an instance takes to run.")
    ] = None,
    rate_priority: Annotated[
        int, typer.Option(metavar="N", min=0, help="The instances' priority with the rate limiter.")
    ] = 0,
    accelerator: Annotated[
        Texts, typer.Option(metavar="NAME[:KEY=VALUE,…]", help="Such as tensorrt:precision_mode=FP16, or openvino.")
    ] = None,
    version_policy: Annotated[
        str, typer.Option(metavar="POLICY", help="all, latest:N or specific:N,N… (deploying sets its own).")
    ] = "",
    decoupled: Annotated[
        bool, typer.Option("--decoupled", help="The model gives any number of answers to a request.")
    ] = False,
    warm_up: Annotated[
        str, typer.Option(metavar="CONTENT", help="Try the model before it is ready, with zero or random inputs.")
    ] = "",
    warm_up_batch_size: Annotated[int, typer.Option(metavar="N", min=1, help="The batch of that.")] = 1,
    warm_up_dims: Annotated[
        Texts, typer.Option(metavar="INPUT:DIMS", help="Dimensions for that of an input of any size.")
    ] = None,
    response_cache: Annotated[
        bool, typer.Option("--response-cache", help="Let Triton answer again what it has answered before.")
    ] = False,
    parameter: Annotated[Texts, typer.Option(metavar="KEY=VALUE", help="A parameter for the backend.")] = None,
    link: Annotated[
        Texts,
        typer.Option(metavar="MODEL.TENSOR=NAME", help="Within an ensemble, another name for a step's tensor."),
    ] = None,
    settings: Annotated[
        Path | None,
        typer.Option(
            exists=True,
            dir_okay=False,
            help="A file with any other fields, as they stand in config.pbtxt; the options count over it.",
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Make an entry of a model: its files laid out for Triton, and a config.pbtxt that it takes.

    The framework, and the names, types and shapes of tensors, are read from the model's files, which are never run.
    """
    with answering():
        from tritonclient.grpc.model_config_pb2 import ModelConfig

        from ..triton.entries.batching import BatchingChoices, QueueChoices
        from ..triton.entries.choices import Choices, dimensions, one_of, pair
        from ..triton.entries.configure import WarmUp, together
        from ..triton.entries.detect import Framework
        from ..triton.entries.text import parse_config
        from ..triton.entries.write import new_entry

        queue = QueueChoices(queue_size, queue_timeout, timeout_action, allow_timeout_override)
        batching = BatchingChoices(
            dynamic_batching, preferred_batch_size or (), queue_delay, preserve_ordering, priority_levels,
            default_priority, queue, queue_policy or (), sequence_batching, sequence_idle, max_candidates,
            sequence_control or (), sequence_state or (),
        )  # fmt: skip
        choices = Choices(
            max_batch_size, input_ or (), output or (), optional or (), ragged or (), instances or (),
            rate_limiter or (), rate_priority, accelerator or (), version_policy, decoupled, response_cache,
            parameter or (),
        )  # fmt: skip
        said = ModelConfig() if settings is None else parse_config(_text(settings), str(settings))
        heated = None
        if warm_up:
            dims = [each.rpartition(":")[::2] for each in warm_up_dims or ()]
            heated = WarmUp(
                one_of(warm_up, ("zero", "random"), "content of a warm-up"), warm_up_batch_size,
                {each: dimensions(sizes, f"{each}:{sizes}") for each, sizes in dims},
            )  # fmt: skip
        made = new_entry(
            name, sources, into,
            framework=Framework(one_of(framework, list(Framework), "framework")) if framework else None,
            settings=together(said, choices.settings(), batching.settings()),
            warm_up=heated,
            labels={key: Path(file) for key, file in (pair(each, "--labels OUTPUT=FILE") for each in labels or ())},
            links=dict(pair(each, "--link MODEL.TENSOR=NAME") for each in link or ()),
        )  # fmt: skip
        _tell(made, json)


def _text(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("it is no text in UTF-8", where=str(file), why=str(error)) from None


def _tell(made: "NewEntry", json: bool) -> None:
    from ..triton.entries.show import show_entry
    from .model_show import print_entry

    shown = show_entry(made.folder)
    if json:
        print_json(
            {
                "folder": str(made.folder),
                "framework": made.framework,
                "notes": made.notes,
                "warnings": [str(each) for each in made.warnings],
                "entry": shown.model_dump(mode="json"),
            }
        )
        return
    print(f"{made.folder} is there: {made.framework}")
    print_entry(shown, made.config)
    for each in made.warnings:
        note(str(each))
    for text in made.notes:
        note(f"note: {text}")
