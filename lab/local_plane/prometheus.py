"""A real Prometheus from Debian's package, on loopback."""

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

NAMESPACE = "inference"  # The default namespace of its targets.
DATA = "data"  # The directory of its samples.
TARGETS = "targets"  # The directory of its targets.


@dataclass(frozen=True)
class Prometheus:
    """A running Prometheus."""

    process: Process
    port: int
    folder: Path
    namespace: str

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def ask(self, path: str, **fields: Any) -> Any:
        """Return the data of its API at a path such as `query`. Raises ProcessError if it refuses."""
        answer = urllib3.request("GET", f"{self.url}/api/v1/{path}", fields=fields, timeout=60.0).json()
        if answer["status"] != "success":
            raise ProcessError(f"Prometheus does not answer {path} with {fields}: {answer.get('error')}")
        return answer["data"]

    def scrape(self, pods: Mapping[str, str]) -> None:
        """Scrape only these pods from now on, by host and port."""
        write_targets(self.folder, pods, self.namespace)


def counted(address: str, *series: str, **labels: str) -> float:
    """Return the sum of these series with these labels, from the metrics at a host and port."""
    text = urllib3.request("GET", f"http://{address}/metrics").data.decode()
    samples = (each for family in text_string_to_metric_families(text) for each in family.samples)
    return sum(each.value for each in samples if each.name in series and labels.items() <= each.labels.items())


def write_targets(folder: Path, pods: Mapping[str, str], namespace: str) -> None:
    """Write the targets of a Prometheus. It reads the file when it changes."""
    targets = [{"targets": [address], "labels": {"namespace": namespace, "pod": pod}} for address, pod in pods.items()]
    replace_file(folder / TARGETS / "pods.json", json.dumps(targets))


@cache
def installed() -> debian.Unpacked:
    """Return the package with `prometheus` and `promtool`, downloaded if necessary. Raises CannotBeHadError."""
    return had("Prometheus", debian.unpacked, "prometheus")


@contextmanager
def prometheus(
    folder: Path,
    pods: Mapping[str, str] | None = None,
    namespace: str = NAMESPACE,
    options: Sequence[str] = (),
    rules: Sequence[Mapping[str, Any]] = (),
) -> Iterator[Prometheus]:
    """Run a Prometheus in a directory, at a free port, until the block ends. Every second it scrapes `pods` (pods by
    host and port), and evaluates `rules`. Series have a pod's name and namespace, as those of a PodMonitor."""
    program = installed()
    (folder / TARGETS).mkdir(parents=True, exist_ok=True)
    write_targets(folder, pods or {}, namespace)
    (folder / "rules.yml").write_text(json.dumps({"groups": [{"name": "rules", "rules": list(rules)}]}), "utf-8")
    settings = folder / "prometheus.yml"  # JSON is YAML.
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
