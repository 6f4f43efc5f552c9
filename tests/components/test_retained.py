"""Objects that hold data stay when they are no longer rendered, whichever tool applies them."""

from pathlib import Path

import pytest
import yaml

from .expected import FOLDER

RETAINED = {
    "helm.sh/resource-policy": "keep",
    "argocd.argoproj.io/sync-options": "Prune=false,Delete=false",
    "kustomize.toolkit.fluxcd.io/prune": "disabled",
}


@pytest.mark.parametrize("file", sorted(FOLDER.glob("*.yaml")), ids=lambda file: file.stem)
def test_helm_argo_cd_and_flux_keep_namespaces_volumes_and_claims_and_nothing_else(file: Path) -> None:
    for item in yaml.safe_load_all(file.read_text("utf-8")):
        annotations = item["metadata"].get("annotations", {})
        holds_data = item["kind"] in ("Namespace", "PersistentVolume", "PersistentVolumeClaim")
        found = {key: value for key, value in annotations.items() if key in RETAINED}
        assert found == (RETAINED if holds_data else {}), item["metadata"]["name"]
