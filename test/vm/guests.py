# SPDX-License-Identifier: Apache-2.0
"""Two virtual machines with two networks between them, for programs that run commands in both.

with twins(folder) as (first, second):
    server = second.start("ib_send_bw", "-d", "rxe0", "-p", "4711")
    second.await_listener(4711)
    first.run("ib_send_bw", "-d", "rxe0", "-p", "4711", second.address(0))
    server.finish()

test/vm/with-rxe describes their devices and addresses.
"""

import contextlib
import json
import pathlib
import shlex
import signal
import socket
import subprocess
import tempfile
import threading
import time

BOOT_DEADLINE = 120  # seconds, for two emulated machines on a busy host
DEADLINE = 120  # seconds, for a command


class Failure(Exception):
    """A failure of a guest or of a command in it."""


class Command:
    """A command that a guest runs."""

    def __init__(self, guest, identity, words):
        self.guest = guest
        self.identity = identity
        self.words = words
        self.output = ""
        self.status = None  # while it runs

    def __str__(self):
        return f"{shlex.join(self.words)} (guest {self.guest.number})"

    def failure(self, what):
        return Failure(f"{self} {what}; it printed:\n{self.output}")

    def await_output(self, text, deadline=DEADLINE):
        """Waits until the command has printed the text."""
        if not self.guest.wait_for(lambda: text in self.output or self.status is not None, deadline):
            raise self.failure(f"did not print {text!r} within {deadline} s")
        if text not in self.output:
            raise self.failure(f"ended before it printed {text!r}")

    def finish(self, deadline=DEADLINE, expected=0):
        """Waits until the command ends, checks its status, and returns its output."""
        if not self.guest.wait_for(lambda: self.status is not None, deadline):
            self.kill()
            raise self.failure(f"did not end within {deadline} s")
        if self.status != expected:
            raise self.failure(f"ended with status {self.status}")
        return self.output

    def kill(self):
        """Kills the command, unless it has ended."""
        if self.status is None:
            self.guest.say(signal=signal.SIGKILL, to=self.identity)
            with contextlib.suppress(Failure):  # the death of a guest was reported before
                self.guest.wait_for(lambda: self.status is not None, DEADLINE)


