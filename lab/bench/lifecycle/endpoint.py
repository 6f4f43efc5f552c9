"""What a model endpoint adds to a call, and what it takes: TritonModel against bare tritonclient, through a proxy."""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tidegate.calling import MODEL_SCRIPT
from tidegate_contracts import routing

from lab.bench.report import Figures, NotHereError
from lab.local_plane.environment import POOL, PRELOAD, LocalEnvironment, Plan, local_environment
from lab.local_plane.repository import Model

from . import caller
from .goals import ROOT, Scale

MODEL = "picture"
NUMBERS = 3 * 224 * 224  # A picture as models of vision take it: 602 112 bytes of FP32.
PROGRAM = Path(__file__).with_name("echo_model.py")
SECONDS = 300


def endpoint(scale: Scale) -> Figures:
    """Measure how long calls take by turns, and the memory and the import time of an endpoint's process."""
    said = _called(scale)
    found = Figures()
    direct = min(said["client"])
    for key, name in (("triton_model_vs_client", "triton_model"), ("pyfunc_vs_client", "pyfunc")):
        found.figures[key] = min(said[name]) / direct
        found.add(f"{name}, ms a call of 600 KB", f"{1000 * min(said[name]):.2f}")
    found.add("tritonclient, ms a call of 600 KB", f"{1000 * direct:.2f}")
    found.figures["triton_model_rss_mb"] = said["rss_bytes"] / 1e6
    found.figures["triton_model_import_s"] = said["import_seconds"]
    return found


def _called(scale: Scale) -> dict[str, Any]:
    model = Model(MODEL, PROGRAM, [("INPUT", "TYPE_FP32", "-1")], [("OUTPUT", "TYPE_FP32", "-1")])
    plan = Plan(name="bench", models=(routing.Model(name=MODEL, server=PRELOAD, pool=POOL),))
    with tempfile.TemporaryDirectory(prefix="tidegate-bench-") as folder:
        here = LocalEnvironment(Path(folder), plan)
        here.publish(PRELOAD, model)
        with local_environment(here):
            saved = _saved(Path(folder))
            counts = map(str, (NUMBERS, scale.runs, scale.calls))
            words = [here.url, here.keys[plan.callers[0]], str(saved), MODEL, *counts]
            done = subprocess.run(
                [sys.executable, "-m", caller.__name__, *words],
                cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
            )  # fmt: skip
    if done.returncode:
        raise NotHereError(done.stderr.strip() or f"the caller ended with {done.returncode}")
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def _saved(folder: Path) -> Path:
    """Save the client model as MLflow would log it; return its folder."""
    import mlflow.pyfunc

    context = folder / caller.CONTEXT
    context.write_text(json.dumps({"model_name": MODEL}), "utf-8")
    mlflow.pyfunc.save_model(
        folder / "saved", python_model=str(MODEL_SCRIPT), artifacts={"model_context": str(context)}
    )
    return folder / "saved"
