"""Headless Chromium through the DevTools protocol over a pipe: what a test needs of it and no more."""
import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


def find():
    """Path of a browser that runs, or None. Some distributions have a script of that name which only
    says where to get it."""
    for path in filter(None, map(shutil.which, _NAMES)):
        said = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60)
        if said.returncode == 0 and "Chrom" in said.stdout:
            return path
    return None


class Browser:
    """One page. Everything that it says on its console, throws or asks the network for is kept."""

    def __init__(self, path, width=1366, height=768):
        self.problems, self.requests, self._next, self._bytes, self._events = [], [], 0, b"", []
        self._profile = tempfile.TemporaryDirectory(prefix="gpuflight-browser-", ignore_cleanup_errors=True)
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()

        def pipes():  # the browser reads from 3 and writes to 4
            a, b = os.dup(from_us), os.dup(to_us)
            os.dup2(a, 3)
            os.dup2(b, 4)

        self._process = subprocess.Popen(
            [path, "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
             "--disable-background-networking", "--disable-component-update", "--force-device-scale-factor=1",
             f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}", "--remote-debugging-pipe",
             "about:blank"],
            preexec_fn=pipes, pass_fds=(3, 4), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=dict(os.environ, HOME=self._profile.name))
        os.close(from_us)
        os.close(to_us)
        self._in, self._out, self._session = to_browser, from_browser, None
        target = next(t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page")
        self._session = self.call("Target.attachToTarget", targetId=target["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")
        self.resize(width, height)

    def close(self):
        try:
            self._session = None
            self.call("Browser.close", timeout=10)
        except (RuntimeError, OSError):
            pass
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def _message(self, until):
        while b"\0" not in self._bytes:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self._out], [], [], left)[0]:
                raise RuntimeError("the browser does not answer")
            more = os.read(self._out, 1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self._bytes += more
        text, _, self._bytes = self._bytes.partition(b"\0")
        return json.loads(text)

    def _note(self, message):
        method, what = message.get("method"), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.problems.append(what["exceptionDetails"].get("exception", {}).get("description", str(what)))
        if method == "Runtime.consoleAPICalled":
            self.problems.append(f"console.{what['type']}: {[a.get('value') for a in what['args']]}")
        if method == "Log.entryAdded":
            self.problems.append(f"{what['entry']['level']}: {what['entry']['text']}")
        if method == "Page.javascriptDialogOpening":
            self.problems.append("a dialog: " + what["message"])
        if method == "Network.requestWillBeSent":
            self.requests.append(what["request"]["url"])

    def call(self, method, timeout=60, **parameters):
        self._next += 1
        message = {"id": self._next, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._in, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + timeout
        while True:
            answer = self._message(until)
            if answer.get("id") != self._next:
                self._note(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']}")
            return answer["result"]

    def run(self, script):
        """The value of an expression in the page; a promise is waited for."""
        result = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{script}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def open(self, path):
        self.requests.clear()
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        until = time.monotonic() + 60
        while "Page.loadEventFired" not in self._events:
            self._note(self._message(until))
        self.settle()

    def settle(self):
        """Two frames on, so that what was asked for is drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def resize(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def key(self, key):
        for kind in ("keyDown", "keyUp"):
            text = {"text": key} if len(key) == 1 and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, **text)
        self.settle()

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)
        self.settle()

    def screenshot(self, path, **clip):
        parameters = {"format": "png"}
        if clip:
            parameters.update(clip=dict(clip, scale=1), captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", **parameters)["data"]))
