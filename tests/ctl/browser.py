# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over a pipe with the DevTools protocol; needs nothing but Python."""
import json
import os
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
TIMEOUT_S = 60
KEYS = {"Enter": 13, "Tab": 9, "End": 35, "Home": 36, "ArrowUp": 38, "ArrowDown": 40, "PageDown": 34,
        "Escape": 27}


def find():
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page. complaints: what came to the console, was blocked or thrown. requests: URLs asked for."""

    def __init__(self, program):
        self.home = tempfile.mkdtemp(prefix="arena-browser-")
        to_read, self.write_fd = os.pipe()
        self.read_fd, to_write = os.pipe()
        # Chromium wants its two ends as 3 and 4.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{to_read} 4>&{to_write}', "sh", program, "--headless=new",
             "--no-sandbox", "--disable-gpu", "--no-first-run", "--hide-scrollbars", "--remote-debugging-pipe",
             f"--user-data-dir={self.home}", "about:blank"],
            pass_fds=(to_read, to_write), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        os.close(to_read)
        os.close(to_write)
        self.number, self.pending, self.events = 0, b"", []
        self.complaints, self.requests = [], []
        self.session = None
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.close(self.write_fd)
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.read_fd)
        shutil.rmtree(self.home, ignore_errors=True)

    def _message(self):
        while b"\0" not in self.pending:
            more = os.read(self.read_fd, 1 << 20)
            if not more:
                raise RuntimeError("the browser is gone")
            self.pending += more
        one, _, self.pending = self.pending.partition(b"\0")
        return json.loads(one)

    def _note(self, message):
        method, p = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            self.complaints.append(p["exceptionDetails"].get("exception", {}).get("description", "exception"))
        elif method == "Runtime.consoleAPICalled":
            self.complaints.append(f"console.{p['type']}: {[a.get('value') for a in p['args']]}")
        elif method == "Log.entryAdded":
            self.complaints.append(p["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(p["request"]["url"])
        self.events.append(method)

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        os.write(self.write_fd, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._message()
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']['message']}")
                return answer["result"]
            self._note(answer)

    def open(self, path):
        """Load a file. @return milliseconds until it was loaded and drawn."""
        self.complaints, self.requests, self.events = [], [], []
        begin = time.monotonic()
        self.call("Page.navigate", url="file://" + os.path.abspath(path))
        while "Page.loadEventFired" not in self.events:
            self._note(self._message())
        self.run("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return (time.monotonic() - begin) * 1e3

    def run(self, script):
        result = self.call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", script))
        return result["result"].get("value")

    def wait(self, script):
        """Until @script is true. @return milliseconds that it took."""
        begin = time.monotonic()
        while not self.run(script):
            if time.monotonic() - begin > TIMEOUT_S:
                raise TimeoutError(script)
            time.sleep(0.01)
        return (time.monotonic() - begin) * 1e3

    def press(self, key, shift=False):
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        common = {"key": key, "modifiers": 8 if shift else 0, "windowsVirtualKeyCode": KEYS.get(key, 0) or ord(key[0].upper())}
        self.call("Input.dispatchKeyEvent", type="keyDown", text=text, **common)
        self.call("Input.dispatchKeyEvent", type="keyUp", **common)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, kind="", scheme="light"):
        self.call("Emulation.setEmulatedMedia", media=kind,
                  features=[{"name": "prefers-color-scheme", "value": scheme}])

    def picture(self, path, full=False):
        import base64
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=full)
        with open(path, "wb") as file:
            file.write(base64.b64decode(shot["data"]))
