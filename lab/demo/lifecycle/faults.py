"""What is shown of a model's life when somebody or something interferes."""

import os
import shlex
import signal

from tidegate.errors import ExitCode

from ..playing import Outcome, claim
from . import notebook
from .scenes import new_version
from .stage import LifeStage
from .world import CHURN, COMMAND_SECONDS, DEPLOYER, DEV, DEVELOPER, PROD

KILLED_VERSION, TAMPERED_VERSION = 4, 5


def killed(stage: LifeStage) -> Outcome:
    """The deployer's command is killed half way, again and again; then it is left alone."""
    new_version(stage, KILLED_VERSION)
    stage.run(DEVELOPER, "deploy", CHURN)
    words = ("promote", CHURN, "--to", PROD)
    kills = 0
    with stage.calling(stage.world.prod) as calls:
        for moment in ("publishing", "waiting"):
            stage.show.command(DEPLOYER, f"{shlex.join(['tidegate', *words])}  # kill -9 when it says {moment!r}")
            kills += _killed_at(moment, stage, *words)
        stage.run(DEPLOYER, *words)
        stage.until(f"version {KILLED_VERSION} answers", lambda: calls.versions[str(KILLED_VERSION)])
    claim(kills == 2, f"it was killed {kills} times only")
    claim(not calls.failures, f"{calls.last}: {calls.failures[:1]}")
    stage.verified()
    return Outcome(
        f"Killed {kills} times, then finished. Meanwhile: {calls.last}",
        f"killed {kills} times, no call failed",
        {"kills": kills, "calls": calls.versions.total()},
    )


def _killed_at(moment: str, stage: LifeStage, *words: str) -> bool:
    """Run the deployer's command up to where it says a word, and kill it; False where it ends before."""
    with stage.world.running(DEPLOYER, *words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(moment):
                os.killpg(process.pid, signal.SIGKILL)
                return True
    return False


def raced(stage: LifeStage) -> Outcome:
    """Two deployers at the same moment: one goes back, the other one forward."""
    words = [("rollback", CHURN, "--in", PROD), ("promote", f"{CHURN}@{KILLED_VERSION}", "--to", PROD)]
    for each in words:
        stage.show.command(DEPLOYER, f"{shlex.join(['tidegate', *each])} &")
    with (
        stage.world.running(DEPLOYER, *words[0]) as one,
        stage.world.running(DEPLOYER, *words[1]) as other,
    ):
        said = [process.communicate(timeout=COMMAND_SECONDS) for process in (one, other)]
        statuses = [one.returncode, other.returncode]
    told = [errors.strip().splitlines()[0] for status, (_, errors) in zip(statuses, said, strict=True) if status]
    for line in told:
        stage.show.output(line)
    claim(set(statuses) <= {ExitCode.OK, ExitCode.BUSY}, f"they ended with {statuses}: {said}")
    claim(ExitCode.OK in statuses, f"they ended with {statuses}: {said}")
    with stage.client(stage.world.prod) as client:
        answer = client.infer(CHURN, notebook.request())
    word = "was told so" if told else "came after"
    return Outcome(
        f"One won, the other {word}; version {answer.version} answers",
        f"one won, the other {word}",
        {"statuses": statuses},
    )


def tampered(stage: LifeStage) -> Outcome:
    """Somebody changes a file in the registry's bucket, and one in prod's volume, of a version to go back to."""
    new_version(stage, TAMPERED_VERSION)
    store = stage.world.store.client()
    listed = store.list_objects_v2(Bucket="mlflow", Prefix="artifacts/")["Contents"]
    newest = max(
        (each for each in listed if each["Key"].endswith("weights.json")), key=lambda each: each["LastModified"]
    )
    store.put_object(Bucket="mlflow", Key=newest["Key"], Body=b'{"weights": [9, 9, 9, 9], "bias": 0}')
    refused = stage.run(DEVELOPER, "deploy", CHURN, expect=ExitCode.INTEGRITY)
    claim("weights.json" in refused.err, f"that does not say which file: {refused.err}")
    kept = stage.world.prod.repository("preload") / CHURN / "1" / "weights.json"
    kept.write_bytes(kept.read_bytes().replace(b"0", b"1", 1))
    found = stage.run(DEPLOYER, "verify", PROD, expect=ExitCode.INTEGRITY)
    claim("weights.json" in found.out + found.err, f"that does not say which file: {found.out}")
    with stage.client(stage.world.dev) as client:
        answer = client.infer(CHURN, notebook.request())
    claim(answer.version == str(KILLED_VERSION), f"in {DEV} version {answer.version} answers")
    return Outcome("Both were found, and named; nothing of it was ever served", "both found", {})
