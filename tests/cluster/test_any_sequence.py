"""Any sequence of commands, with both engines, over two clusters. No command deletes an object that the definition
describes, or touches a cluster that it does not name."""

import os
import random
import signal
import subprocess
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from lab.local_cluster import LocalCluster
from rollout.changes.compare import KEPT
from tests.rollout.conftest import Ended

from .world import DEFINITION, ENGINES, Site, checkout_for_pulumi, roomy_nodes

Key = tuple[str, str, str]
CONTEXTS = {"a": "a", "b": "b", "renamed": "a"}
"""The cluster of each kubeconfig context."""
KINDS = "namespaces,sa,pv,pvc,cm,netpol,svc,deploy,sts,pdb,hpa"
EXTRA = "      - {name: extra, loading: {mode: on-demand, capacity: 1Gi}, replicas: 1}\n"


@dataclass
class Clusters:
    """Two clusters, and a kubeconfig with two contexts for one of them."""

    running: Mapping[str, LocalCluster]
    kubeconfig: Path
    checkout: Path


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Clusters]:
    folder = tmp_path_factory.mktemp("sequences")
    with ExitStack() as stack:
        running = {
            name: stack.enter_context(LocalCluster.start(folder / name, name=name, nodes=roomy_nodes()[-1:]))
            for name in ("a", "b")
        }
        configs = [yaml.safe_load(cluster.kubeconfig.read_text("utf-8")) for cluster in running.values()]
        joined = {**configs[0], **{key: configs[0][key] + configs[1][key] for key in ("clusters", "contexts", "users")}}
        joined["contexts"].append({**joined["contexts"][0], "name": "renamed"})
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(yaml.safe_dump(joined), "utf-8")
        checkout, _ = checkout_for_pulumi(folder)
        yield Clusters(running, kubeconfig, checkout)


