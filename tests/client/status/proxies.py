"""Data planes whose proxies say what a test has them say."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tidegate_contracts import environments as facts

from lab.local_plane.process import free_ports
from tests.proxy.rigs.upstream import Caller, upstream


@contextmanager
def planes(folder: Path, acts: Mapping[str, Callable[[Caller], None] | None]) -> Iterator[None]:
    """Data planes of one environment whose proxies answer so, or do not run; `environments.json` knows them."""
    with ExitStack() as stack:
        made = []
        for wave, (name, act) in enumerate(acts.items()):
            url = f"127.0.0.1:{free_ports(1)[0]}"
            if act is not None:
                url = stack.enter_context(upstream(act)).http
            made.append(facts.Plane(name=name, wave=wave, proxy_url=f"http://{url}", servers=(), models=()))
        known = facts.Environments(environments=(facts.Environment(name="prod", planes=tuple(made)),))
        (folder / "environments.json").write_text(known.model_dump_json(by_alias=True))
        yield
