"""The scenes of a model's life: from a notebook to production and back, and with interference."""

import json
import os
import shlex
import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tidegate.errors import ExitCode

from ..playing import Scene, claim, play, scene, until
from ..show import Show
from . import notebook
from .stage import SHOWN_LINES, LifeStage, call_times
from .world import CHURN, COMMAND_SECONDS, DEPLOYER, DEV, DEVELOPER, ENDPOINT, OCR, PROD, World

SCENES: list[Scene[LifeStage]] = []
CALLS = 1000
REFUSED = 3
KILLED_VERSION, TAMPERED_VERSION = 4, 5
LOCKED_SECONDS = 120.0  # The lock of a killed publisher is free within a minute.
ENDPOINT_PROGRAM = f"""
import json, mlflow, numpy
model = mlflow.pyfunc.load_model("models:/{CHURN}-client/1")
answer = model.predict({{"FEATURES": numpy.array([{list(notebook.CUSTOMER)}], numpy.float32)}})
print(json.dumps(float(numpy.asarray(answer["SCORE"]).reshape(-1)[0])))
"""


def perform(world: World, show: Show) -> None:
    """Print what runs, and who is there, and play all scenes."""
    show.say(
        "This runs on this machine: MLflow with a SQL store and S3 (MinIO) behind it; dev and prod, each with a "
        "preload Triton, an on-demand Triton with its eviction policy, and a proxy. They are the real ones, on the "
        "processor instead of a GPU.\n"
        f"The {DEVELOPER} registers models and deploys them to dev, the {DEPLOYER} alone may promote to prod; both "
        f"have the command `tidegate`. {CHURN} is the model."
    )
    play(LifeStage(world, show), show, SCENES, world.check)


def new_version(stage: LifeStage, version: int, model: str = CHURN) -> None:
    """Make, check and register a version, as the developer."""
    here = f"v{version}" if model == CHURN else model
    notebook.train(stage.world.work / here / "notebook", version)
    notebook.golden(version, stage.world.work / here / "golden.json")
    tensors = ("--input", f"FEATURES:FP32:{len(notebook.CUSTOMER)}", "--output", "SCORE:FP32:1")
    command = ("model", "new", model, f"{here}/notebook", "--into", here, *tensors, "--max-batch-size", "8")
    stage.run(DEVELOPER, *command, lines=SHOWN_LINES if version == 1 else 1)
    if version == 1:
        stage.run(DEVELOPER, "model", "check", f"{here}/{model}")
    stage.run(DEVELOPER, "register", f"{here}/{model}", "--golden", f"{here}/golden.json")


@scene(
    SCENES,
    "An entry of a Triton model repository is made of the notebook's files, checked, and registered in MLflow, "
    "with a request whose answer is known.",
)
def register(stage: LifeStage) -> str:
    """From a notebook into the registry."""
    new_version(stage, 1)
    again = stage.world.tidegate(DEVELOPER, "register", f"v1/{CHURN}", "--json").json()
    claim(again["number"] == 1, f"the same content, registered again, is version {again['number']}")
    return "It is version 1, with the SHA-256 of every file; registered again it is still version 1"


@scene(
    SCENES,
    "It is fetched from S3, every digest is verified, it is published in one rename, Triton loads it, the known "
    "request is answered.",
)
def deploy(stage: LifeStage) -> str:
    """Into dev."""
    stage.run(DEVELOPER, "deploy", CHURN)
    said = stage.run(
        DEVELOPER, "predict", CHURN, "--environment", DEV, "--input", f"FEATURES={[list(notebook.CUSTOMER)]}"
    )
    right = notebook.score(notebook.weights(1))
    claim(f"{right:.6g}" in said.out, f"{right} would be right")
    refused = stage.run(DEVELOPER, "promote", CHURN, "--to", PROD, expect=REFUSED)
    claim(DEVELOPER in refused.err, f"that does not say who may not: {refused.err}")
    return "It answers in dev. Into prod the developer may not bring it"