class Guest:
    """One of the two guests. It is ready for commands after `await_boot`."""

    def __init__(self, number, folder, wires):
        self.number = number
        self.changed = threading.Condition()
        self.commands = {}
        self.is_here = False
        self.is_gone = False
        self.wires = wires
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(wires / f"control.{number}"))
            listener.listen()
            listener.settimeout(BOOT_DEADLINE)
            share = folder / f"guest{number}"
            self.emulator = subprocess.Popen(
                ["test/vm/boot", "--twin", str(number), str(wires), str(share)]
                + ["test/vm/with-rxe", "--twin", str(number), "test/vm/agent"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
            self.console = share / "console.log"
            try:
                self.control, _ = listener.accept()
            except OSError as problem:
                self.emulator.terminate()
                raise Failure(f"guest {number} was not started: {problem}") from problem
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        try:
            for line in self.control.makefile("rb"):
                said = json.loads(line)
                with self.changed:
                    if "here" in said:
                        self.is_here = True
                    elif "output" in said:
                        self.commands[said["of"]].output += said["output"]
                    else:
                        self.commands[said["of"]].status = said["status"]
                    self.changed.notify_all()
        except OSError:
            pass  # the emulator has exited
        with self.changed:
            self.is_gone = True
            self.changed.notify_all()

    def say(self, **message):
        try:
            self.control.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            pass  # reported to the caller that waits for the answer

    def wait_for(self, condition, deadline):
        """Returns whether the condition holds within that many seconds. Fails if the guest dies."""
        with self.changed:
            self.changed.wait_for(lambda: condition() or self.is_gone, deadline)
            if self.is_gone and not condition():
                raise Failure(f"guest {self.number} died; what it printed is in {self.console}")
            return condition()

    def await_boot(self):
        if not self.wait_for(lambda: self.is_here, BOOT_DEADLINE):
            raise Failure(f"guest {self.number} has not booted; what it printed is in {self.console}")

    def start(self, *words):
        command = Command(self, len(self.commands), [str(word) for word in words])
        self.commands[command.identity] = command
        self.say(start=command.identity, command=command.words)
        return command

    def run(self, *words, deadline=DEADLINE):
        """Runs a command, which has to succeed, and returns its output."""
        return self.start(*words).finish(deadline)

    def until(self, text, *words, deadline=DEADLINE):
        """Runs a command repeatedly, until it prints the text."""
        end = time.monotonic() + deadline
        while text not in (output := self.run(*words)):
            if time.monotonic() > end:
                raise Failure(f"{shlex.join(map(str, words))} does not print {text!r}, but:\n{output}")
            # steady: this pause is not critical, because the loop polls until its deadline
            time.sleep(0.05)

    def await_listener(self, port):
        """Waits until a TCP socket listens at the port."""
        self.until("LISTEN", "ss", "-Htln", f"sport = :{port}")

    def await_port(self, device, state):
        """Waits until the RDMA device reports that state of its port."""
        self.until(state, "cat", f"/sys/class/infiniband/{device}/ports/1/state")

    def address(self, network, family=4):
        return f"10.77.{network}.{self.number}" if family == 4 else f"fd77:{network}::{self.number}"

    def gid_index(self, network, family=4):
        """The index of that address's GID on the device of the network."""
        tail = f"ffff:0a4d:{network:02x}{self.number:02x}" if family == 4 else f"{self.number:04x}"
        head = "0000:" if family == 4 else f"fd77:{network:04x}:"
        folder = f"/sys/class/infiniband/rxe{network}/ports/1/gids"
        found = self.run("bash", "-c", f"grep -l '^{head}.*:{tail}$' {folder}/{{0..7}}")
        return int(found.split()[0].rpartition("/")[2])

    def plug(self, network, is_in):
        """Plugs the network's cable in, or pulls it out."""
        with socket.socket(socket.AF_UNIX) as monitor:
            monitor.connect(str(self.wires / f"monitor.{self.number}"))
            answers = monitor.makefile("rb")
            answers.readline()  # QEMU's first message
            wanted = {"name": f"network{network}", "up": is_in}
            for command in ({"execute": "qmp_capabilities"}, {"execute": "set_link", "arguments": wanted}):
                monitor.sendall(json.dumps(command).encode() + b"\n")
                while "return" not in (answer := json.loads(answers.readline())):
                    if "error" in answer:
                        raise Failure(f"the emulator reports {answer}")

    def leave(self):
        """Ends the guest, and waits until it is off. Returns a description of the failure; empty if it succeeded."""
        with open(self.console.with_name("commands.log"), "w", encoding="utf-8") as log:
            for command in self.commands.values():
                print(f"$ {shlex.join(command.words)}\n{command.output}==> {command.status}", file=log)
        self.say(leave=True)
        try:
            self.emulator.wait(DEADLINE)
        except subprocess.TimeoutExpired:
            self.emulator.terminate()
            return f"guest {self.number} did not power off within {DEADLINE} s"
        if self.emulator.returncode != 0:
            return f"guest {self.number} ended with status {self.emulator.returncode}; see {self.console}"
        return ""


@contextlib.contextmanager
def twins(folder):
    """Boots both guests."""
    with tempfile.TemporaryDirectory(prefix="twins-") as wires:
        both = []
        try:
            for number in (1, 2):
                both.append(Guest(number, pathlib.Path(folder), pathlib.Path(wires)))
            for guest in both:
                guest.await_boot()
            yield both
        finally:
            problems = [guest.leave() for guest in both]
        problems = [each for each in problems if each]
        if problems:
            raise Failure("; ".join(problems))
