"""One run at a time: a Lease in the environment's namespace, held while an engine that has no lock of its own works."""

import getpass
import json
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from subprocess import CompletedProcess

from stacks.command import CommandError
from stacks.problems import escaped

from ..kubectl import Kubectl, KubernetesObject, as_list
from ..terminal import note

NAME = "tidegate-up"
SECONDS = 30  # A holder that has not renewed its Lease for so long counts as dead.
_RENEWED_EVERY = 8.0
_ASKED_AGAIN_AFTER = 1.0  # Without an answer of the API server.
_LONGEST_WAIT = 3600.0
_TOKEN = re.compile(r" \(([0-9a-f]{32})\)$")


@dataclass
class RolloutLease:
    """Whether a run still has its Lease: another one may have taken it for dead."""

    namespace: str
    lost: str = ""  # The holder that has it now, when it is lost.
    version: str = ""  # What this run has written last.
    identity: str = field(default_factory=lambda: f"{_user()}@{socket.gethostname()}, process {os.getpid()}")
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    """Identifies this run among all runs on all machines, whatever their hosts and processes are called."""
    failures: list[str] = field(default_factory=list)  # Reasons already shown why the Lease could not be written.

    def ensure_held(self) -> None:
        """Raise CommandError when the Lease is lost: two runs at once would undo each other's work."""
        if self.lost:
            raise CommandError(
                f"{_words(self.lost)} has taken over the work in {self.namespace}, because this run did not renew its"
                f" Lease for {SECONDS} seconds. This run was stopped, and the other one finishes the work."
            )


@contextmanager
def acquire_lease(kube: Kubectl, namespace: str) -> Iterator[RolloutLease]:
    """Hold the Lease of a namespace; wait while another run holds it, and take it over from one that is dead.

    A holder is dead if it does not renew the Lease.
    """
    hold = RolloutLease(namespace)
    if not _acquired(kube, hold):
        yield hold
        return
    over = threading.Event()
    renewing = threading.Thread(target=_renew, args=(kube, hold, over), daemon=True)
    renewing.start()
    try:
        yield hold
    finally:
        over.set()
        renewing.join()
        lease = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{NAME}"
        as_written = json.dumps({"preconditions": {"resourceVersion": hold.version}})  # nobody took us for dead since
        with _noted(hold):
            done = kube.run("delete", "--raw", lease, "-f", "-", stdin=as_written, check=False)
            if done.returncode and "Conflict" not in done.stderr and "NotFound" not in done.stderr:
                raise CommandError(kube.why(done.stderr, "delete"))


@contextmanager
def _noted(hold: RolloutLease) -> Iterator[None]:
    """Show, once, that the Lease cannot be renewed or given back: it may be a right that is missing."""
    try:
        yield
    except CommandError as error:
        if str(error) not in hold.failures:
            hold.failures.append(str(error))
            note(f"the Lease in {hold.namespace}: {error}")


def _acquired(kube: Kubectl, hold: RolloutLease) -> bool:
    """Wait for the Lease; return False where Leases may not be made, and one has to do without."""
    namespace, end, said = hold.namespace, time.monotonic() + _LONGEST_WAIT, ""
    seen: dict[str, float] = {}
    lease: KubernetesObject | None = None  # as it mostly is: asked for only when it cannot be made
    while True:
        holder = _holder(lease)
        # Clocks differ between machines: what counts is how long we ourselves have seen no sign of life.
        renewed = str((lease["metadata"] if lease else {}).get("resourceVersion"))
        fresh = time.monotonic() - seen.setdefault(renewed, time.monotonic()) < SECONDS
        if lease is None or not fresh:
            answer = _written(kube, hold, lease)
            if answer.returncode == 0:
                return True
            if "cannot create" in answer.stderr or "cannot update" in answer.stderr:
                note(f"no Lease may be written in {namespace}: nothing stops another run from working there too.")
                return False
            # Somebody else was faster, with a Lease of their own or with giving theirs up; or there is no namespace.
            faster = ("AlreadyExists", "Conflict") if lease is None else ("Conflict", "NotFound")
            if not any(word in answer.stderr for word in faster):
                raise CommandError(kube.why(answer.stderr, "create"))
        else:
            at_work = f"{_words(holder)} is at work in {namespace}"
            if time.monotonic() > end:
                raise CommandError(f"{at_work} since an hour at least; run this again later.")
            if said != at_work:
                said = at_work
                note(f"waiting: {at_work} …")
            time.sleep(1)
        lease = kube.get("lease", NAME, namespace)


def _holder(lease: KubernetesObject | None) -> str:
    return str(lease["spec"].get("holderIdentity", "")) if lease else ""


def _written(kube: Kubectl, hold: RolloutLease, before: KubernetesObject | None) -> "CompletedProcess[str]":
    """Make the Lease, or make it ours if it is still as it was seen, and return what the API server says."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    seen = {} if before is None else {"resourceVersion": before["metadata"]["resourceVersion"]}
    lease = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": NAME, "namespace": hold.namespace, **seen},
        "spec": {"holderIdentity": _named(hold), "leaseDurationSeconds": SECONDS, "acquireTime": now, "renewTime": now},
    }
    verb, version = "create" if before is None else "replace", "jsonpath={.metadata.resourceVersion}"
    answer = kube.run(verb, "--validate=false", "-o", version, "-f", "-", stdin=as_list([lease]), check=False)
    hold.version = answer.stdout or hold.version
    return answer


def _renew(kube: Kubectl, hold: RolloutLease, over: threading.Event) -> None:
    """Give signs of life, and note when somebody else has the Lease. One that was deleted is made anew."""
    pause = _RENEWED_EVERY
    while not over.wait(pause) and not hold.lost:
        pause = _ASKED_AGAIN_AFTER
        with _noted(hold):
            lease = kube.get("lease", NAME, hold.namespace)
            if lease is not None and _holder(lease) != _named(hold):
                hold.lost = _holder(lease) or "another run"
            elif (answer := _written(kube, hold, lease)).returncode == 0:
                pause = _RENEWED_EVERY
            elif "Conflict" not in answer.stderr and "AlreadyExists" not in answer.stderr:
                raise CommandError(kube.why(answer.stderr, "renew"))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return str(os.getuid())


def _named(hold: RolloutLease) -> str:
    return f"{hold.identity} ({hold.token})"


def _words(holder: str) -> str:
    """Return a holder without its token, for people."""
    return escaped(_TOKEN.sub("", holder))
