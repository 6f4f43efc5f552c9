"""Queries cyclonus about connections, and reads its verdicts."""

import json
import re
import subprocess
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from lab import tools

from .world import Object, Question


@dataclass(frozen=True)
class Answer:
    """The verdicts of the sender's policies and of the receiver's."""

    egress: bool
    ingress: bool

    @property
    def allowed(self) -> bool:
        return self.egress and self.ingress


def ask(policies: Iterable[Object], questions: Sequence[Question], folder: Path) -> list[Answer]:
    """Return an answer for each question, in a scratch folder."""
    place = folder / "policies"
    place.mkdir(parents=True)
    for number, policy in enumerate(policies):
        (place / f"{number}.yaml").write_text(json.dumps(policy))  # JSON is YAML
    traffic = folder / "traffic.json"
    traffic.write_text(json.dumps([question.traffic() for question in questions]))
    command: list[str | Path] = [tools.path("cyclonus"), "analyze", "--mode", "query-traffic"]
    command += ["--policy-path", place, "--traffic-path", traffic]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    answers = [_answer(text) for text in done.stdout.split("Is traffic allowed?\n")[1:]]
    assert len(answers) == len(questions), done.stdout[-2000:]
    return answers


def _answer(text: str) -> Answer:
    """Read one table: who allows and who denies, by direction, and what follows from both."""
    rows = re.findall(r"^\|\s*(Ingress|Egress|)\s*\|\s*(Allow|Deny|)\s*\|", text.partition("\n\n\n")[0], re.MULTILINE)
    verdicts: dict[str, set[str]] = {"Ingress": set(), "Egress": set()}
    direction = ""
    for first, second in rows:
        direction = first or direction
        if second:
            verdicts[direction].add(second)
    # At least one level allows it, or none denies it.
    open_ = {each: "Allow" in levels or "Deny" not in levels for each, levels in verdicts.items()}
    answer = Answer(open_["Egress"], open_["Ingress"])
    (verdict,) = re.findall(r"IS ALLOWED\?\s*\|\s*(TRUE|FALSE)", text.partition("\n\n\n")[0], re.IGNORECASE)
    assert answer.allowed == (verdict.upper() == "TRUE"), text
    return answer
