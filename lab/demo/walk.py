"""The walk: scene after scene, each checked as it is shown, and the room of the slice watched all the while."""

from collections.abc import Sequence

from tidegate_eviction.units import bytes_text

from . import playing, scenes, zoo
from .platform import IDLE_SECONDS, LEASE_SECONDS, POLL_SECONDS, PROXIES, TUNING, Platform
from .playing import Played, Scene, claim
from .show import Show
from .stage import Stage
from .visitor import Visitor

SCENES: tuple[Scene[Stage], ...] = (
    Scene(
        "publish", "A model is published while its server serves",
        f"The preload Triton looks into its repository every {POLL_SECONDS} s. A model is staged outside of it and "
        "renamed in, its configuration last.",
        scenes.publish,
    ),
    Scene(
        "cold", "A cold model loads on its first call",
        f"{scenes.CALLERS} callers want the same model at once: it is loaded one time, and all of them have an answer.",
        scenes.cold,
    ),
    Scene(
        "warm", "Warm models cost nothing more",
        "A proxy with a lease on a model sends calls straight to Triton; the policy hears of them in renewals only.",
        scenes.warm,
    ),
    Scene(
        "sizes", "Ensembles and unknown sizes",
        "An ensemble brings its composing models along; what nobody has declared the size of is measured at its load.",
        scenes.sizes,
    ),
    Scene(
        "evict", "Full: the least recently used goes",
        f"Room comes from models that nobody holds a lease on and that were idle for {IDLE_SECONDS} s.",
        scenes.evict,
    ),
    Scene(
        "lease", "What is leased is never touched",
        f"{zoo.SINGER} streams an answer while models that need the whole rest of the slice are called.",
        scenes.lease,
    ),
    Scene(
        "busy", "Busy says when to come back",
        f"whale may stay for {zoo.IDLE_SECONDS['whale']} s after its last call, and orca does not fit beside it.",
        scenes.busy,
    ),
    Scene(
        "quarantine", "What fails to load is put aside",
        f"{zoo.BROKEN.name} was published without its weights: it is tried {TUNING.failures_most} times, then no "
        "more.",
        scenes.quarantine,
    ),
    Scene(
        "policy-killed", "The policy is killed",
        f"Inference goes on for longer than the {LEASE_SECONDS} s of a lease; only loads stop. A new policy reads "
        "Triton's index and goes on from there.",
        scenes.policy_killed,
    ),
    Scene(
        "triton-killed", "Triton is killed with all its models",
        "Its leases are void, callers are told to try again, and models load anew when they are called.",
        scenes.triton_killed,
    ),
)  # fmt: skip


def stage_for(platform: Platform, show: Show) -> Stage:
    """Return the stage on a platform that runs."""
    return Stage(platform, Visitor([proxy.http for proxy in platform.proxies], platform.key), show)


def introduce(platform: Platform, show: Show) -> None:
    """Print what runs, and what is in the zoo."""
    show.say(
        f"This runs on this machine: a preload Triton, an on-demand Triton with its eviction policy, and {PROXIES} "
        "proxies. They are the real ones, on the processor instead of a GPU.\n"
        f"So that nobody has to wait, a model may go after {IDLE_SECONDS} s without a call (300 s on a platform), and "
        f"leases last {LEASE_SECONDS} s."
    )
    show.console.print()
    show.the_zoo()
    show.legend()
    show.say(f"To look on in a browser, while it runs: http://{platform.policy.admin}/")


def play(stage: Stage, wanted: Sequence[Scene[Stage]] = SCENES) -> list[Played]:
    """Play scenes, while the slice is looked at all the time; what it held at most is the last of what was shown."""

    def check() -> None:
        stage.platform.check()
        _room_was_never_overrun(stage)

    with stage.sampling() as samples:
        played = playing.play(stage, stage.show, wanted, check)
    if not playing.all_hold(played):
        return played
    room = f"at most {bytes_text(samples.most_bytes)} of {bytes_text(zoo.CAPACITY_BYTES)}, at {samples.taken} looks"
    figures = {"most_bytes": samples.most_bytes, "capacity_bytes": zoo.CAPACITY_BYTES, "looks": samples.taken}
    return [*played, Played("room", True, room, room, 0.0, figures)]


def summary(played: Sequence[Played], seconds: float, show: Show) -> bool:
    """Print the table at the end; return whether all held."""
    titles = {scene.name: scene.title for scene in SCENES} | {"room": "Room was never overrun"}
    return playing.summary(played, titles, seconds, show, "To try it yourself: make demo-up")


def _room_was_never_overrun(stage: Stage) -> None:
    most = stage.samples.most_bytes
    claim(
        most <= zoo.CAPACITY_BYTES,
        f"{bytes_text(most)} were taken at one time, and there are {bytes_text(zoo.CAPACITY_BYTES)}",
    )
