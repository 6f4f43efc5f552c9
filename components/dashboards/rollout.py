"""What changes of an environment and of its models did: errors and times before and after, beside what was changed."""

from ..alerts import FAILED
from .panel import BY, HERE, RATE, Dashboard, Panel, Query, recorded_share, requests

_VERSION = f"{BY}, model, version"
_UNDONE = f"sum by ({_VERSION}) (rate(nv_inference_request_failure{{{HERE}}}{RATE}))"
_DONE = f"sum by ({_VERSION}) (rate(nv_inference_request_success{{{HERE}}}{RATE}))"
_WORST = f"topk(5, sum by ({BY}, model) (rate(nv_inference_request_failure{{{HERE}}}{RATE})))"
_MODEL = f"{BY}, server, model"

ROLLOUT = Dashboard(
    "rollout",
    "Rollout",
    "Waves, gates and promotions: what was changed when, and what callers met before and after.",
    {
        "Callers": (
            Panel(
                "Did the last promotion raise errors?",
                "Share of the requests that Triton could not do, by version, of the five models with most of them. The"
                " line of a new version (its mark is violet) above that of the old one: `tidegate rollback`.",
                (Query(f"{_UNDONE} / ({_UNDONE} + {_DONE} > 0) and on ({BY}, model) {_WORST}",
                       "{{namespace}} {{model}} {{version}}"),),
                "percentunit", "lines", 12,
            ),
            Panel(
                "Calls that fail, by model",
                "Calls a second that fail, of the five models with the most. It rises at a mark: take that change"
                " back, `tidegate rollout --back`, or `tidegate rollback`.",
                (Query(f"topk(5, sum by ({_MODEL}) ({requests(HERE, FAILED)}))"
                       f" or on ({BY}) tidegate:calls:rate5m{{{HERE}}} * 0",
                       "{{namespace}} {{server}} {{model}}"),),
                "reqps", "lines", 12,
            ),
            Panel(
                "Calls told to come again",
                "Share of the calls that are told busy. It rises while pods are started anew, and falls within"
                " minutes.",
                (recorded_share("refused_calls"),),
                "percentunit", "lines", 12,
            ),
            Panel(
                "Copies for a candidate version",
                "Copies of requests a second that a candidate got, by what came of them. `failed` or `refused`: do not"
                " promote it.",
                (Query(f"sum by ({BY}, model, outcome) (rate(tidegate_proxy_mirrored_total{{{HERE}}}{RATE}))"
                       f" or on ({BY}) sum by ({BY}) (tidegate_proxy_mirrors_in_flight{{{HERE}}}) * 0",
                       "{{model}} {{outcome}}"),),
                "reqps", "stack", 12,
            ),
        ),
        "Parts": (
            Panel(
                "Replicas that answer",
                "Replicas of each pool that get calls. It falls for longer than a pod needs to start: the rollout"
                " stands still.",
                (Query(f"sum by ({BY}, server, pool) (max by ({BY}, server, pool, replica)"
                       f' (tidegate_proxy_breaker{{{HERE}, state="closed"}}))', "{{namespace}} {{server}}/{{pool}}"),),
                "short", "lines", 12,
            ),
            Panel(
                "Tables taken over",
                "How often each proxy has taken a routing table over in each quarter of an hour: after a change all of"
                " an environment do.",
                (Query(f'changes(tidegate_proxy_config_generation{{{HERE}, file="routing"}}[15m])',
                       "{{namespace}} {{pod}}"),),
                "short", "lines", 12,
            ),
        ),
    },
    {"cluster": "tidegate_proxy_in_flight", "namespace": "tidegate_proxy_in_flight"},
    "now-24h",
)  # fmt: skip
