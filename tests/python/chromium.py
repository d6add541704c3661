"""Headless Chromium, driven by its DevTools protocol over a pipe: real widths, colour schemes and key presses.

One browser serves all pages of a test. Needs nothing but Python and Chromium.
"""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
SECONDS = 60  # for one command; a slow machine needs several for the first page


class Chromium:
    """A browser. `errors` has what pages wrote to the console as an error, threw, or were refused."""

    def __init__(self) -> None:
        self.profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs, self.write = os.pipe()
        self.read, ours = os.pipe()
        # Chromium reads descriptor 3 and writes descriptor 4.
        self.process = subprocess.Popen(
            ["/bin/sh", "-c", f'exec "$0" "$@" 3<&{theirs} 4>&{ours}', CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu",
             "--hide-scrollbars", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", "about:blank"],
            pass_fds=(theirs, ours), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(theirs)
        os.close(ours)
        self.buffer = b""
        self.number = 0
        self.session: str | None = None
        self.events: list[dict] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self) -> Chromium:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self.read)
        os.close(self.write)
        self.profile.cleanup()

    def message(self, end: float) -> dict:
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read], [], [], max(0, end - time.monotonic()))
            got = os.read(self.read, 1 << 20) if ready else b""
            if not got:
                raise TimeoutError("Chromium does not answer")
            self.buffer += got
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method: str, **params: object) -> dict:
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        os.write(self.write, json.dumps(request).encode() + b"\0")
        end = time.monotonic() + SECONDS
        while True:
            answer = self.message(end)
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def evaluate(self, script: str) -> object:
        """The value of a script that ends with an expression; a promise is awaited."""
        answer = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(json.dumps(answer["exceptionDetails"])[:2000])
        return answer["result"].get("value")

    def open(self, path: Path, width: int, height: int, dark: bool) -> None:
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 500)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}])
        self.events.clear()
        self.call("Page.navigate", url=path.as_uri())
        end = time.monotonic() + SECONDS
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self.message(end))

    def complaints(self) -> list[str]:
        """What the page wrote to the console, threw or fetched since it was opened."""
        self.evaluate("0")  # all earlier events have arrived then
        kinds = {"Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded"}
        said = [json.dumps(event["params"])[:500] for event in self.events if event.get("method") in kinds]
        urls = [event["params"]["request"]["url"] for event in self.events if event.get("method") == "Network.requestWillBeSent"]
        return said + [f"fetched {url}" for url in urls[1:]]

    def press(self, key: str, code: int) -> None:
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key, windowsVirtualKeyCode=code)

    def screenshot(self, path: Path, whole: bool = True) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole, **self.clip() if whole else {})
        path.write_bytes(base64.b64decode(shot["data"]))

    def clip(self) -> dict:
        size = self.evaluate("[document.documentElement.clientWidth, document.documentElement.scrollHeight]")
        return {"clip": {"x": 0, "y": 0, "width": size[0], "height": min(size[1], 16000), "scale": 1}}
