"""Models for a real Triton that hold memory: written whole, and renamed into the repository."""

import shutil
from pathlib import Path

PROGRAM = Path(__file__).with_name("ballast.py")
_CONFIG = """\
name: "{name}"
backend: "python"
max_batch_size: 0
input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
output {{ name: "VERSION" data_type: TYPE_INT32 dims: [ 1 ] }}
output {{ name: "NAME" data_type: TYPE_STRING dims: [ 1 ] }}
instance_group {{ count: 1 kind: KIND_CPU }}
parameters {{ key: "mib" value {{ string_value: "{mib}" }} }}
parameters {{ key: "seconds" value {{ string_value: "{seconds}" }} }}
parameters {{ key: "fails" value {{ string_value: "{fails}" }} }}
"""
_ENSEMBLE = """\
name: "{name}"
platform: "ensemble"
max_batch_size: 0
input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
ensemble_scheduling {{
{steps}}}
"""
_STEP = """\
  step {{
    model_name: "{model}" model_version: -1
    input_map {{ key: "INPUT" value: "{before}" }}
    output_map {{ key: "OUTPUT" value: "{after}" }}
  }}
"""


def model(
    repository: Path, name: str, mib: int = 30, seconds: float = 0, fails: str = "", versions: tuple[int, ...] = (1,)
) -> None:
    """Publish a model."""
    new = repository.parent / f".new-{name}"
    for version in versions:
        (new / str(version)).mkdir(parents=True)
        shutil.copyfile(PROGRAM, new / str(version) / "model.py")
    (new / "config.pbtxt").write_text(_CONFIG.format(name=name, mib=mib, seconds=seconds, fails=fails), "utf-8")
    new.rename(repository / name)


def ensemble(repository: Path, name: str, *parts: str) -> None:
    """Publish an ensemble that hands a number through its parts."""
    names = ["INPUT", *(f"between{number}" for number in range(1, len(parts))), "OUTPUT"]
    steps = "".join(
        _STEP.format(model=part, before=names[place], after=names[place + 1]) for place, part in enumerate(parts)
    )
    new = repository.parent / f".new-{name}"
    (new / "1").mkdir(parents=True)
    (new / "config.pbtxt").write_text(_ENSEMBLE.format(name=name, steps=steps), "utf-8")
    new.rename(repository / name)
