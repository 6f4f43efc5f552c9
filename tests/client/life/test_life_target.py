from typing import Any

from tidegate.life.target import repositories, targets
from tidegate_contracts import environments as facts

MODEL = "fraud"


def plane(name: str, location: facts.Location, wave: int = 1, **model: Any) -> facts.Plane:
    pool = facts.PoolFacts(name="main", loading="preload", gpu=False, poll_seconds=1)
    server = facts.ServerFacts(name="preload", kind="triton", location=location, pools=(pool,))
    made = facts.ModelFacts.model_validate({"name": MODEL, "server": "preload", "pool": "main"} | model)
    return facts.Plane(name=name, wave=wave, proxy_url=f"http://{name}", servers=(server,), models=(made,))


def dataset(volume: str, path: str = "models") -> facts.DatasetLocation:
    return facts.DatasetLocation(dataset="models", path=path, volume=volume)


def known(*planes: facts.Plane, **others: tuple[facts.Plane, ...]) -> tuple[facts.Environment, facts.Environments]:
    prod, *rest = (facts.Environment(name=n, planes=p) for n, p in {"prod": planes, **others}.items())
    return prod, facts.Environments(environments=(prod, *rest))


def test_data_planes_that_read_one_volume_are_one_place_and_others_are_others() -> None:
    efs, bucket = dataset("efs"), facts.ObjectStoreLocation(url="s3://b/models")
    of, _ = known(
        plane("late", efs, wave=2), plane("west", dataset("other")), plane("east", dataset("efs", "/models/")),
        plane("far", bucket), plane("near", facts.ObjectStoreLocation(url="s3://b/models/")),
    )  # fmt: skip
    found = targets(of, MODEL)
    homes = [[home.plane.name for home in target.homes] for target in found]
    assert homes == [["west"], ["east", "late"], ["far", "near"]]
    assert [[home.plane.name for home in each] for each in repositories(of).values()] == homes


def test_an_alias_is_the_definitions() -> None:
    of, _ = known(plane("east", dataset("a"), alias="champion"), plane("west", dataset("a")))
    (target,) = targets(of, MODEL)
    assert target.aliases == {"champion"}
    assert [home.follows for home in target.homes] == ["alias", "newest"]
    assert target.newest
