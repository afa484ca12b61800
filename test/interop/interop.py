#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the ping-pong sample between processes: with itself, with ibv_rc_pingpong, and with peers that are killed
or send invalid messages.

    interop.py TOPIC PROGRAM SOFTVERBS [--slow]

Every process has a deadline, and none outlives this script. Exit code 77 means skipped.
"""

import concurrent.futures
import contextlib
import os
import pathlib
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from held_port import hold_port  # noqa: E402

SKIPPED = 77
DEADLINE = 90  # seconds, for each process; it only ends processes that hang, so it suffices on a busy machine
LISTENS, IS_CONNECTED = "0A", "01"  # states in /proc/net/tcp
NOTICED = 15  # seconds until a death is detected; retries take a second, the rest allows for a busy machine

TOPIC, SAMPLE, SOFTVERBS = sys.argv[1:4]
SLOW = "--slow" in sys.argv
IBV = shutil.which("ibv_rc_pingpong")


class Failure(Exception):
    """A check that failed."""


def check(holds, *what):
    if not holds:
        raise Failure("\n".join(str(each) for each in what))


class Process:
    """A child whose output is collected while it runs."""

    def __init__(self, stack, *arguments, layer="ethernet", devices="1"):
        environment = os.environ | {
            "SOFTVERBS_LINK_LAYER": layer,
            "SOFTVERBS_DEVICES": devices,
            "LD_PRELOAD": SOFTVERBS,
            "LC_ALL": "C",
        }
        self.command = [str(each) for each in arguments]
        self.output = ""
        self.changed = threading.Condition()
        self.child = subprocess.Popen(
            self.command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace",
        )
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        stack.callback(self.kill)

    def _read(self):
        for line in self.child.stdout:
            with self.changed:
                self.output += line
                self.changed.notify_all()

    def kill(self):
        self.child.kill()
        self.child.wait()
        self.reader.join()
        self.child.stdout.close()

    def wait_for_output(self, text):
        with self.changed:
            seen = self.changed.wait_for(lambda: text in self.output, DEADLINE)
        check(seen, f"{self} did not print {text!r}")

    def finish(self, within=DEADLINE):
        try:
            status = self.child.wait(within)
        except subprocess.TimeoutExpired:
            raise Failure(f"{self} did not end within {within} s") from None
        self.reader.join()
        check("Sanitizer" not in self.output, self)
        return status

    def succeed(self):
        status = self.finish()
        check(status == 0, f"exit status {status}, 0 expected", self)

    def fail(self, words, status=1, within=DEADLINE):
        ended = self.finish(within)
        check(ended == status, f"exit status {ended}, {status} expected", self)
        said = [line for line in self.output.splitlines() if line.startswith("02_rc_pingpong: ")]
        check(len(said) == 1 and re.search(words, said[0]), f"{words!r} expected in one line", self)

    def __str__(self):
        return f"{' '.join(self.command)}\n{self.output}"


def reserve_port(stack):
    held, port = hold_port()
    stack.enter_context(held)
    return port


def wait_for_socket(port, server, state=LISTENS):
    socket_in_state = re.compile(rf"^ *\d+: [0-9A-F]+:{port:04X} [0-9A-F:]+ {state} ", re.MULTILINE)
    deadline = time.monotonic() + DEADLINE
    while time.monotonic() < deadline:
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with contextlib.suppress(OSError), open(table, encoding="ascii") as lines:
                if socket_in_state.search(lines.read()):
                    return
        check(server.child.poll() is None, "the server ended before it listened", server)
        time.sleep(0.01)  # steady: this pause is not critical, because the loop polls until its deadline
    raise Failure(f"{server} does not listen, or has no connection")


def start_pair(stack, server, client, **settings):
    """Starts both programs, each given with its options."""
    port = reserve_port(stack)
    first = Process(stack, *server, "--port", port, **settings)
    wait_for_socket(port, first)
    return first, Process(stack, *client, "--port", port, "localhost", **settings)


def iterations(count):
    return max(count // 20, 10) if SLOW else count


# The topics. Each yields cases as pairs of a name and a function, which gets an exit stack for clean-up.


def both_succeed(server, client, **settings):
    def run(stack):
        for each in reversed(start_pair(stack, server, client, **settings)):
            each.succeed()

    return run


def itself():
    for layer in ("ethernet", "infiniband"):
        for size, mtu, count in ((1, 256, 1000), (4096, 1024, 1000), (65536, 4096, 200), (1 << 20, 512, 20)):
            for extra in ([], ["--check"]):
                end = [SAMPLE, "--size", size, "--mtu", mtu, "--iters", iterations(count), *extra]
                yield f"{layer}, {size} bytes, MTU {mtu} {extra}", both_succeed(end, end, layer=layer)
        end = [SAMPLE, "--ibv-exchange", "--check", "--iters", iterations(1000)]
        yield f"{layer}, ibv_rc_pingpong's exchange", both_succeed(end, end, layer=layer)
    few = [SAMPLE, "--rx-depth", 1, "--iters", iterations(500)]
    yield "a single receive", both_succeed(few, few)


def ibv_rc_pingpong():
    if not IBV:
        print("ibv_rc_pingpong is not installed")
        sys.exit(SKIPPED)
    # Neither this program nor the device yields to a peer that waits for a processor, so the iterations are limited.
    for layer, gid, count in (("ethernet", ["-g", 1], 10000), ("infiniband", ["-g", 0], 500), ("infiniband", [], 500)):
        common = ["-n", count, "-s", 4096, "-c", *gid]
        ours, theirs = [SAMPLE, "--ibv-exchange", *common], [IBV, *common]
        for name, server, client in (("server", ours, theirs), ("client", theirs, ours)):

            def run(stack, server=server, client=client, layer=layer):
                ends = start_pair(stack, server, client, layer=layer)
                for each in reversed(ends):
                    each.succeed()
                    check("invalid data" not in each.output, each)

            yield f"as {name}, {layer} {gid}", run

    def unchecked_client(stack):
        server, client = start_pair(
            stack, [SAMPLE, "--ibv-exchange", "-g", 1, "--check"], [IBV, "-g", 1])
        server.fail("the data differs from the expected message")
        client.kill()  # otherwise it would wait forever

    yield "data that differs from the expected data", unchecked_client

    def without_option(stack):
        server, client = start_pair(stack, [SAMPLE, "-g", 1], [IBV, "-g", 1])
        server.fail("--ibv-exchange")
        client.finish()

    yield "without --ibv-exchange", without_option

    def without_gid(stack):
        server, client = start_pair(stack, [SAMPLE, "--ibv-exchange"], [IBV])
        server.fail("--gid-idx")
        client.finish()

    yield "without a GID on Ethernet", without_gid


def killed():
    gone = r"\(ECONNRESET\)|\(EPIPE\)|retry exceeded|ms of silence"

    def during_exchange(stack, end, victim_is_server):
        port = reserve_port(stack)
        server = Process(stack, *end, "--port", port)
        wait_for_socket(port, server)
        if victim_is_server:
            # The stopped server cannot answer any more, but the kernel still accepts connections for it.
            server.child.send_signal(signal.SIGSTOP)
            client = Process(stack, *end, "--port", port, "localhost")
            client.wait_for_output("local:")
            wait_for_socket(port, server, IS_CONNECTED)
            server.child.kill()
            client.fail(gone, within=NOTICED)
        else:
            with socket.create_connection(("localhost", port)) as client:
                client.sendall(b"\x76")
            server.fail(gone, within=NOTICED)

    def after(delay):
        def run(stack, end, victim_is_server):
            ends = start_pair(stack, end + ["--iters", 2**31 - 1], end + ["--iters", 2**31 - 1])
            victim, survivor = ends if victim_is_server else reversed(ends)
            victim.wait_for_output("remote:")
            # steady: the kill may come at any point; this pause only varies that point
            time.sleep(delay)
            victim.child.kill()
            # If the client was killed just after it had received the server's endpoint, the server is not connected.
            survivor.fail(gone, within=NOTICED)

        return run

    def near_the_end(stack, end, victim_is_server):
        count = iterations(3000)
        ends = start_pair(stack, end + ["--iters", count], end + ["--iters", count])
        victim, survivor = ends if victim_is_server else reversed(ends)
        victim.wait_for_output("remote:")
        # steady: the kill may come at any point; this pause only varies that point
        time.sleep(random.uniform(0, 0.3))
        victim.child.kill()
        if survivor.finish(NOTICED) == 0:
            check("iters in" in survivor.output, survivor)  # the victim was killed only after its last iteration
        else:
            survivor.fail(gone)

    moments = {"during the exchange": during_exchange, "at once": after(0), "near the end": near_the_end}
    for _ in range(3):
        delay = random.uniform(0, 0.4)
        moments[f"after {delay:.3f} s"] = after(delay)
    for moment, run in moments.items():
        for mode in ([], ["--ibv-exchange"]):
            for victim_is_server in (True, False):
                end = [SAMPLE, "--timeout", 10, "--retries", 7, *mode]
                yield (
                    f"{'server' if victim_is_server else 'client'} {moment} {mode}",
                    lambda stack, run=run, end=end, victim=victim_is_server: run(stack, end, victim),
                )


def alone(words, *arguments, status=1, **settings):
    """Runs only the server, which fails before it listens."""
    return lambda stack: Process(
        stack, SAMPLE, "--port", reserve_port(stack), *arguments, **settings).fail(words, status)


def refused():
    yield "missing device", alone('no RDMA device has the name "none0"; libibverbs reports ', "--device", "none0")
    yield "no device", alone("reports no RDMA device", devices="0")
    yield "missing port", alone("ibv_query_port|port", "--ib-port", 9)
    yield "GID index", alone("GID|gid", "--gid-index", 200)
    yield "MTU above the port's", alone("out of range", "--mtu", 8192, status=2)
    yield "size 0", alone("message size", "--size", 0, status=2)
    yield "size above the limit", alone("message size", "--size", 1 << 31)
    yield "size above 32 bits", alone("message size", "--size", 1 << 40, status=2)
    yield "receives above the limit", alone("above the limit", "--rx-depth", 1 << 30)
    for option, value in (
        ("--size", "4k"), ("--size", ""), ("--size", "99999999999999999999"), ("--iters", "1 "),
        # steady: this port is out of range, so it is refused before a socket is opened
        ("--iters", "-5"), ("--iters", "0"), ("--port", "70000"), ("--ib-port", "0"),
        ("--mtu", "1500"), ("--sl", "16"), ("--gid-index", "256"), ("--timeout", "32"),
        ("--timeout", "0"), ("--retries", "8"), ("--rx-depth", "0"),
    ):  # fmt: skip
        yield f"{option} '{value}'", alone("see --help", option, value, status=2)

    def two_hosts(stack):
        Process(stack, SAMPLE, "one", "two").fail("more arguments", 2)

    def unknown_option(stack):
        check(Process(stack, SAMPLE, "--nonsense").finish() == 2)

    def help_text(stack):
        process = Process(stack, SAMPLE, "--help")
        process.succeed()
        for option in ("--device", "--port", "--gid-index", "--size", "--iters", "--mtu", "--check", "--help"):
            check(option in process.output, option, process)

    def no_server(stack):
        Process(stack, SAMPLE, "--port", reserve_port(stack), "localhost").fail("ECONNREFUSED.*start the server")

    def no_such_host(stack):
        Process(stack, SAMPLE, "no-such-host.invalid").fail("no such host")

    def taken_port(stack):
        with socket.create_server(("", 0)) as taken:
            Process(stack, SAMPLE, "--port", taken.getsockname()[1]).fail("EADDRINUSE.*choose another")

    yield "two hosts", two_hosts
    yield "unknown option", unknown_option
    yield "--help", help_text
    yield "no server", no_server
    yield "no such host", no_such_host
    yield "taken port", taken_port

    def link_layers(stack):
        port = reserve_port(stack)
        server = Process(stack, SAMPLE, "--port", port, layer="ethernet")
        wait_for_socket(port, server)
        client = Process(stack, SAMPLE, "--port", port, "localhost", layer="infiniband")
        # The process that is slower may find that the other one has already exited.
        for each in (client, server):
            check(each.finish() == 1, each)
        check("link layer differs" in client.output + server.output, client, server)

    yield "link layers", link_layers

    def different(server, client, words):
        def run(stack):
            ends = start_pair(stack, [SAMPLE, "--timeout", 10, *server], [SAMPLE, "--timeout", 10, *client])
            for each in ends:
                check(each.finish() == 1, "failure expected", each)
            check(re.search(words, ends[0].output + ends[1].output), words, *ends)

        return run

    yield "longer messages", different(["--size", 100], ["--size", 200], "local length error|too short")
    yield "shorter messages", different(["--size", 200], ["--size", 100], "same --size")
    yield "more iterations", different(["--iters", 20], ["--iters", 10], "fewer --iters|gave up")
    yield "exchange", different(["--ibv-exchange"], [], "--ibv-exchange")


# The size of an encoded endpoint in the sample, which also accepts the previous, shorter format.
ENCODED_SIZE = 368
GOOD = bytes([0x76, 2, 2, 2, 2, 5, 0, 0, 16, 0, 0x40, 1, 16, 0, 0, 1]) + bytes(10) + b"\xff\xff\x0a\0\0\1" + bytes(12)
IBV_GOOD = b"0000:004001:000001:00000000000000000000ffff0a000001\0"


def malformed():
    def changed(at, value):
        return GOOD[:at] + bytes([value]) + GOOD[at + 1:]

    own = {
        "nothing": (b"", "ECONNRESET"),
        "truncated": (GOOD[:20], "ECONNRESET"),
        "random": (random.Random(1).randbytes(44), "not a verbspp endpoint"),
        "zeros": (bytes(44), "not a verbspp endpoint"),
        "version": (changed(1, 9), "format version"),
        "no owner": (changed(43, 1), "without an owner"),
        "transport": (changed(2, 77), "transport"),
        "link layer": (changed(3, 0), "link layer"),
        "GID type": (changed(4, 3), "GID type"),
        "MTU": (changed(5, 6), "MTU"),
        "reserved": (changed(35, 1), "reserved"),
        "no GID": (GOOD[:16] + bytes(28), "GID is missing"),
        "management queue pair": (GOOD[:9] + bytes(3) + GOOD[12:], "queue pair number"),
        "unreachable": (GOOD, "does not resolve"),
        "too long": (lambda heard: heard + b"more", "byte after the endpoint"),
        "no sign": (lambda heard: heard, "ECONNRESET"),
        "text": (IBV_GOOD, "--ibv-exchange"),
    }
    text = {
        "nothing": (b"", "ECONNRESET"),
        "truncated": (IBV_GOOD[:-4], "ECONNRESET"),
        "not hex": (IBV_GOOD.replace(b"a", b"x"), "in hex"),
        "signs": (IBV_GOOD.replace(b"004001", b"+04001"), "in hex"),
        "no end": (IBV_GOOD[:-1] + b"0", "in hex"),
        "no colons": (IBV_GOOD.replace(b":", b"0"), "in hex"),
        "no GID": (b"0000:004001:000001:" + b"0" * 32 + b"\0", "--gid-idx"),
        "no QPN": (IBV_GOOD.replace(b"004001", b"000000"), "queue pair number"),
        "binary": (GOOD + GOOD, "in hex"),
    }

    def say(peer, said):
        peer.settimeout(DEADLINE)
        if callable(said):  # a function computes the message from the received one, which contains a reachable endpoint
            said = said(peer.recv(ENCODED_SIZE, socket.MSG_WAITALL))
        with contextlib.suppress(OSError):  # the program may have ended
            peer.sendall(said)
            peer.shutdown(socket.SHUT_WR)

    def to_server(stack, mode, said, words):
        port = reserve_port(stack)
        server = Process(stack, SAMPLE, *mode, "--port", port)
        wait_for_socket(port, server)
        with socket.create_connection(("localhost", port)) as client:
            say(client, said)
            server.fail(words)

    def to_client(stack, mode, said, words):
        with socket.create_server(("", 0)) as server:
            client = Process(stack, SAMPLE, *mode, "--port", server.getsockname()[1], "localhost")
            server.settimeout(DEADLINE)
            with server.accept()[0] as accepted:
                say(accepted, said)
                client.fail(words)

    for mode, cases in (([], own), (["--ibv-exchange"], text)):
        for name, (said, words) in cases.items():
            for target in (to_server, to_client):
                yield (
                    f"{name} {mode} {target.__name__}",
                    lambda stack, target=target, mode=mode, said=said, words=words: target(stack, mode, said, words),
                )

    def silent(stack):
        with socket.create_server(("", 0)) as server:
            Process(stack, SAMPLE, "--port", server.getsockname()[1], "localhost").fail("the peer is silent")

    yield "silent server", silent


def main():
    failures = 0

    def run(case):
        name, function = case
        started = time.monotonic()
        try:
            with contextlib.ExitStack() as stack:
                function(stack)
        except Failure as failure:
            return f"FAILED {name}: {failure}"
        return f"passed {name} in {time.monotonic() - started:.1f} s"

    cases = list(globals()[TOPIC]())
    with concurrent.futures.ThreadPoolExecutor(4 if TOPIC != "ibv_rc_pingpong" else 1) as executor:
        for report in executor.map(run, cases):
            print(report, flush=True)
            failures += report.startswith("FAILED")
    print(f"{len(cases)} cases, {failures} failed")
    return 1 if failures or not cases else 0


if __name__ == "__main__":
    sys.exit(main())
