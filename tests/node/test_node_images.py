import stat

import pytest
from tidegate_contracts import eviction_process, proxy_process

from .environment import Environment
from .images import POLICY, PROXY, Product, built_image, contents


@pytest.mark.usefixtures("node")
@pytest.mark.parametrize(
    ("product", "command", "megabytes"),
    [
        (PROXY, ["python", "-m", proxy_process.MODULE], 100),
        (POLICY, ["python", "-m", eviction_process.MODULE, "serve"], 200),
    ],
    ids=["proxy", "eviction policy"],
)
def test_an_image_adds_its_package_to_its_base_and_nothing_of_how_it_was_built(
    product: Product, command: list[str], megabytes: int
) -> None:
    image = contents(built_image(product))
    assert image.names == [product.image]
    assert image.configuration["User"] == "1000:1000"
    assert image.configuration["Cmd"] == command
    assert not [setting for setting in image.configuration["Env"] if setting.startswith("PIP_")]
    assert f"/opt/tidegate/{product.package}/__main__.py" in image.added
    left = ("pip.conf", product.requirements.rpartition("/")[2])
    assert not [name for name in image.added if name.endswith(left)]
    assert not [name for name, file in image.added.items() if file.mode & (stat.S_ISUID | stat.S_ISGID | stat.S_IWOTH)]
    assert sum(file.size for file in image.added.values()) < megabytes << 20


@pytest.mark.parametrize(
    ("environment", "prefix", "container"),
    [("proxied", "inference-proxy", "proxy"), ("kept", "ondemand-main", "eviction-policy")],
    indirect=["environment"],
    ids=["proxy", "eviction policy"],
)
def test_an_image_holds_no_tool_that_installs_or_builds(environment: Environment, prefix: str, container: str) -> None:
    tools = "('pip', 'setuptools', 'wheel')"
    program = f"import importlib.util as u; print([n for n in {tools} if u.find_spec(n)])"
    pod = environment.pods(prefix)[0]["metadata"]["name"]
    assert environment.run(pod, container, "python", "-c", program, check=False).strip() == "[]"
