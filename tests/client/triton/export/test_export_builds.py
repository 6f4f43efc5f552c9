"""For TensorRT and TensorRT-LLM commands and a Job are written, and it is said that nobody ran them."""

import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes_validate import validate  # type: ignore[import-untyped]
from tidegate.registry.golden import read_golden

from .models import FEATURES, ROWS, boosted, export, refused, sample, write_onnx

NODE = ("--image", "registry.example/tritonserver:26.06-py3", "--volume", "models/exports/made")
PLAN = ("--to", "tensorrt", *NODE)
ENGINE = ("--to", "tensorrt-llm", *NODE)


def plan(tmp_path: Path, *words: object) -> Path:
    file = write_onnx(tmp_path / "double.onnx")
    rows = sample(tmp_path, ROWS[:7].astype("float32"))
    done = export(file, tmp_path / "made", "--input", rows, *PLAN, *words)
    assert done.exit_code == 0, done.output
    assert "NOT BUILT, AND NOT TRIED" in done.stderr
    return tmp_path / "made"


def job(folder: Path) -> Any:
    said = yaml.safe_load((folder / "job.yaml").read_text())
    validate(said, "1.34", strict=True)
    return said


def trtexec(folder: Path) -> list[str]:
    return shlex.split((folder / "build.sh").read_text().splitlines()[-1])


def test_a_plan_is_built_for_every_batch_that_the_entry_may_take(tmp_path: Path) -> None:
    folder = plan(tmp_path, "--max-batch-size", 16)
    assert trtexec(folder) == [
        "trtexec", "--onnx=model.onnx", "--saveEngine=model.plan", "--noTF32", f"--minShapes=IN:1x{FEATURES}",
        f"--optShapes=IN:8x{FEATURES}", f"--maxShapes=IN:16x{FEATURES}",
    ]  # fmt: skip
    assert "DID NOT RUN IT" in (folder / "build.sh").read_text()
    assert (folder / "model.onnx").read_bytes() == (tmp_path / "double.onnx").read_bytes()


def test_a_plan_without_batches_takes_its_own_golden_request(tmp_path: Path) -> None:
    folder = plan(tmp_path, "--max-batch-size", 0)
    request = read_golden((folder / "golden.json").read_bytes(), "").request
    assert f"--maxShapes=IN:{'x'.join(map(str, request['inputs'][0]['shape']))}" in trtexec(folder)


def test_the_golden_request_lies_beside_what_is_to_be_built(tmp_path: Path) -> None:
    golden = read_golden((plan(tmp_path) / "golden.json").read_bytes(), "")
    assert golden.outputs is not None
    assert golden.outputs["OUT"][0] == pytest.approx(2 * ROWS[0, 0])


def test_the_job_runs_confined_on_a_gpu_with_the_image_and_the_volume_that_were_named(tmp_path: Path) -> None:
    pod = job(plan(tmp_path))["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["image"] == NODE[1]
    assert container["command"] == ["sh", "/dataset/exports/made/build.sh"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]},
    }  # fmt: skip
    assert pod["securityContext"]["runAsNonRoot"]
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not pod["automountServiceAccountToken"]
    assert {"name": "dataset", "persistentVolumeClaim": {"claimName": "models"}} in pod["volumes"]


def test_the_job_asks_for_a_slice_where_a_profile_is_said(tmp_path: Path) -> None:
    (container,) = job(plan(tmp_path, "--mig", "1g.10gb"))["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["nvidia.com/mig-1g.10gb"] == 1
    assert "nvidia.com/gpu" not in container["resources"]["limits"]


def test_an_engine_of_tensorrt_llm_is_built_of_a_model_of_hugging_face(tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    (tmp_path / "llama/config.json").write_text('{"architectures": ["LlamaForCausalLM"]}')
    done = export(tmp_path / "llama", tmp_path / "made", "--max-batch-size", 8, *ENGINE)
    assert done.exit_code == 0, done.output
    script = (tmp_path / "made/build.sh").read_text()
    assert "trtllm-build --checkpoint_dir checkpoint --output_dir engine --max_batch_size 8" in script
    program = script.partition("<<'END'\n")[2].partition("\nEND\n")[0]
    compile(program, "build.sh", "exec")
    assert job(tmp_path / "made")["metadata"]["name"] == "build-made"
    assert f"next: tidegate model new made {tmp_path}/made/engine" in done.stdout
    assert "NOT BUILT, AND NOT TRIED" in done.stderr


@pytest.mark.parametrize(
    ("config", "why"),
    [
        (None, "config.json: No such file or directory"),
        *((config, "its config.json names no architecture") for config in ("{}", "[]", '{"architectures": []}')),
        ("no", "config.json: line 1, column 1: Expecting value"),
    ],
)
def test_what_is_no_model_of_hugging_face_is_said(config: str | None, why: str, tmp_path: Path) -> None:
    (tmp_path / "llama").mkdir()
    if config is not None:
        (tmp_path / "llama/config.json").write_text(config)
    said = refused(tmp_path, tmp_path / "llama", *ENGINE)
    assert f"this is no model as Hugging Face has it\n  why: {why}" in said


def test_tensorrt_takes_no_forests(tmp_path: Path) -> None:
    assert "TensorRT takes no lightgbm" in refused(tmp_path, boosted(tmp_path), "--input", sample(tmp_path), *PLAN)


@pytest.mark.parametrize(
    "words",
    [("--image", "i"), ("--volume", "c/p"), *(("--image", "i", "--volume", volume) for volume in ("c", "c/", "/p"))],
)
def test_a_job_needs_an_image_and_a_place_in_a_volume(words: tuple[str, ...], tmp_path: Path) -> None:
    said = refused(tmp_path, write_onnx(tmp_path / "m.onnx"), "--to", "tensorrt", *words)
    assert "say --image IMAGE --volume CLAIM/PATH" in said


@pytest.mark.parametrize("mig", ["", "10gb", "1g.10gb\nx", "nvidia.com/mig-1g.10gb"])
def test_a_profile_that_is_none_is_said(mig: str, tmp_path: Path) -> None:
    assert "is no profile of MIG" in refused(tmp_path, write_onnx(tmp_path / "m.onnx"), *PLAN, "--mig", mig)