class Sequence:
    """One environment on one data plane, and the steps of its users. Each step checks both promises."""

    def __init__(self, clusters: Clusters, folder: Path) -> None:
        self.clusters, self.prefix = clusters, f"s{uuid.uuid4().hex[:8]}"
        self.context, self.namespace, self.extra = "a", f"{self.prefix}-dev", True
        folder = folder / self.prefix
        (folder / "definition").mkdir(parents=True)
        (folder / "state").mkdir()
        (clusters.checkout / "stacks" / "Pulumi.dev-lab.yaml").unlink(missing_ok=True)
        environment = {
            "KUBECONFIG": str(clusters.kubeconfig),
            "KUBECACHEDIR": str(folder / "kubectl-cache"),
            "PULUMI_BACKEND_URL": (folder / "state").as_uri(),
            "PULUMI_CONFIG_PASSPHRASE": "",
        }
        self.site = Site(clusters.running["a"], self.prefix, "", folder, environment, clusters.checkout)
        self.before = self.defined
        self._write()

    def _write(self) -> None:
        text = DEFINITION.format(prefix=self.prefix, context=self.context, server="small")
        text = text.replace(f"dev, namespace: {self.prefix}-dev", f"dev, namespace: {self.namespace}")
        self.site.write(text if self.extra else text.replace(EXTRA, ""))

    @property
    def defined(self) -> tuple[str, str, bool]:
        return self.context, self.namespace, self.extra

    # ---- steps ----

    def edit(self, **changes: Any) -> None:
        self.before = self.defined
        for name, value in changes.items():
            setattr(self, name, value)
        self._write()

    def revert(self) -> None:
        (self.context, self.namespace, self.extra), self.before = (
            self.before,
            (self.context, self.namespace, self.extra),
        )
        self._write()

    def up(self, engine: str, *more: str) -> Ended:
        """Run `up`. If it succeeds, check that the stack exists."""
        ended = self._held(self.context, lambda: self._run("up", self.context, "--engine", engine, *more))
        if ended.code == 0:
            live = self.live(CONTEXTS[self.context])
            assert self._described() <= live.keys(), f"not there:\n{ended.text}"
            strange = {key for key in live.keys() - self._described() if self.namespace in key and key[0] not in KEPT}
            assert not strange, f"left over:\n{ended.text}"
        return ended

    def dry_run(self, engine: str) -> Ended:
        journals = str(self.site.folder / "journals")
        what = ("--environment", "dev", "--engine", engine, "--dry-run", "--journals", journals)
        process = self.site.launch("rollout", *what)
        out, err = process.communicate(timeout=1800)
        return Ended(process.returncode, out, err)

    def kill(self, engine: str, seconds: float) -> None:
        def killed() -> Ended:
            process = self.site.launch("up", "--cluster", self.context, "--stack", "dev-lab", "--engine", engine)
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
            return Ended(process.wait(), *process.communicate())

        self._held(self.context, killed)

    def down(self, context: str) -> Ended:
        return self._held(context, lambda: self._run("down", context), down=True)

    # ---- the promises ----

    def _held(self, context: str, do: Callable[[], Ended], *, down: bool = False) -> Ended:
        before = {name: self.live(name) for name in self.clusters.running}
        ended = do()
        after = {name: self.live(name) for name in self.clusters.running}
        named = CONTEXTS[context]
        where = f"{context}, by a definition of {self.context}, {self.namespace}:\n{ended.text}"
        for name in before:
            kept = {key: uid for key, uid in before[name].items() if name != named or key[0] in KEPT}
            if name == CONTEXTS[self.context] and not (down and context == self.context):
                kept |= {key: before[name][key] for key in self._described() & before[name].keys()}
            lost = {key for key, uid in kept.items() if after[name].get(key) != uid}
            assert not lost, f"{name} lost {sorted(lost)} in {where}"
            assert name == named or after[name] == before[name], where
        assert "Traceback" not in ended.text
        return ended

    def live(self, name: str) -> dict[Key, str]:
        """Return the uid of each of this sequence's objects in a cluster, except those that are being deleted."""
        found = self.clusters.running[name].get(KINDS, selector="app.kubernetes.io/part-of=tidegate")
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"]): item["metadata"]["uid"]
            for item in found
            if item["metadata"].get("namespace", item["metadata"]["name"]).startswith(self.prefix)
            and not item["metadata"].keys() & {"deletionTimestamp", "ownerReferences"}
        }

    def _described(self) -> set[Key]:
        return {
            (item["kind"], item["metadata"].get("namespace", ""), item["metadata"]["name"])
            for item in self.site.rendered("dev-lab").objects
        }

    def _run(self, command: Literal["up", "down"], context: str, *more: str) -> Ended:
        process = self.site.launch(command, "--cluster", context, "--stack", "dev-lab", *more)
        out, err = process.communicate(timeout=1800)
        return Ended(process.returncode, out, err)

    def end(self) -> None:
        self.site.end()
        for cluster in self.clusters.running.values():
            for kind in ("namespaces", "persistentvolumes"):
                names = [item["metadata"]["name"] for item in cluster.get(kind)]
                if ours := [name for name in names if name.startswith(self.prefix)]:
                    cluster.kubectl("delete", kind, *ours, "--wait=false")


@pytest.fixture
def sequence(clusters: Clusters, tmp_path: Path) -> Iterator[Sequence]:
    made = Sequence(clusters, tmp_path)
    yield made
    made.end()


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


# ---- former faults ----


@pytest.mark.thorough
def test_a_data_plane_in_another_cluster_stays_in_the_first_until_a_down(sequence: Sequence, engine: str) -> None:
    assert sequence.up(engine).code == 0
    sequence.edit(context="b")
    assert sequence.up(engine).code == 0
    ended = sequence.down("a")
    assert ended.code == 0, ended.text
    assert "Down in a: dev-lab." in ended.out
    assert {kind for kind, *_ in sequence.live("a")} == {"Namespace", "PersistentVolume", "PersistentVolumeClaim"}
    assert sequence.up(engine).code == 0
    assert sequence.down("b").code == 0


