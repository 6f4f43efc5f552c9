"""One engine: what it computes, what waits for it, and how fast it answers."""

from ..openai.series import CACHE, FIRST_TOKEN, READ, RUNNING, WAITING, WRITTEN, whichever
from .panel import BY_POD, HERE, RATE, Dashboard, Panel, Query, quantiles

_POD = f'{HERE}, pod=~"$pod"'
_NAME = "{{namespace}} {{pod}}"
_ENGINES = "servers of kind openai"

ENGINE = Dashboard(
    "engine",
    "Engine",
    "Engines that speak OpenAI's API: vLLM, SGLang, Dynamo.",
    {
        "Requests": (
            Panel(
                "Running and waiting",
                "Requests that an engine computes together, and those that wait for a place among them. More wait than"
                " run: TidegateEngineQueueGrows; see the cache beside it.",
                (Query(whichever(RUNNING, _POD, BY_POD), f"{_NAME} running"),
                 Query(whichever(WAITING, _POD, BY_POD), f"{_NAME} waiting")),
                "short", "lines", 12, needs=_ENGINES,
            ),
            Panel(
                "KV cache",
                "Share of the cache for tokens that is in use. Near all of it while requests wait: more replicas, a"
                " shorter contextLength, or more memory for it.",
                (Query(whichever(CACHE, _POD, BY_POD), _NAME),),
                "percentunit", "lines", 12, needs=_ENGINES,
            ),
            Panel(
                "Time to the first token",
                "Seconds until a caller reads something. It rises with what waits; where nothing waits, prompts have"
                " become longer.",
                tuple(query for name in FIRST_TOKEN for query in quantiles(name, _POD, "pod", "{{pod}}", 0.5, 0.95)),
                "s", "lines", 12, needs=_ENGINES,
            ),
            Panel(
                "Tokens",
                "Tokens a second: of prompts that were read, and of answers that were written. None while requests run:"
                " TidegateEngineStalled.",
                (Query(whichever(READ, _POD, BY_POD, RATE), f"{_NAME} read"),
                 Query(whichever(WRITTEN, _POD, BY_POD, RATE), f"{_NAME} written")),
                "short", "lines", 12, needs=_ENGINES,
            ),
            Panel(
                "Engines that tell their metrics",
                "1 while an engine tells them; 0 while it loads its model, or hangs: TidegateEngineNotReady.",
                (Query(f"max by ({BY_POD}) (tidegate_engine_up{{{_POD}}})", _NAME),),
                "short", "lines", 24, needs=_ENGINES,
            ),
        ),
    },
    {
        "cluster": "tidegate_engine_up",
        "namespace": "tidegate_engine_up",
        "pod": f"tidegate_engine_up{{{HERE}}}",
    },
)  # fmt: skip
