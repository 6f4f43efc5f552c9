"""The walk through the data plane: its scenes, and the room of the slice watched all the while."""

from collections.abc import Sequence

from tidegate_eviction.units import bytes_text

from lab.local_plane.environment import LocalEnvironment

from . import playing, zoo
from .platform import CALLER, IDLE_SECONDS, LEASE_SECONDS, PROXIES
from .playing import Played, Scene, claim
from .scenes import SCENES
from .show import Show
from .stage import Stage
from .visitor import Visitor


def stage_for(platform: LocalEnvironment, show: Show) -> Stage:
    """Return the stage on a platform that runs."""
    return Stage(platform, Visitor([proxy.http for proxy in platform.proxies], platform.keys[CALLER]), show)


def introduce(platform: LocalEnvironment, show: Show) -> None:
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
        most, room = stage.samples.most_bytes, zoo.CAPACITY_BYTES
        claim(most <= room, f"{bytes_text(most)} were taken at one time, and there are {bytes_text(room)}")

    with stage.sampling() as samples:
        played = playing.play(stage, stage.show, wanted, check)
    if not playing.all_hold(played):
        return played
    room = f"at most {bytes_text(samples.most_bytes)} of {bytes_text(zoo.CAPACITY_BYTES)}, at {samples.taken} looks"
    figures = {"most_bytes": samples.most_bytes, "capacity_bytes": zoo.CAPACITY_BYTES, "looks": samples.taken}
    return [*played, Played("room", "Room was never overrun", True, room, room, 0.0, figures)]