@scene(
    SCENES,
    "The definition says who may. The model endpoint finds its proxy in DOMINO_INFERENCE_PROXY, and nothing else "
    "changes.",
)
def promote(stage: LifeStage) -> str:
    """Into prod, by somebody else."""
    stage.run(DEPLOYER, "promote", CHURN, "--to", PROD)
    answers = {}
    proxies = {DEV: stage.world.dev.url, PROD: stage.world.prod.url}
    with ThreadPoolExecutor(len(proxies)) as threads:
        called = threads.map(
            lambda url: stage.world.python(ENDPOINT, ENDPOINT_PROGRAM, {"DOMINO_INFERENCE_PROXY": url}),
            proxies.values(),
        )
    for (name, url), said in zip(proxies.items(), called, strict=True):
        stage.show.command(ENDPOINT, f"DOMINO_INFERENCE_PROXY={url}  # the client model, from the registry, in {name}")
        claim(said.status == 0, said.err)
        answers[name] = float(json.loads(said.out.splitlines()[-1]))
        stage.show.output(f"SCORE {answers[name]:.4f}")
    right = notebook.score(notebook.weights(1))
    claim(all(abs(answer - right) < 1e-4 for answer in answers.values()), f"{answers}, and {right} would be right")
    return "The same client model answers in dev and in prod"


@scene(SCENES, "Somebody calls prod all the time while version 2 takes the place of version 1.")
def replace(stage: LifeStage) -> str:
    """A second version, without a failed call."""
    new_version(stage, 2)
    stage.run(DEVELOPER, "deploy", CHURN)
    with stage.calling(stage.world.prod) as calls:
        stage.run(DEPLOYER, "promote", CHURN, "--to", PROD)
        until("version 2 answers in prod", lambda: calls.versions["2"])
    claim(not calls.failures, f"{calls.last}: {calls.failures[:1]}")
    return f"Meanwhile: {calls.last}"


@scene(SCENES, "Version 3 comes into prod, and the definition gives it no calls; then a fifth of them.")
def split(stage: LifeStage) -> str:
    """20 to 80."""
    new_version(stage, 3)
    stage.run(DEVELOPER, "deploy", CHURN)
    with stage.calling(stage.world.prod) as meanwhile:
        stage.world.split({2: 100, 3: 0})
        stage.run(DEPLOYER, "promote", CHURN, "--to", PROD)
        stage.world.split({2: 80, 3: 20})
        until("both versions answer", lambda: meanwhile.versions["3"])
    with stage.client(stage.world.prod) as client:
        calls = call_times(client, CHURN, CALLS)
    share = calls.versions["3"] / CALLS
    claim(not meanwhile.failures + calls.failures, f"{meanwhile.last}: {meanwhile.failures[:1]}")
    claim(abs(share - 0.2) < 0.075, f"version 3 has {share:.1%} of {CALLS} calls")
    return f"Of {CALLS} calls version 3 answered {calls.versions['3']}; none failed, before or after"


@scene(SCENES, "Version 2 is still there: nothing is fetched, no call fails.")
def rollback(stage: LifeStage) -> str:
    """Back."""
    with stage.calling(stage.world.prod) as calls:
        stage.world.split({})
        until("version 3 answers alone", lambda: calls.versions["3"])
        stage.run(DEPLOYER, "rollback", CHURN, "--in", PROD)
    claim(not calls.failures, f"{calls.last}: {calls.failures[:1]}")
    with stage.client(stage.world.prod) as client:
        then = call_times(client, CHURN, 20)
    claim(set(then.versions) == {"2"}, f"after it: {then.last}")
    stage.run(DEPLOYER, "history", CHURN, "--in", PROD)
    return f"Meanwhile: {calls.last}; then version 2 alone"


@scene(SCENES, f"{OCR} goes to the on-demand server of dev, then of prod.")
def on_demand(stage: LifeStage) -> str:
    """The same for a model that is loaded when it is called."""
    new_version(stage, 1, OCR)
    stage.run(DEVELOPER, "deploy", OCR)
    stage.run(DEPLOYER, "promote", OCR, "--to", PROD)
    with stage.client(stage.world.prod) as client:
        answer = client.infer(OCR, notebook.request())
    found, right = float(answer.outputs["SCORE"].reshape(-1)[0]), notebook.score(notebook.weights(1))
    claim(abs(found - right) < 1e-4, f"it answers {found}, and {right} would be right")
    return f"{OCR} answers in prod, loaded by the eviction policy"


