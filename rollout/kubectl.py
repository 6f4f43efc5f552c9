"""Runs kubectl against one cluster: every answer is checked, every refusal is explained."""

import json
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cache
from subprocess import CompletedProcess, TimeoutExpired
from threading import Thread
from typing import Any

from lab import tools
from stacks.command import CommandError

from . import processes
from .refusals import explained, in_words

KubernetesObject = dict[str, Any]
SECONDS = 60.0
"""How long the API server may take to answer."""


Kinds = dict[tuple[str, str], str]
"""The resource of each API version and kind, as `kubectl get` takes it."""
_asked_ahead: "dict[str, Future[Kinds]]" = {}


@dataclass(frozen=True)
class Kubectl:
    """A cluster, by its context in the user's kubeconfig."""

    context: str

    def run(
        self, *arguments: str, stdin: str | None = None, seconds: float = SECONDS, check: bool = True
    ) -> "CompletedProcess[str]":
        """Run a command; raise CommandError when it fails, unless `check` is off, or takes too long."""
        command = [_path(), "--context", self.context, f"--request-timeout={seconds:g}s", *arguments]
        try:
            # No aliases and defaults of the user's own count here.
            done = processes.run(command, stdin=stdin, seconds=seconds + 15, environment={"KUBERC": "off"})
        except TimeoutExpired:
            raise CommandError(f"the cluster {self.context} gave no answer within {seconds:g} seconds.") from None
        except OSError as error:
            raise CommandError(f"{command[0]} cannot be run: {error.strerror}.") from None
        if check and done.returncode:
            raise CommandError(self.why(done.stderr or done.stdout, arguments[0]))
        return done

    def why(self, said: str, doing: str) -> str:
        """Return why kubectl failed, and what to do where that is known."""
        return explained(said, self.context) or f"`kubectl {doing}` failed in {self.context}: {in_words(said)}"

    def get(self, kind: str, name: str, namespace: str = "") -> KubernetesObject | None:
        """Return one object, with its managed fields; None where there is none."""
        where = ["-n", namespace] if namespace else []
        return next(iter(self.find([kind], name, *where)), None)

    def find(self, kinds: Sequence[str], *arguments: str) -> list[KubernetesObject]:
        """Return the objects of some kinds, with their managed fields."""
        return self._get(",".join(kinds), *arguments)

    def like(self, objects: Iterable[KubernetesObject]) -> list[KubernetesObject]:
        """Return those of these objects that the cluster has, as it has them."""
        wanted = list(objects)
        return self._get("-f", "-", stdin=as_list(wanted)) if wanted else []

    def _get(self, *arguments: str, stdin: str | None = None) -> list[KubernetesObject]:
        how = ("--ignore-not-found", "--show-managed-fields", "-o", "json")
        out = self.run("get", *arguments, *how, stdin=stdin).stdout
        try:
            return items(json.loads(out)) if out.strip() else []
        except ValueError:
            raise CommandError("what `kubectl get` answers cannot be understood.") from None

    def ask_ahead(self) -> None:
        """Begin to ask for what the next call of `kinds` returns: the API server answers while a stack is rendered."""
        answer: Future[Kinds] = Future()

        def ask() -> None:
            try:
                answer.set_result(self._kinds())
            except CommandError as error:
                answer.set_exception(error)

        _asked_ahead[self.context] = answer
        Thread(target=ask, daemon=True).start()

    def kinds(self) -> Kinds:
        """Return what the API server knows."""
        ahead = _asked_ahead.pop(self.context, None)
        return self._kinds() if ahead is None else ahead.result()

    def _kinds(self) -> Kinds:
        found = {}
        for line in self.run("api-resources", "--no-headers", "--verbs=list,patch").stdout.splitlines():
            name, *_, version, _, kind = line.split()
            group, slash, _ = version.partition("/")
            found[version, kind] = f"{name}.{group}" if slash else name
        return found


def items(found: Any) -> list[KubernetesObject]:
    """Return the objects of an answer: of a list, or of one object."""
    return list(found["items"]) if found.get("kind") == "List" else [found]


def as_list(objects: Sequence[KubernetesObject]) -> str:
    """Return objects as one JSON document that kubectl takes."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})


@cache
def _path() -> str:
    try:
        return str(tools.path("kubectl"))
    except tools.ToolError as error:
        raise CommandError(f"kubectl is needed to talk to a cluster:\n{error}") from None