@pytest.mark.thorough
def test_a_context_that_gets_another_name_changes_nothing(sequence: Sequence, engine: str) -> None:
    assert sequence.up(engine).code == 0
    before = sequence.live("a")
    sequence.edit(context="renamed")
    ended = sequence.up(engine)
    assert ended.code == 0, ended.text
    assert sequence.live("a") == before
    assert sequence.down("a").code != 0, "no data plane has this context now"
    ended = sequence.down("renamed")
    assert ended.code == 0, ended.text


@pytest.mark.thorough
@pytest.mark.parametrize("engine", ["pulumi"])
def test_a_stack_gets_another_namespace_only_when_it_does_not_run(sequence: Sequence, engine: str) -> None:
    """An incomplete move by an older version, or by plain `pulumi up`, can be reverted."""
    assert sequence.up(engine).code == 0
    before = sequence.live("a")
    sequence.edit(namespace=f"{sequence.prefix}-two")
    ended = sequence.up(engine)
    assert ended.code == 1
    assert "Nothing was changed" in ended.err
    dry = sequence.dry_run(engine)
    assert dry.code == 1
    assert "Set the namespace back" in dry.err, "a dry run predicts what the run would do"
    assert sequence.live("a") == before
    plain = ["pulumi", "up", "--yes", "--skip-preview", "--stack", "dev-lab", "--non-interactive"]
    half = subprocess.run(plain, cwd=sequence.site.checkout, env={**os.environ, **sequence.site.environment},
                          capture_output=True, text=True, check=False)  # fmt: skip
    assert half.returncode != 0, half.stdout
    sequence.revert()
    ended = sequence.up(engine)
    assert ended.code == 0, ended.text
    assert sequence.live("a").keys() >= before.keys()
    assert sequence.down("a").code == 0
    sequence.edit(namespace=f"{sequence.prefix}-two")
    ended = sequence.up(engine)
    assert ended.code == 0, ended.text


# ---- any sequence ----


@pytest.mark.thorough
def test_no_sequence_loses_an_object_or_touches_a_cluster_that_is_not_named(
    clusters: Clusters, tmp_path: Path, engine: str
) -> None:
    """With Helm alone, and with both engines in turn if Pulumi is installed."""
    engines = st.sampled_from(sorted({"helm", engine}))

    class Machine(RuleBasedStateMachine):
        @initialize(engine=engines)
        def begin(self, engine: str) -> None:
            self.sequence = Sequence(clusters, tmp_path)
            assert self.sequence.up(engine).code == 0

        @rule(context=st.sampled_from(sorted(CONTEXTS)))
        def moves(self, context: str) -> None:
            self.sequence.edit(context=context)

        @rule(end=st.sampled_from(["dev", "two"]))
        def names_a_namespace(self, end: str) -> None:
            self.sequence.edit(namespace=f"{self.sequence.prefix}-{end}")

        @rule(extra=st.booleans())
        def has_another_pool(self, extra: bool) -> None:
            self.sequence.edit(extra=extra)

        @rule()
        def reverts(self) -> None:
            self.sequence.revert()

        @rule(engine=engines, adopt=st.booleans())
        def ups(self, engine: str, adopt: bool) -> None:
            self.sequence.up(engine, *(["--adopt"] if adopt else []))

        @rule(engine=engines, moment=st.integers(0, 99))
        def is_killed(self, engine: str, moment: int) -> None:
            self.sequence.kill(engine, 1 + random.Random(moment).random() * 15)

        @rule(context=st.sampled_from(sorted(CONTEXTS)))
        def downs(self, context: str) -> None:
            self.sequence.down(context)

        def teardown(self) -> None:
            if hasattr(self, "sequence"):
                self.sequence.end()

    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=4,
            stateful_step_count=10,
            deadline=None,
            phases=[Phase.generate],  # A run takes minutes, so hypothesis must not shrink it.
            suppress_health_check=[*HealthCheck],
        ),
    )
