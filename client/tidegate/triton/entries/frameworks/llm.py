"""Large language models that vLLM serves."""

import json
from pathlib import Path

from tritonclient.grpc.model_config_pb2 import ModelInstanceGroup

from ....errors import UsageError
from .python import files_of
from .reading import Reading, bounded, config_of, unreadable

ARGUMENTS = "model.json"
LIMIT = 4 << 20


def read_vllm(source: Path) -> Reading:
    """Read model.json, or a folder with it (`multi_lora.json` comes along)."""
    file = source / ARGUMENTS if source.is_dir() else source
    try:
        arguments = json.loads(bounded(file, LIMIT, "a model.json"))
    except (ValueError, RecursionError) as error:
        raise unreadable(file, "model.json of vLLM", error) from None
    model = arguments.get("model") if isinstance(arguments, dict) else None
    if not isinstance(model, str) or not model:
        raise UsageError("it names no model", where=file, do='say {"model": "name at Hugging Face, or a folder"}')
    config = config_of("vllm")
    config.instance_group.add(count=1, kind=ModelInstanceGroup.KIND_MODEL)  # vLLM takes its GPUs itself
    config.model_transaction_policy.decoupled = True
    notes = ["vLLM names its own tensors to Triton (text_input, sampling_parameters, …, text_output)"]
    if "/" in model and (model.startswith((".", "/")) or (file.parent / model).exists()):
        notes.append(f"vLLM reads {model} where Triton runs: the weights are no part of the entry, and must lie there")
    elif "/" in model:
        notes.append(f"vLLM fetches {model} from Hugging Face when it loads, unless the image holds it")
    return Reading(config, files_of(source, ARGUMENTS), notes=tuple(notes))
