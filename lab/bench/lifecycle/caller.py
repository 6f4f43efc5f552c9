"""The process of a model endpoint, as a program of its own: `caller URL KEY SAVED MODEL NUMBERS RUNS CALLS`.

SAVED is the client model as MLflow has saved it. Prints one line of JSON: seconds a call of each caller in each run,
the most bytes in RAM, seconds to import.
"""

import json
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

CONTEXT = "model_context.json"
WARM_CALLS = 5


def most_resident_bytes(pid: int | str = "self") -> int:
    """Return the most bytes that a process has had in RAM; 0 when it has ended.

    What the system counts for a child (`ru_maxrss`) is no measure: Linux begins with what the parent had.
    """
    found = re.search(r"^VmHWM:\s+(\d+) kB$", Path(f"/proc/{pid}/status").read_text("ascii"), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def main(url: str, key: str, saved: str, model: str, numbers: int, runs: int, calls: int) -> dict[str, Any]:
    """Measure; what is not part of an endpoint is imported when the endpoint's memory was read."""
    os.environ |= {"DOMINO_INFERENCE_PROXY": url, "TIDEGATE_API_KEY": key}
    begun = time.perf_counter()
    from tidegate.calling.triton_model import TritonModel

    import_seconds = time.perf_counter() - begun
    import mlflow.pyfunc
    import numpy

    given = {"INPUT": numpy.arange(numbers, dtype=numpy.float32)}
    pyfunc = mlflow.pyfunc.load_model(saved)
    for _ in range(WARM_CALLS):
        answer = pyfunc.predict(given)
    assert (answer["OUTPUT"] == given["INPUT"]).all()
    rss_bytes = most_resident_bytes()

    import tritonclient.http as triton

    from lab.bench.report import turns

    ours: Any = TritonModel()
    ours.load_context(SimpleNamespace(artifacts={"model_context": str(Path(saved) / "artifacts" / CONTEXT)}))
    client = triton.InferenceServerClient(url.removeprefix("http://"))
    who = {"Authorization": f"Bearer {key}"}

    def bare() -> Any:
        tensor = triton.InferInput("INPUT", [numbers], "FP32")
        tensor.set_data_from_numpy(given["INPUT"])
        outputs = [triton.InferRequestedOutput("OUTPUT")]
        return client.infer(model, [tensor], outputs=outputs, headers=who).as_numpy("OUTPUT")

    callers: dict[str, Callable[[], Any]] = {
        "client": bare,
        "triton_model": lambda: ours.predict(None, given),
        "pyfunc": lambda: pyfunc.predict(given),
    }
    seconds: dict[str, list[float]] = {name: [] for name in callers}
    for run, name in turns([*callers], runs):
        begun = time.perf_counter()
        for _ in range(calls):
            callers[name]()
        if run >= 0:
            seconds[name].append((time.perf_counter() - begun) / calls)
    return seconds | {"rss_bytes": rss_bytes, "import_seconds": import_seconds}


if __name__ == "__main__":
    _url, _key, _saved, _model, *_counts = sys.argv[1:]
    print(json.dumps(main(_url, _key, _saved, _model, *map(int, _counts))))
