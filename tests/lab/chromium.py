"""A real browser without a screen: Debian's Chromium, driven over its DevTools protocol on loopback."""

import base64
import json
import os
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

import aiohttp

from lab.local_plane.process import had, running
from lab.tools import debian

_LISTENING = re.compile(r"DevTools listening on ws://(\S+?)/")
_ANSWER_SECONDS = 30.0


@contextmanager
def chromium(folder: Path) -> Iterator[str]:
    """Run a Chromium with its profile in a folder; yield host and port of its DevTools, which end with the block."""
    package = had("Chromium", debian.unpacked, "chromium", "fonts-dejavu-core")
    program = package.root / "usr/lib/chromium/chromium"
    folder.mkdir(parents=True, exist_ok=True)
    fonts = folder / "fonts.conf"
    fonts.write_text(
        f'<?xml version="1.0"?><fontconfig><dir>{package.root}/usr/share/fonts</dir><dir>/usr/share/fonts</dir>'
        f"<cachedir>{folder}/fonts</cachedir></fontconfig>",
        "utf-8",
    )
    log = folder / "chromium.log"
    command: list[str | Path] = [
        program, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        "--disable-background-networking", "--disable-component-update", "--remote-debugging-port=0",
        f"--user-data-dir={folder / 'profile'}", "about:blank",
    ]  # fmt: skip
    environment = package.environment() | {"FONTCONFIG_FILE": str(fonts), "HOME": str(folder)}
    # A library that Chromium's own libraries load by a path of theirs, which begins at the root folder.
    pulse = {str(file.parent) for file in package.root.rglob("libpulsecommon-*.so")}
    environment["LD_LIBRARY_PATH"] = os.pathsep.join([*pulse, environment["LD_LIBRARY_PATH"]])
    with running("Chromium", command, log, environment) as process:
        process.wait_until(lambda: bool(_LISTENING.search(log.read_text("utf-8", "replace"))))
        found = _LISTENING.search(log.read_text("utf-8", "replace"))
        assert found is not None
        yield found[1]


class Tab:
    """One page of a browser, of a width and height in pixels, light or dark."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._number = 0
        self._http: aiohttp.ClientSession
        self._socket: aiohttp.ClientWebSocketResponse
        self.errors: list[str] = []  # What its scripts threw, and what it could not load.

    async def __aenter__(self) -> Self:
        """Open it."""
        self._http = aiohttp.ClientSession()
        async with self._http.put(f"http://{self._address}/json/new?about:blank") as answer:
            url = (await answer.json(content_type=None))["webSocketDebuggerUrl"]
        self._socket = await self._http.ws_connect(url, max_msg_size=0)
        for domain in ("Page", "Runtime", "Log", "Network"):
            await self.do(f"{domain}.enable")
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        await self._socket.close()
        await self._http.close()

    async def do(self, method: str, **said: Any) -> dict[str, Any]:
        """Give an order of the DevTools protocol, and return its result; raises RuntimeError."""
        self._number += 1
        await self._socket.send_str(json.dumps({"id": self._number, "method": method, "params": said}))
        while True:
            told = json.loads((await self._socket.receive(timeout=_ANSWER_SECONDS)).data)
            if told.get("method") in ("Runtime.exceptionThrown", "Log.entryAdded"):
                self.errors.append(json.dumps(told["params"])[:500])
            if told.get("id") == self._number:
                if "error" in told:
                    raise RuntimeError(f"{method}: {told['error']}")
                found: dict[str, Any] = told["result"]
                return found

    async def look(self, url: str, width: int, height: int, *, dark: bool = False) -> None:
        """Open an address, in a window of this size."""
        await self.do(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.do("Emulation.setEmulatedMedia", features=[scheme])
        await self.do("Page.navigate", url=url)

    async def read(self, expression: str) -> Any:
        """Return what an expression of JavaScript gives, awaited; raises RuntimeError."""
        told = await self.do("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in told:
            raise RuntimeError(json.dumps(told["exceptionDetails"])[:500])
        return told["result"].get("value")

    async def until(self, expression: str, seconds: float = 20.0) -> None:
        """Wait until an expression is true; raises TimeoutError."""
        end = time.monotonic() + seconds
        while not await self.read(expression):
            if time.monotonic() > end:
                raise TimeoutError(f"it did not come to {expression}")

    async def picture(self, file: Path) -> None:
        """Write what is seen as a PNG file."""
        told = await self.do("Page.captureScreenshot", format="png")
        file.write_bytes(base64.b64decode(told["data"]))