@scene(
    SCENES,
    "The deployer's command is killed twice. The old version serves on. Within a minute the lock of the killed command "
    "is free, and running it again finishes the work.",
)
def killed(stage: LifeStage) -> str:
    """Killed half way."""
    new_version(stage, KILLED_VERSION)
    stage.run(DEVELOPER, "deploy", CHURN)
    words = ("promote", CHURN, "--to", PROD)
    command, moments = shlex.join(["tidegate", *words]), ("publishing", "waiting")
    with stage.calling(stage.world.prod) as calls:
        for moment in moments:
            stage.show.command(DEPLOYER, f"{command}  # kill -9 when it prints {moment!r}")
            until(f"the command prints {moment!r}", partial(_killed_at, moment, stage, *words), LOCKED_SECONDS)
        stage.show.command(DEPLOYER, f"{command}  # again, until the lock is free")
        until("the command finishes", partial(_finished, stage, *words), LOCKED_SECONDS)
        until(f"version {KILLED_VERSION} answers", lambda: calls.versions[str(KILLED_VERSION)])
    claim(not calls.failures, f"{calls.last}: {calls.failures[:1]}")
    stage.verified()
    return f"Killed {len(moments)} times, then finished. Meanwhile: {calls.last}"


def _killed_at(moment: str, stage: LifeStage, *words: str) -> bool:
    """Run the deployer's command, kill it when it prints a word, and return True; False where it is busy before."""
    with stage.world.running(DEPLOYER, *words) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith(moment):
                os.killpg(process.pid, signal.SIGKILL)
                return True
        status = process.wait()
    claim(status == ExitCode.BUSY, f"the command ended with {status} before it was killed")
    return False


def _finished(stage: LifeStage, *words: str) -> bool:
    """Run the deployer's command, and return whether it is done; False where the model is locked."""
    result = stage.world.tidegate(DEPLOYER, *words)
    claim(result.status in (ExitCode.OK, ExitCode.BUSY), f"the command ended with {result.status}: {result.err}")
    if result.status == ExitCode.OK:
        stage.show.output(result.out.rstrip())
    return result.status == ExitCode.OK


@scene(SCENES, "One deployer rolls back while another one promotes.")
def raced(stage: LifeStage) -> str:
    """Two at once."""
    commands = [("rollback", CHURN, "--in", PROD), ("promote", f"{CHURN}@{KILLED_VERSION}", "--to", PROD)]
    for words in commands:
        stage.show.command(DEPLOYER, f"{shlex.join(['tidegate', *words])} &")
    with stage.world.running(DEPLOYER, *commands[0]) as one, stage.world.running(DEPLOYER, *commands[1]) as other:
        printed = [process.communicate(timeout=COMMAND_SECONDS) for process in (one, other)]
        statuses = [one.returncode, other.returncode]
    refusals = [errors.strip().splitlines()[0] for status, (_, errors) in zip(statuses, printed, strict=True) if status]
    for line in refusals:
        stage.show.output(line)
    claim(set(statuses) <= {ExitCode.OK, ExitCode.BUSY}, f"they ended with {statuses}: {printed}")
    claim(ExitCode.OK in statuses, f"they ended with {statuses}: {printed}")
    with stage.client(stage.world.prod) as client:
        answer = client.infer(CHURN, notebook.request())
    loser = "was refused as busy" if refusals else "came after"
    return f"One won, the other {loser}. Version {answer.version} answers"


@scene(SCENES, "A file changes in the registry's bucket, and another one in production's volume.")
def tampered(stage: LifeStage) -> str:
    """Content that differs from the registry's."""
    new_version(stage, TAMPERED_VERSION)
    store = stage.world.store.client()
    objects = store.list_objects_v2(Bucket="mlflow", Prefix="artifacts/")["Contents"]
    newest = max(
        (each for each in objects if each["Key"].endswith("weights.json")), key=lambda each: each["LastModified"]
    )
    store.put_object(Bucket="mlflow", Key=newest["Key"], Body=b'{"weights": [9, 9, 9, 9], "bias": 0}')
    refused = stage.run(DEVELOPER, "deploy", CHURN, expect=ExitCode.INTEGRITY)
    claim("weights.json" in refused.err, f"that does not name the file: {refused.err}")
    file = stage.world.prod.repository("preload") / CHURN / "1" / "weights.json"
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    found = stage.run(DEPLOYER, "verify", PROD, expect=ExitCode.INTEGRITY)
    claim("weights.json" in found.out + found.err, f"that does not name the file: {found.out}")
    with stage.client(stage.world.dev) as client:
        answer = client.infer(CHURN, notebook.request())
    claim(answer.version == str(KILLED_VERSION), f"in {DEV} version {answer.version} answers")
    return "`tidegate` found and named both, and no server served either"
