"""What builds an engine on a node with a GPU: the commands, and the Job that runs them. Nothing here runs them."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from ...errors import UsageError
from ...failures import plain

ONNX: Final = "model.onnx"
PLAN, ENGINE, CHECKPOINT, HUGGING_FACE = "model.plan", "engine", "checkpoint", "hugging-face"
SCRIPT, JOB = "build.sh", "job.yaml"
_MIG: Final = re.compile(r"[1-9]g\.[1-9][0-9]*gb(\.me)?")
_HEAD: Final = """#!/bin/sh
# tidegate export wrote this and DID NOT RUN IT: it needs a GPU of the kind that will serve the model, and an image with
# the same release of {what} as that server. {job} runs it there.
set -eu
cd "$(dirname "$0")"
"""
_LLM: Final = """# {source} is to be copied here, as {model}/.
python3 - <<'END'
from pathlib import Path
from tensorrt_llm.models import AutoModelForCausalLM
Path("{checkpoint}").mkdir(exist_ok=True)
AutoModelForCausalLM.from_hugging_face("{model}", dtype="auto").save_checkpoint("{checkpoint}")
END
"""
_JOB: Final = """# tidegate export wrote this and DID NOT RUN IT. Copy its folder to {path} in the volume {claim} first;
# namespace, tolerations and memory may need other values on your cluster.
apiVersion: batch/v1
kind: Job
metadata:
  name: {name}
spec:
  backoffLimit: 0
  activeDeadlineSeconds: 14400
  ttlSecondsAfterFinished: 86400
  template:
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      enableServiceLinks: false
      securityContext:
        runAsNonRoot: true
        runAsUser: 1000
        runAsGroup: 1000
        fsGroup: 1000
        seccompProfile: {{type: RuntimeDefault}}
      tolerations:
      - {{key: nvidia.com/gpu, operator: Exists, effect: NoSchedule}}
      containers:
      - name: build
        image: {image}
        command: [sh, {script}]
        env:
        - {{name: HOME, value: /tmp}}
        resources:
          requests: {{cpu: "4", memory: 16Gi}}
          limits: {{memory: 32Gi, {gpu}: 1}}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
        volumeMounts:
        - {{name: dataset, mountPath: /dataset}}
        - {{name: scratch, mountPath: /tmp}}
      volumes:
      - name: dataset
        persistentVolumeClaim: {{claimName: {claim}}}
      - {{name: scratch, emptyDir: {{}}}}
"""


def gpu_of(mig: str | None) -> str:
    """Return the resource that a Job asks for: a whole GPU, or a slice of a profile such as 1g.10gb."""
    if mig is not None and not _MIG.fullmatch(mig):
        raise UsageError(f"--mig {mig!r} is no profile of MIG", do="write it as nodes offer it, such as 1g.10gb")
    return f"nvidia.com/mig-{mig.replace('+', '.')}" if mig else "nvidia.com/gpu"


def write_build(folder: Path, name: str, commands: str, what: str, image: str, volume: str, gpu: str) -> None:
    """Write commands and their Job. `volume` is CLAIM/PATH, where the folder will be."""
    claim, _, path = volume.partition("/")
    (folder / SCRIPT).write_text(_HEAD.format(what=what, job=JOB) + commands, "utf-8")
    said = {"image": image, "claim": claim, "path": path, "script": f"/dataset/{path}/{SCRIPT}"}
    quoted = {key: json.dumps(value) for key, value in said.items()}
    named = re.sub(r"[^a-z0-9]+", "-", f"build-{name}".lower())[:63].strip("-")
    (folder / JOB).write_text(_JOB.format(name=named, gpu=gpu, **quoted), "utf-8")


def plan_commands(inputs: Sequence[Any], max_batch: int, sizes: Mapping[str, Sequence[int]]) -> str:
    """Return the command that builds a plan of model.onnx; `inputs` are those that the file tells of, and `sizes` those
    that they were compared with: only how many rows there are may vary, up to `max_batch`, or as they were with 0."""
    command = ["trtexec", f"--onnx={ONNX}", f"--saveEngine={PLAN}", "--noTF32"]
    if any(-1 in each.dims for each in inputs):
        for option, rows in (("min", 1), ("opt", max(1, max_batch // 2)), ("max", max_batch)):
            shapes = (f"{each.name}:{_shape(each.dims, sizes[each.name], rows if max_batch else 0)}" for each in inputs)
            command.append(f"--{option}Shapes={','.join(shapes)}")
    why = "# --noTF32: the precision that was compared. Any other may need a wider tolerance in golden.json."
    return f'{why}\nPATH="$PATH:/usr/src/tensorrt/bin"\n{shlex.join(command)}\n'


def _shape(dims: Sequence[int], size: Sequence[int], rows: int) -> str:
    found = [there if dim < 0 else dim for dim, there in zip(dims, size, strict=True)]
    return "x".join(map(str, [rows, *found[1:]] if rows and dims[0] < 0 else found))


def engine_commands(source: str, max_batch: int) -> str:
    """Return the commands that make an engine of TensorRT-LLM of a model as Hugging Face has it."""
    built = f"trtllm-build --checkpoint_dir {CHECKPOINT} --output_dir {ENGINE} --max_batch_size {max(1, max_batch)}\n"
    return _LLM.format(source=repr(source), checkpoint=CHECKPOINT, model=HUGGING_FACE) + built


def check_hugging_face(source: str) -> None:
    """Raise UsageError where a folder is no model as Hugging Face has it."""
    try:
        said = json.loads((Path(source) / "config.json").read_text("utf-8"))
        if isinstance(said, dict) and said.get("architectures"):
            return
        why = "its config.json names no architecture"
    except (OSError, ValueError, RecursionError) as error:
        why = f"config.json: {plain(error)}"
    do = "give a folder with config.json, its tokenizer and *.safetensors"
    raise UsageError("this is no model as Hugging Face has it", where=source, why=why, do=do)
