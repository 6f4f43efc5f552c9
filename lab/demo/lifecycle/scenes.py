"""The scenes of a model's life: from a notebook to production and back, then with killed commands and altered files."""

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
LOCKED_SECONDS = 120.0  # The lock of a killed publisher expires within a minute.
ENDPOINT_PROGRAM = f"""
import json, mlflow, numpy
model = mlflow.pyfunc.load_model("models:/{CHURN}-client/1")
outputs = model.predict({{"FEATURES": numpy.array([{list(notebook.CUSTOMER)}], numpy.float32)}})
print(json.dumps(float(numpy.asarray(outputs["SCORE"]).reshape(-1)[0])))
"""


def perform(world: World, show: Show) -> None:
    """Print what runs and which people there are, and play all scenes."""
    show.print(
        "Running on this machine: MLflow with a SQL store and S3 (MinIO). Dev and prod, each with a preload Triton, an "
        "on-demand Triton with its eviction policy, and a proxy. They are the real programs, on the CPU instead of a "
        "GPU.\n"
        f"The {DEVELOPER} registers models and deploys them to dev. Only the {DEPLOYER} may promote to prod. Both use "
        f"the command `tidegate`. The model is {CHURN}."
    )
    play(LifeStage(world, show), show, SCENES, world.check)


def new_version(stage: LifeStage, version: int, model: str = CHURN) -> None:
    """Create, check and register a version, as the developer."""
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
    "The developer turns the notebook's files into an entry of a Triton model repository, checks it, and registers it "
    "in MLflow with a golden request.",
)
def register(stage: LifeStage) -> str:
    """Register a model from a notebook."""
    new_version(stage, 1)
    again = stage.world.tidegate(DEVELOPER, "register", f"v1/{CHURN}", "--json").json()
    claim(again["number"] == 1, f"registering the same content again made version {again['number']}")
    return "It is version 1, with the SHA-256 of every file. Registering it again returns version 1"


@scene(
    SCENES,
    "`tidegate deploy` fetches the version from S3, verifies every digest and publishes it by one rename. Triton loads "
    "it, and the golden request gets its expected response.",
)
def deploy(stage: LifeStage) -> str:
    """Deploy to dev."""
    stage.run(DEVELOPER, "deploy", CHURN)
    result = stage.run(
        DEVELOPER, "predict", CHURN, "--environment", DEV, "--input", f"FEATURES={[list(notebook.CUSTOMER)]}"
    )
    right = notebook.score(notebook.weights(1))
    claim(f"{right:.6g}" in result.out, f"the output is not the expected {right}")
    refused = stage.run(DEVELOPER, "promote", CHURN, "--to", PROD, expect=REFUSED)
    claim(DEVELOPER in refused.err, f"the message does not name the {DEVELOPER}: {refused.err}")
    return "The model answers in dev. The developer may not promote it to prod"


@scene(
    SCENES,
    "The definition sets who may promote. The model endpoint calls the proxy in DOMINO_INFERENCE_PROXY, and nothing "
    "else changes.",
)
def promote(stage: LifeStage) -> str:
    """Promote to prod as the deployer."""
    stage.run(DEPLOYER, "promote", CHURN, "--to", PROD)
    answers = {}
    proxies = {DEV: stage.world.dev.url, PROD: stage.world.prod.url}
    with ThreadPoolExecutor(len(proxies)) as threads:
        called = threads.map(
            lambda url: stage.world.python(ENDPOINT, ENDPOINT_PROGRAM, {"DOMINO_INFERENCE_PROXY": url}),
            proxies.values(),
        )
    for (name, url), result in zip(proxies.items(), called, strict=True):
        stage.show.command(ENDPOINT, f"DOMINO_INFERENCE_PROXY={url}  # the client model from the registry, in {name}")
        claim(result.status == 0, result.err)
        answers[name] = float(json.loads(result.out.splitlines()[-1]))
        stage.show.output(f"SCORE {answers[name]:.4f}")
    right = notebook.score(notebook.weights(1))
    claim(all(abs(answer - right) < 1e-4 for answer in answers.values()), f"{answers}, but {right} was expected")
    return "The same client model answers in dev and in prod"


@scene(SCENES, "A caller calls prod continuously while version 2 replaces version 1.")
def replace(stage: LifeStage) -> str:
    """Promote a second version without a failed call."""
    new_version(stage, 2)
    stage.run(DEVELOPER, "deploy", CHURN)
    with stage.calling(stage.world.prod) as calls:
        stage.run(DEPLOYER, "promote", CHURN, "--to", PROD)
        until("version 2 answers in prod", lambda: calls.versions["2"])
    return f"Meanwhile: {calls.last}"


@scene(SCENES, "Version 3 is promoted to prod with 0 % of the calls. Then the definition gives it 20 %.")
def split(stage: LifeStage) -> str:
    """Split traffic 80 to 20."""
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
    claim(not calls.failures, f"{calls.last}: {calls.failures[:1]}")
    claim(abs(share - 0.2) < 0.075, f"version 3 got {share:.1%} of {CALLS} calls")
    return f"Of {CALLS} calls version 3 answered {calls.versions['3']}. None failed, before or after"


