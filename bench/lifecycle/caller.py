"""The process of a model endpoint, as a program of its own: `caller.py URL KEY MODEL NUMBERS RUNS CALLS`.

Prints one line of JSON: seconds a call of each caller in each run, bytes in RAM, seconds to import.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

WARM_CALLS = 5


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text("utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _seconds_a_call(call: Callable[[], Any], calls: int) -> float:
    begun = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - begun) / calls


def main(url: str, key: str, model: str, numbers: int, runs: int, calls: int) -> dict[str, Any]:
    """Measure; what is not part of an endpoint is imported when the endpoint's memory was read."""
    os.environ |= {"DOMINO_INFERENCE_PROXY": url, "TIDEGATE_API_KEY": key}
    begun = time.perf_counter()
    from tidegate.calling.triton_model import TritonModel

    import_seconds = time.perf_counter() - begun
    import numpy

    given = {"INPUT": numpy.arange(numbers, dtype=numpy.float32)}
    with tempfile.TemporaryDirectory() as folder:
        context = Path(folder) / "model_context.json"
        context.write_text(json.dumps({"model_name": model}), "utf-8")
        ours: Any = TritonModel()
        ours.load_context(SimpleNamespace(artifacts={"model_context": str(context)}))
        for _ in range(WARM_CALLS):
            answer = ours.predict(None, given)
        assert (answer["OUTPUT"] == given["INPUT"]).all()
        rss_bytes = _resident_bytes()

        import mlflow.pyfunc
        import tritonclient.http as triton
        from tidegate.calling import MODEL_SCRIPT

        saved = Path(folder) / "saved"
        mlflow.pyfunc.save_model(saved, python_model=str(MODEL_SCRIPT), artifacts={"model_context": str(context)})
        pyfunc = mlflow.pyfunc.load_model(str(saved))
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
        for run in range(-1, runs):  # the first only warms up
            for name, call in callers.items():
                took = _seconds_a_call(call, calls)
                if run >= 0:
                    seconds[name].append(took)
    return seconds | {"rss_bytes": rss_bytes, "import_seconds": import_seconds}


if __name__ == "__main__":
    _url, _key, _model, *_counts = sys.argv[1:]
    print(json.dumps(main(_url, _key, _model, *map(int, _counts))))
