from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tidegate_contracts import environments as facts

from lab.local_plane.process import free_ports
from tests.proxy.http.upstream import Received, replying, running_upstream


@contextmanager
def planes(reply: Callable[[Any, Received], bytes], folder: Path, **answers: Any) -> Iterator[None]:
    """Return an environment's data planes in `environments.json`. Their proxies respond like this, or do not run."""
    with ExitStack() as stack:
        made = []
        for wave, (name, answer) in enumerate(answers.items()):
            url = f"127.0.0.1:{free_ports(1)[0]}"
            if answer is not None:
                url = stack.enter_context(running_upstream(replying(partial(reply, answer)))).http
            made.append(facts.Plane(name=name, wave=wave, proxy_url=f"http://{url}", servers=(), models=()))
        known = facts.Environments(environments=(facts.Environment(name="prod", planes=tuple(made)),))
        (folder / "environments.json").write_text(known.model_dump_json(by_alias=True))
        yield
