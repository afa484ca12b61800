# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven by its debugging protocol over two pipes; and a web server for a folder."""

import base64
import functools
import http.server
import json
import os
import select
import shutil
import signal
import subprocess
import tempfile
import threading
import time

SECONDS = 120


def program():
    return shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server:
    """Serves a folder on a port of the system's choice."""

    def __init__(self, folder):
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=str(folder)))
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


class Leaving(RuntimeError):
    """Raised if the browser leaves the page during a call."""


class Browser:
    """One tab. `problems` contains the exceptions and failed requests of its pages, `requests` all requested addresses."""

    def __init__(self):
        self.profile = tempfile.TemporaryDirectory(prefix="verbspp-chromium-", ignore_cleanup_errors=True)
        to_browser, from_us = os.pipe()
        from_browser, to_us = os.pipe()

        def place():
            # The protocol requires the pipes at descriptors 3 and 4.
            read, write = os.dup(to_browser), os.dup(to_us)
            os.dup2(read, 3)
            os.dup2(write, 4)

        self.process = subprocess.Popen(
            [program(), "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
             "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-extensions",
             f"--user-data-dir={self.profile.name}", "--remote-debugging-pipe", "about:blank"],
            preexec_fn=place, close_fds=False, start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(to_browser)
        os.close(to_us)
        self.write_to, self.read_from = from_us, from_browser
        self.buffer, self.number, self.session, self.problems, self.requests = b"", 0, None, [], []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Network"):
            self.call(f"{domain}.enable")
        # Disables transitions, so that tests read the final colours.
        self.call("Page.addScriptToEvaluateOnNewDocument", source="""addEventListener("DOMContentLoaded", () => {
          const style = document.createElement("style");
          style.textContent = "*, *::before, *::after { transition: none !important; animation: none !important; }";
          document.head?.append(style);
        });""")

    def close(self):
        os.close(self.write_to)
        os.close(self.read_from)
        try:
            os.killpg(self.process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.process.wait()
        self.profile.cleanup()

    def _next(self, deadline):
        while b"\0" not in self.buffer:
            ready, _, _ = select.select([self.read_from], [], [], max(0, deadline - time.monotonic()))
            data = os.read(self.read_from, 1 << 20) if ready else b""
            if not data:
                raise RuntimeError("the browser ended" if ready else "the browser does not answer")
            self.buffer += data
        message, self.buffer = self.buffer.split(b"\0", 1)
        message = json.loads(message)
        if message.get("method") == "Runtime.exceptionThrown":
            self.problems.append(json.dumps(message["params"]["exceptionDetails"])[:500])
        elif message.get("method") == "Network.requestWillBeSent":
            self.requests.append(message["params"]["request"]["url"])
        elif message.get("method") == "Network.responseReceived":
            response = message["params"]["response"]
            # Browsers request /favicon.ico if a page names no icon. It is not an error that this file is missing.
            if response["status"] >= 400 and not response["url"].endswith("/favicon.ico"):
                self.problems.append(f"{response['status']}: {response['url']}")
        return message

    def call(self, method, **params):
        self.number += 1
        request = {"id": self.number, "method": method, "params": params}
        if self.session:
            request["sessionId"] = self.session
        data = json.dumps(request).encode() + b"\0"
        while data:
            data = data[os.write(self.write_to, data):]
        deadline = time.monotonic() + SECONDS
        while True:
            message = self._next(deadline)
            if message.get("id") == self.number:
                if "error" in message:
                    reason = message["error"]["message"]
                    left = "navigated" in reason or "context" in reason
                    raise (Leaving if left else RuntimeError)(f"{method}: {reason}")
                return message["result"]

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(f"{expression}: {result['exceptionDetails']}")
        return result["result"].get("value")

    def wait_for(self, expression):
        """Waits until a JavaScript expression is true."""
        deadline = time.monotonic() + SECONDS
        while True:
            try:
                if self.evaluate(f"!!({expression})"):
                    return
            except Leaving:
                pass
            if time.monotonic() > deadline:
                raise RuntimeError(f"this stays false: {expression}")
            time.sleep(0.05)  # steady: the interval between checks is not critical: the condition ends the wait

    def click(self, expression):
        """Clicks on an element as soon as it exists. Returns before the browser follows the link, if it is one."""
        self.wait_for(expression)
        self.evaluate(f"setTimeout(() => {expression}.click()) && 0")

    def look(self, width, height, scheme):
        """Sets the size of the window, and whether the reader prefers "light" or "dark"."""
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600)
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def open(self, address):
        """Opens a page, without choices that an earlier page has stored."""
        origin = "/".join(address.split("/", 3)[:3])
        self.call("Storage.clearDataForOrigin", origin=origin, storageTypes="all")
        self.call("Page.navigate", url="about:blank")
        self.wait_for("location.href == 'about:blank' && document.readyState == 'complete'")
        self.call("Page.navigate", url=address)
        self.wait_for("location.href != 'about:blank' && document.readyState == 'complete'")

    def type(self, selector, text):
        """Enters a text into a field all at once, so that the page never shows results for a part of the text."""
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key="Shift")

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