@scene(SCENES, "Version 2 is still loaded, so the command fetches nothing, and no call fails.")
def rollback(stage: LifeStage) -> str:
    """Roll back."""
    with stage.calling(stage.world.prod) as calls:
        stage.world.split({})
        until("version 3 answers alone", lambda: calls.versions["3"])
        stage.run(DEPLOYER, "rollback", CHURN, "--in", PROD)
    with stage.client(stage.world.prod) as client:
        then = call_times(client, CHURN, 20)
    claim(set(then.versions) == {"2"}, f"after the rollback: {then.last}")
    stage.run(DEPLOYER, "history", CHURN, "--in", PROD)
    return f"Meanwhile: {calls.last}. Afterwards only version 2 answers"


@scene(SCENES, f"The developer deploys {OCR} to the on-demand server of dev. The deployer promotes it to prod.")
def on_demand(stage: LifeStage) -> str:
    """Deploy a model that loads when it is called."""
    new_version(stage, 1, OCR)
    stage.run(DEVELOPER, "deploy", OCR)
    stage.run(DEPLOYER, "promote", OCR, "--to", PROD)
    with stage.client(stage.world.prod) as client:
        calls = call_times(client, OCR, 1)
    claim(not calls.failures, f"{calls.failures}")
    return f"{OCR} answers in prod. The eviction policy loaded it"


@scene(
    SCENES,
    "The demo kills the deployer's command twice. The old version keeps serving. The lock of the killed command "
    "expires within a minute. Running the command again finishes the work.",
)
def killed(stage: LifeStage) -> str:
    """Kill a promotion halfway."""
    new_version(stage, KILLED_VERSION)
    stage.run(DEVELOPER, "deploy", CHURN)
    words = ("promote", CHURN, "--to", PROD)
    command, moments = shlex.join(["tidegate", *words]), ("publishing", "waiting")
    with stage.calling(stage.world.prod) as calls:
        for moment in moments:
            stage.show.command(DEPLOYER, f"{command}  # kill -9 when it prints {moment!r}")
            until(f"the command prints {moment!r}", partial(_killed_at, moment, stage, *words), LOCKED_SECONDS)
        stage.show.command(DEPLOYER, f"{command}  # again, until the lock has expired")
        until("the command finishes", partial(_finished, stage, *words), LOCKED_SECONDS)
        until(f"version {KILLED_VERSION} answers", lambda: calls.versions[str(KILLED_VERSION)])
    stage.verified()
    return f"Killed {len(moments)} times, then finished. Meanwhile: {calls.last}"


def _killed_at(moment: str, stage: LifeStage, *words: str) -> bool:
    """Run the deployer's command, and kill it when it prints `moment`. Return False if the model was locked."""
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
    """Run the deployer's command. Return False if the model was locked."""
    result = stage.world.tidegate(DEPLOYER, *words)
    claim(result.status in (ExitCode.OK, ExitCode.BUSY), f"the command ended with {result.status}: {result.err}")
    if result.status == ExitCode.OK:
        stage.show.output(result.out.rstrip())
    return result.status == ExitCode.OK


@scene(SCENES, "One deployer rolls back while another promotes.")
def raced(stage: LifeStage) -> str:
    """Run two commands at the same time."""
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
    loser = "was refused as busy" if refusals else "ran after it"
    return f"One won, the other {loser}. Version {answer.version} answers"


@scene(SCENES, "The demo changes a file in the registry's bucket, and another one in production's volume.")
def tampered(stage: LifeStage) -> str:
    """Detect altered files."""
    new_version(stage, TAMPERED_VERSION)
    store = stage.world.store.client()
    objects = store.list_objects_v2(Bucket="mlflow", Prefix="artifacts/")["Contents"]
    newest = max(
        (each for each in objects if each["Key"].endswith("weights.json")), key=lambda each: each["LastModified"]
    )
    store.put_object(Bucket="mlflow", Key=newest["Key"], Body=b'{"weights": [9, 9, 9, 9], "bias": 0}')
    refused = stage.run(DEVELOPER, "deploy", CHURN, expect=ExitCode.INTEGRITY)
    claim("weights.json" in refused.err, f"the message does not name the file: {refused.err}")
    file = stage.world.prod.repository("preload") / CHURN / "1" / "weights.json"
    file.write_bytes(file.read_bytes().replace(b"0", b"1", 1))
    found = stage.run(DEPLOYER, "verify", PROD, expect=ExitCode.INTEGRITY)
    claim("weights.json" in found.out + found.err, f"the message does not name the file: {found.out}")
    with stage.client(stage.world.dev) as client:
        answer = client.infer(CHURN, notebook.request())
    claim(answer.version == str(KILLED_VERSION), f"version {answer.version} answers in {DEV}")
    return "`tidegate` found and named both files, and no server served them"
