"""Helm, as the chart's commands use it."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from lab import tools

TIMEOUT_SECONDS = 120


def helm(arguments: Sequence[str | Path], folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run Helm, in a folder, without a cluster and anybody's settings; raises ToolError when it cannot be had."""
    # Its own folders may hold plug-ins, repositories and credentials: none of them has a say in what a chart is.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("HELM_")}
    environment |= {"KUBECONFIG": os.devnull, "HELM_PLUGINS": os.devnull, "HELM_REGISTRY_CONFIG": os.devnull}
    command = [str(tools.path("helm")), *map(str, arguments)]
    return subprocess.run(
        command,
        cwd=folder,
        capture_output=True,
        encoding="utf-8",
        errors="replace",
        env=environment,
        timeout=TIMEOUT_SECONDS,
        check=False,
    )
