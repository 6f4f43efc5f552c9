"""Datasets: read-only, kept, and production's own."""

from typing import Any

import pytest

from policies.guardrails import check_all

from .stacks import SMALL, TODAY, Edit, Objects, both, dev, pod, prod, setting, settings

READ_ONLY, RETAINED = "datasets-are-mounted-read-only", "volumes-are-retained"
SHARED = "production-shares-nothing-that-others-may-write"
STATEFUL_SET, VOLUME = f"StatefulSet/{SMALL}", "PersistentVolume/inference-prod-models"


# ---- production and others: rules that look at several environments ----


def store(**source: Any) -> Edit:
    """Let the dataset of an environment be another volume."""

    def edit(objects: Objects) -> None:
        (volume,) = (item for item in objects if item["kind"] == "PersistentVolume")
        for key in ("csi", "nfs"):
            volume["spec"].pop(key, None)
        volume["spec"].update(source)

    return edit


def folder(path: str | None) -> Edit:
    """Let all pods mount this folder of the dataset."""

    def edit(objects: Objects) -> None:
        for workload in (item for item in objects if item["kind"] == "StatefulSet"):
            spec = workload["spec"]["template"]["spec"]
            for one in [*spec.get("initContainers", []), *spec["containers"]]:
                for mount in one["volumeMounts"]:
                    if mount["name"] == "models":
                        mount["subPath"] = path

    return edit


def bucket(url: str) -> Edit:
    """Let one server read a bucket."""

    def edit(objects: Objects) -> None:
        arguments = pod(objects, SMALL)["containers"][0]["args"]
        arguments[:] = [word for word in arguments if not word.startswith("--model-repository")]
        arguments.append(f"--model-repository={url}")

    return edit


def efs(handle: str) -> Edit:
    return store(csi={"driver": "efs.csi.aws.com", "volumeHandle": handle})


def nfs(path: str, server: str = "nfs.example.com") -> Edit:
    return store(nfs={"server": server, "path": path})


def attributes(handle: str, **volume_attributes: str) -> Edit:
    return store(csi={"driver": "s3.csi", "volumeHandle": handle, "volumeAttributes": volume_attributes})


def mounted(*options: str) -> Edit:
    """Let a volume be one bucket, mounted with options."""
    source = {"driver": "s3.csi", "volumeHandle": "any", "volumeAttributes": {"bucketName": "b"}}
    return both(store(csi=source, mountOptions=list(options)), folder(None))


def shared(ours: Edit, theirs: Edit, written: list[str] | None) -> list[str]:
    production, others = prod(), dev()
    ours(production)
    theirs(others)
    settings(others, written=written)
    found = check_all({"prod": production, "dev": others}, TODAY)
    assert found["dev"] == []
    assert {each.rule for each in found["prod"]} <= {SHARED}
    return [each.what for each in found["prod"]]


OVERLAPPING = (
    (both(efs("fs-1"), folder("filecache/a/models")), both(efs("fs-1"), folder("filecache/a"))),
    (efs("fs-1::fsap-1"), efs("fs-1")),  # the root holds every access point
    (both(nfs("/exports"), folder(None)), both(nfs("/exports/dev"), folder(None))),
    (both(attributes("a", bucket="b"), folder(None)), both(attributes("c", bucket="b"), folder("d"))),
    (both(attributes("a", bucket="b"), folder(None)), both(attributes("a", bucket="c"), folder(None))),
    (mounted("allow-other", "prefix prod/"), mounted("allow-other")),
    (mounted("only-dir=models/prod"), mounted("only-dir=models")),
)
APART = (
    (both(efs("fs-1"), folder("filecache/a")), both(efs("fs-1"), folder("filecache/ab"))),
    (efs("fs-1::fsap-1"), efs("fs-1::fsap-2")),
    (both(nfs("/exports/prod"), folder(None)), both(nfs("/exports/dev"), folder(None))),
    (both(attributes("a", bucket="b"), folder(None)), both(attributes("c", bucket="d"), folder(None))),
    (mounted("prefix prod/"), mounted("prefix dev/")),
    (mounted("--only-dir=models/prod"), mounted("--only-dir=models/dev")),
)


@pytest.mark.parametrize(("ours", "theirs"), OVERLAPPING)
def test_production_may_not_serve_what_others_may_write(ours: Edit, theirs: Edit) -> None:
    assert shared(ours, theirs, ["models"]) == ["models shares its files with models of dev, which others may write"]


@pytest.mark.parametrize(("ours", "theirs"), APART)
def test_production_may_serve_what_lies_apart_from_what_others_write(ours: Edit, theirs: Edit) -> None:
    assert shared(ours, theirs, ["models"]) == []


@pytest.mark.parametrize("written", [None, ["another-dataset"]])
def test_production_may_not_serve_what_others_serve_too_where_nobody_says_who_writes_it(
    written: list[str] | None,
) -> None:
    said = "models shares its files with models of dev, and writers does not name who may write there"
    for ours, theirs in OVERLAPPING:
        assert shared(both(ours, setting(written=None)), theirs, written) == [said]


def test_others_may_read_what_production_says_that_only_its_own_deployers_write() -> None:
    folder_of_both = both(nfs("/exports"), folder("models"))
    assert shared(both(folder_of_both, setting(written=["models"])), folder_of_both, None) == []
    below = both(nfs("/exports"), folder("models/dev"))
    assert len(shared(both(folder_of_both, setting(written=["models"])), below, None)) == 1, "a folder of its own"


@pytest.mark.parametrize(
    ("ours", "theirs", "found"),
    [
        ("s3://models/prod", "s3://models", True),
        ("s3://models/prod", "s3://models/production", False),
        ("s3://models/prod", "gs://models/prod", False),
        ("s3://models/prod/", "s3://models/", True),  # the same as without a slash at its end
    ],
)
def test_buckets_are_folders_too(ours: str, theirs: str, found: bool) -> None:
    named_ours, named_theirs = ours.rstrip("/"), theirs.rstrip("/")
    said = shared(bucket(ours), bucket(theirs), [named_theirs])
    assert said == [f"{named_ours} shares its files with {named_theirs} of dev, which others may write"] * found


def test_two_environments_of_one_stack_are_looked_at_together() -> None:
    """A program of one's own may have both in one Pulumi stack."""
    production, others = prod(), dev()
    for objects in (production, others):
        OVERLAPPING[0][0](objects)
    (found,) = check_all({"all": [*production, *others]}, TODAY)["all"]
    assert (found.rule, found.object) == (SHARED, VOLUME)
    assert "models of all" in found.what


def test_production_may_share_with_production_what_its_own_people_write() -> None:
    east, west = prod(), prod()
    for objects in (east, west):
        settings(objects, written=["models"])
    assert check_all({"prod-east": east, "prod-west": west}, TODAY) == {"prod-east": [], "prod-west": []}
