"""A real Prometheus, of Debian's package, on loopback."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import urllib3
from prometheus_client.parser import text_string_to_metric_families

from lab.tools import debian

from .process import HOST, Process, ProcessError, answers, free_ports, had, replace_file, running

NAMESPACE = "inference"  # That of what is scraped, where nobody says otherwise.
DATA = "data"  # The folder below its own where its samples are.
TARGETS = "targets"  # That where it is told what to scrape.


@dataclass(frozen=True)
class Prometheus:
    """A Prometheus that runs."""

    process: Process
    port: int
    folder: Path
    namespace: str

    @property
    def url(self) -> str:
        """Address of its API."""
        return f"http://{HOST}:{self.port}"

    def ask(self, path: str, **said: Any) -> Any:
        """Return the data that its API answers, at a path such as `query`; raises ProcessError where it refuses."""
        answer = urllib3.request("GET", f"{self.url}/api/v1/{path}", fields=said, timeout=60.0).json()
        if answer["status"] != "success":
            raise ProcessError(f"Prometheus does not answer {path} with {said}: {answer.get('error')}")
        return answer["data"]

    def scrape(self, pods: Mapping[str, str]) -> None:
        """Have it scrape these pods from now on, and no others: host and port, and the pod that they belong to."""
        write_targets(self.folder, pods, self.namespace)


def counted(address: str, *series: str, **labels: str) -> float:
    """Return what a process tells at a host and port: the sum of these series, over all that have these labels."""
    text = urllib3.request("GET", f"http://{address}/metrics").data.decode()
    samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
    return sum(each.value for each in samples if each.name in series and labels.items() <= each.labels.items())


def write_targets(folder: Path, pods: Mapping[str, str], namespace: str) -> None:
    """Write what a Prometheus with its files in a folder scrapes; it looks at the file when that changes."""
    targets = [{"targets": [address], "labels": {"namespace": namespace, "pod": pod}} for address, pod in pods.items()]
    replace_file(folder / TARGETS / "pods.json", json.dumps(targets))


@cache
def installed() -> debian.Unpacked:
    """Return the package with `prometheus` and `promtool`, fetched first when needed; raises CannotBeHadError."""
    return had("Prometheus", debian.unpacked, "prometheus")


@contextmanager
def prometheus(
    folder: Path,
    pods: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
    options: Sequence[str] = (),
    rules: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Prometheus]:
    """Run a Prometheus with its data in a folder, at a free port; it is ready, and it ends with the block.

    `pods` are what it scrapes every second: host and port, and the pod that they belong to. Series have its
    name and namespace, as those of a PodMonitor have. `rules` are evaluated as often.
    """
    program = installed()
    (folder / TARGETS).mkdir(parents=True, exist_ok=True)
    write_targets(folder, pods or {}, namespace)
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "rules", "rules": list(rules)}]}), "utf-8")
    settings = folder / "prometheus.yml"  # JSON is YAML
    settings.write_text(
        json.dumps(
            {
                "global": dict.fromkeys(("scrape_interval", "scrape_timeout", "evaluation_interval"), "1s"),
                "rule_files": ["rules.yml"],
                "scrape_configs": [{"job_name": "pods", "file_sd_configs": [{"files": [f"{TARGETS}/*.json"]}]}],
            }
        ),
        "utf-8",
    )
    (port,) = free_ports(1)
    command: list[str | Path] = [program.path("prometheus"), f"--web.listen-address={HOST}:{port}", *options]
    command += [
        f"--config.file={settings}",
        f"--storage.tsdb.path={folder / DATA}",
        "--storage.tsdb.retention.time=10y",
    ]
    with running("Prometheus", command, folder / "prometheus.log", os.environ | program.environment()) as process:
        process.wait_until(lambda: answers(port, "/-/ready"))
        yield Prometheus(process, port, folder, namespace)
