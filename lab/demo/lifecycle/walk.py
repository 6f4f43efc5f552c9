"""The walk through a model's life, scene after scene."""

from collections.abc import Sequence

from .. import playing
from ..playing import Played, Scene
from ..show import Show
from . import scenes
from .stage import LifeStage
from .world import CHURN, DEPLOYER, DEVELOPER, OCR

SCENES: tuple[Scene[LifeStage], ...] = (
    Scene(
        "register", "From a notebook into the registry",
        "An entry of a Triton model repository is made of the notebook's files, checked, and registered in MLflow, "
        "with a request whose answer is known.",
        scenes.register,
    ),
    Scene(
        "deploy", "Into dev",
        "It is fetched from S3, every digest is verified, it is published in one rename, Triton loads it, the known "
        "request is answered.",
        scenes.deploy,
    ),
    Scene(
        "promote", "Into prod, by somebody else",
        "The definition says who may. The model endpoint finds its proxy in DOMINO_INFERENCE_PROXY, and nothing else "
        "changes.",
        scenes.promote,
    ),
    Scene(
        "replace", "A second version, without a failed call",
        "Somebody calls prod all the time while version 2 takes the place of version 1.",
        scenes.replace,
    ),
    Scene(
        "split", "20 to 80",
        "Version 3 comes into prod, and the definition gives it no calls; then a fifth of them.",
        scenes.split,
    ),
    Scene(
        "rollback", "Back",
        "Version 2 is still there: nothing is fetched, no call fails.",
        scenes.roll_back,
    ),
    Scene(
        "on-demand", "The same for a model that is loaded when it is called",
        f"{OCR} goes to the on-demand server of dev, then of prod.",
        scenes.on_demand,
    ),
    Scene(
        "killed", "Killed half way",
        "The deployer's command is killed twice. What served goes on, and running it again finishes it.",
        scenes.killed,
    ),
    Scene(
        "raced", "Two at once",
        "One deployer rolls back while another one promotes.",
        scenes.raced,
    ),
    Scene(
        "tampered", "Content that is not what was registered",
        "A file is changed in the registry's bucket, and one in production's volume.",
        scenes.tampered,
    ),
)  # fmt: skip


def introduce(show: Show) -> None:
    """Print what runs, and who is there."""
    show.say(
        "This runs on this machine: MLflow with a SQL store and S3 (MinIO) behind it; dev and prod, each with a "
        "preload Triton, an on-demand Triton with its eviction policy, and a proxy. They are the real ones, on the "
        "processor instead of a GPU.\n"
        f"The {DEVELOPER} registers models and deploys them to dev, the {DEPLOYER} alone may promote to prod; both "
        f"have the command `tidegate`. {CHURN} is the model."
    )


def play(stage: LifeStage, wanted: Sequence[Scene[LifeStage]] = SCENES) -> list[Played]:
    """Play scenes; the first one that does not hold what it claims is the last."""
    return playing.play(stage, stage.show, wanted, stage.world.check)


def summary(played: Sequence[Played], seconds: float, show: Show) -> bool:
    """Print the table at the end; return whether all held."""
    titles = {scene.name: scene.title for scene in SCENES}
    return playing.summary(played, titles, seconds, show, "To do it yourself: docs/models.md")
