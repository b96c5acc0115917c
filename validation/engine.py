"""The pipe and the engine over real stdio: starts, latency, memory, kills, and a long run.

    python validation/engine.py --store DIR --out validation/results/engine.json
    python validation/engine.py --only soak --calls 100000 --out validation/results/soak.json

DIR is a store of 10,000 entries as `latency.py` fills it; it is copied. Run it with the Python of an
installed wheel, whose modules are compiled. Wall times depend on the load of the machine.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import queue
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from conditions import spread, write
from sentences import sentences

from subconscious_mcp import endpoint
from subconscious_mcp.config import default_models_dir
from subconscious_mcp.storage_lock import wait_until_free

COMMAND = str(Path(sys.executable).parent / "subconscious-mcp")
CALL_SECONDS = 1800.0
"""Nothing takes this long; a machine that is needed for something else may pause a run."""
NAMESPACE = "benchmark"


class Failed(Exception):
    """A call was answered with an error."""


class Window:
    """A client of the installed command. Calls of several threads take turns."""

    def __init__(self, home: Path, **settings: str) -> None:
        env = {key: value for key, value in os.environ.items() if not key.startswith(("SUBCONSCIOUS_", "PYTHON"))}
        env |= {
            "SUBCONSCIOUS_HOME": str(home),
            "SUBCONSCIOUS_MODELS_DIR": str(default_models_dir()),
            "SUBCONSCIOUS_MODEL_DOWNLOAD": "never",
            "SUBCONSCIOUS_NAMESPACE": NAMESPACE,
            **settings,
        }
        self.turn = threading.Lock()
        self.longest = 0.0
        self.number = 0
        self.started = time.perf_counter()
        self.process = subprocess.Popen([COMMAND], stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self.replies: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.replies.put(json.loads(line))

    def send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()

    def request(self, method: str, params: dict[str, Any]) -> dict[str, Any]:
        with self.turn:
            self.number += 1
            began = time.perf_counter()
            self.send({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params})
            reply = self.replies.get(timeout=CALL_SECONDS)
            self.longest = max(self.longest, time.perf_counter() - began)
            assert reply["id"] == self.number, f"asked {self.number}, answered {reply}"
        if "error" in reply:
            raise Failed(reply["error"]["message"])
        return reply["result"]

    def initialize(self) -> float:
        """Shakes hands; returns the milliseconds since the process was started."""
        info = {"name": "validation", "version": "1"}
        self.request("initialize", {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info})
        took = self.since_start()
        self.send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return took

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        result = self.request("tools/call", {"name": name, "arguments": arguments})
        if result["isError"]:
            raise Failed(result["content"][0]["text"])
        return result["structuredContent"]

    def since_start(self) -> float:
        return (time.perf_counter() - self.started) * 1000

    def close(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(CALL_SECONDS)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(CALL_SECONDS)


class Place:
    """A home folder of its own, and what is known of its engine."""

    def __init__(self, folder: Path) -> None:
        self.home = folder
        self.storage = folder / "data"
        self.home.mkdir(parents=True, exist_ok=True)

    def window(self, **settings: str) -> Window:
        return Window(self.home, **settings)

    def opened(self, **settings: str) -> Window:
        window = self.window(**settings)
        window.initialize()
        return window

    def engine(self) -> int | None:
        found = endpoint.read(str(self.storage))
        return None if found is None else int(found["pid"])

    def stop(self) -> None:
        pid = self.engine()
        if pid is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            assert wait_until_free(self.storage, 30.0)

    def engines_started(self) -> int:
        return (self.home / "logs" / "server.log").read_text().count(" started.")


def memory_of(pid: int) -> dict[str, float]:
    """Returns RSS and Pss of a process in MB; Pss shares what processes have in common."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {
        name.lower() + "_mb": round(int(rollup.split(f"\n{name}:")[1].split()[0]) / 1024, 1) for name in ("Rss", "Pss")
    }


def peak_of(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return round(int(status.split("VmHWM:")[1].split()[0]) / 1024, 1)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


# --- starts, latency, memory


def starts(place: Place, count: int) -> dict[str, Any]:
    keeper = place.opened()
    keeper.call("stats")
    warm, bare = [], []
    for _ in range(count):
        # Beside each other, because both depend on the load of the machine alike.
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append((time.perf_counter() - began) * 1000)
        window = place.window()
        warm.append(window.initialize())
        window.close()
    keeper.close()
    cold, firsts = [], []
    for _ in range(count):
        place.stop()
        window = place.window()
        cold.append(window.initialize())
        window.call("recall", task="rotate the signing keys")
        firsts.append(window.since_start())
        window.close()
    place.stop()
    return {
        "starts": count,
        "python_that_does_nothing_ms": spread(bare, 0),
        "initialize_warm_ms": spread(warm, 0),
        "initialize_cold_ms": spread(cold, 0),
        "start_to_first_recall_cold_ms": spread(firsts, 0),
        "bars_ms": {"initialize_warm_p50": 80, "initialize_cold": 1000, "start_to_first_recall_cold": 1500},
    }


def recalls(place: Place, store: Path, count: int) -> dict[str, Any]:
    shutil.copytree(store, place.storage)
    texts = sentences(10_000)
    chance = random.Random(5)
    window = place.opened()
    # What is measured is the warm state: the libraries are imported and the index is compared.
    quiet = time.monotonic() + 20.0
    while time.monotonic() < quiet:
        window.call("recall", task=chance.choice(texts))
        time.sleep(5.0)
    took = []
    for number in range(count):
        began = time.perf_counter()
        # Each query another one: the vector of a query that was asked before is kept.
        found = window.call("recall", task=f"{chance.choice(texts)} {number}")
        took.append((time.perf_counter() - began) * 1000)
        assert found["similarity"] > 0.5
    wrote = []
    for number in range(count // 3):
        began = time.perf_counter()
        window.call("remember", task=f"{chance.choice(texts)} number {number}", answer="x")
        wrote.append((time.perf_counter() - began) * 1000)
    windows = [window, *(place.opened() for _ in range(4))]
    for each in windows:
        each.call("recall", task=texts[0])
    busy = memory_of(place.engine() or 0)
    time.sleep(15.0)
    pid = place.engine()
    assert pid is not None
    pipes = [memory_of(each.process.pid) for each in windows]
    result = {
        "entries": 10_000,
        "recall_ms": spread(took),
        "remember_ms": spread(wrote),
        "bar_ms": {"recall_p50": 8},
        "memory": {
            "engine": {**memory_of(pid), "peak_rss_mb": peak_of(pid), "right_after_use": busy},
            "pipes": pipes,
            "bar_mb": {"engine": 300, "pipe": 15},
        },
    }
    for each in windows:
        each.close()
    place.stop()
    return result


# --- many at once


def first_starts(place: Place, count: int) -> dict[str, Any]:
    windows = [place.window() for _ in range(count)]
    took: list[float] = []
    failures: list[str] = []

    def use(number: int) -> None:
        try:
            took.append(windows[number].initialize())
            task = f"task of window {number}"
            entry_id = windows[number].call("remember", task=task, answer="x")["entry_id"]
            if windows[(number + 1) % count].process.poll() is not None:
                failures.append(f"window {(number + 1) % count} ended")
            if windows[number].call("recall", task=task)["entry_id"] != entry_id:
                failures.append(f"window {number} did not find what it stored")
        except Exception as error:
            failures.append(f"window {number}: {type(error).__name__}: {error}")

    in_threads(use, range(count))
    engines = place.engines_started()
    for window in windows:
        window.close()
    place.stop()
    return {"windows": count, "engines": engines, "initialize_ms": spread(took, 0), "failures": failures}


def in_threads(work: Callable[[int], None], numbers: Any) -> None:
    threads = [threading.Thread(target=work, args=(number,)) for number in numbers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


class Chaos:
    """Clients that write, read each other's writes, and delete, while the engine is killed."""

    def __init__(self, place: Place, clients: int, rounds: int, kills: int) -> None:
        self.place = place
        self.rounds = rounds
        self.kills = kills
        self.windows = [place.opened() for _ in range(clients)]
        self.live: dict[str, str] = {}
        self.forgotten: dict[str, str] = {}
        self.uncertain: set[str] = set()
        self.stale: list[str] = []
        self.failures: list[str] = []
        self.rounds_done = itertools.count(1)
        self.done = 0
        self.killed = 0

    def run(self) -> dict[str, Any]:
        began = time.monotonic()
        killer = threading.Thread(target=self._kill)
        killer.start()
        in_threads(self._use, range(len(self.windows)))
        killer.join()
        took = time.monotonic() - began
        self._look()
        with contextlib.closing(sqlite3.connect(self.place.storage / "memory.db")) as database:
            tasks = [row[0] for row in database.execute("SELECT task FROM entries")]
        result = {
            "clients": len(self.windows),
            "rounds_each": self.rounds,
            "engine_killed": self.killed,
            "seconds": round(took, 1),
            "calls": sum(window.number for window in self.windows),
            "written_and_kept": len(self.live),
            "forgotten": len(self.forgotten),
            "written_twice": len(tasks) - len(set(tasks)),
            "strangers": len(set(tasks) - set(self.live) - self.uncertain),
            "stale_or_lost": self.stale[:10],
            "errors": self.failures[:10],
            "longest_call_s": round(max(window.longest for window in self.windows), 2),
            "bar_longest_call_s": 5,
        }
        for window in self.windows:
            window.close()
        self.place.stop()
        return result

    def _kill(self) -> None:
        total = self.rounds * len(self.windows)
        chance = random.Random(3)
        for number in range(self.kills):
            while self.done < total * (number + 1) // (self.kills + 2):
                time.sleep(0.005)
            # At any moment, in the middle of a start too.
            time.sleep(chance.random() * 0.3)
            while True:
                pid = self.place.engine()
                if pid is not None and alive(pid):
                    os.kill(pid, signal.SIGKILL)
                    self.killed += 1
                    break
                time.sleep(0.005)

    def _use(self, number: int) -> None:
        own, chance = self.windows[number], random.Random(number)
        base = sentences(self.rounds)
        for turn in range(self.rounds):
            task = f"{base[turn]} for client {number}"
            try:
                entry_id = own.call("remember", task=task, answer=f"answer to {task}")["entry_id"]
                self.live[task] = entry_id
                self._check(chance.choice(self.windows), task, entry_id)
                if turn % 2:
                    del self.live[task]
                    if not own.call("forget", entry_id=entry_id)["forgotten"]:
                        self.failures.append(f"{task}: not forgotten")
                    self.forgotten[task] = entry_id
                    found = chance.choice(self.windows).call("recall", task=task)
                    if found["entry_id"] == entry_id:
                        self.stale.append(f"{task}: found after it was forgotten")
            except (Failed, queue.Empty) as error:
                self.uncertain.add(task)
                self.live.pop(task, None)
                self.failures.append(f"{task}: {type(error).__name__} {error}")
            self.done = next(self.rounds_done)

    def _check(self, window: Window, task: str, entry_id: str) -> None:
        found = window.call("recall", task=task)
        if not found["hit"] or found["entry_id"] != entry_id or found["answer"] != f"answer to {task}":
            self.stale.append(f"{task}: {found['entry_id']} instead of {entry_id}")

    def _look(self) -> None:
        def look(number: int) -> None:
            for task, entry_id in list(self.live.items()):
                self._check(self.windows[number], task, entry_id)

        in_threads(look, range(len(self.windows)))


def killed_clients(place: Place, count: int) -> dict[str, Any]:
    left: list[str] = []
    orders = list(itertools.permutations(range(count)))
    for order in orders:
        windows = [place.opened(SUBCONSCIOUS_ENGINE_IDLE_SECONDS="0.5") for _ in range(count)]
        windows[0].call("remember", task="x", answer="y")
        pid = place.engine()
        assert pid is not None
        for number in order:
            windows[number].kill()
        free = wait_until_free(place.storage, 30.0)
        # The lock goes a little before the process.
        gone = time.monotonic() + 5.0
        while alive(pid) and time.monotonic() < gone:
            time.sleep(0.01)
        if not free or alive(pid) or place.engine() is not None or any((place.storage / "engine").iterdir()):
            left.append(str(order))
    return {"clients": count, "orders": len(orders), "something_left": left}


# --- the long run


def soak(place: Place, calls: int, clients: int) -> dict[str, Any]:
    windows = [place.opened() for _ in range(clients)]
    texts = sentences(2000)
    windows[0].call("remember", task=texts[0], answer="x")
    # Quiet enough for the SDK and Chroma to be imported: both are to be looked at as well.
    time.sleep(12.0)
    samples: list[dict[str, float]] = []
    numbers = itertools.count(1)
    failures: list[str] = []
    began = time.monotonic()
    every = max(1, calls // 100)
    pid = place.engine()
    assert pid is not None
    stopped = threading.Event()
    # Ends it early; what was measured until then is written.
    signal.signal(signal.SIGTERM, lambda *_: stopped.set())

    def use(number: int) -> None:
        window, chance = windows[number], random.Random(number)
        own: list[str] = []
        while (done := next(numbers)) <= calls and not stopped.is_set():
            pick = chance.random()
            try:
                if pick < 0.05 or not own:
                    task = f"{chance.choice(texts)} of client {number}"
                    own.append(window.call("remember", task=task, answer="an answer", tags=["a"])["entry_id"])
                elif pick < 0.10 and len(own) > 50:
                    window.call("forget", entry_id=own.pop(chance.randrange(len(own))))
                elif pick < 0.25:
                    window.call("echo", task=chance.choice(texts))
                elif pick < 0.30:
                    window.call("stats")
                else:
                    window.call("recall", task=chance.choice(texts), top_k=3)
            except (Failed, queue.Empty, AssertionError) as error:
                failures.append(f"{type(error).__name__} {error}")
            if done % every == 0:
                facts = {
                    "calls": done,
                    "seconds": round(time.monotonic() - began),
                    "rss_mb": memory_of(pid)["rss_mb"],
                    "descriptors": len(list(Path(f"/proc/{pid}/fd").iterdir())),
                    "threads": len(list(Path(f"/proc/{pid}/task").iterdir())),
                    "pipe_rss_mb": memory_of(windows[0].process.pid)["rss_mb"],
                }
                samples.append(facts)
                print(facts, file=sys.stderr, flush=True)

    in_threads(use, range(clients))
    took = time.monotonic() - began
    same = place.engine() == pid
    for window in windows:
        window.close()
    place.stop()
    samples.sort(key=lambda sample: sample["calls"])
    steady = samples[len(samples) // 5 :]
    return {
        "calls": samples[-1]["calls"],
        "clients": clients,
        "seconds": round(took),
        "calls_per_second": round(samples[-1]["calls"] / took, 1),
        "one_engine": same,
        "errors": failures[:10],
        "after_warm_up": {
            name: {
                "first": steady[0][name],
                "last": steady[-1][name],
                "least": min(sample[name] for sample in steady),
                "most": max(sample[name] for sample in steady),
            }
            for name in ("rss_mb", "descriptors", "threads", "pipe_rss_mb")
        },
        "bar": "within 10 % after the first fifth",
        "samples": samples[:: max(1, len(samples) // 25)],
    }


PARTS = ("starts", "recalls", "first_starts", "killed_clients", "chaos", "soak")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=PARTS, action="append", help="may be repeated; all but soak by default")
    parser.add_argument("--store", type=Path, help="a store of 10,000 entries, for `recalls`")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--starts", type=int, default=30)
    parser.add_argument("--recalls", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--calls", type=int, default=100_000)
    arguments = parser.parse_args()
    parts = arguments.only or [part for part in PARTS if part != "soak"]
    result: dict[str, Any] = {"what": "the pipe and the engine of the installed command"}
    with tempfile.TemporaryDirectory(prefix="engine-") as temporary:
        for part in parts:
            place = Place(Path(temporary) / part)
            if part == "starts":
                result[part] = starts(place, arguments.starts)
            elif part == "recalls":
                if arguments.store is None:
                    parser.error("recalls needs --store")
                result[part] = recalls(place, arguments.store, arguments.recalls)
            elif part == "first_starts":
                result[part] = first_starts(place, 20)
            elif part == "killed_clients":
                result[part] = killed_clients(place, 4)
            elif part == "chaos":
                result[part] = Chaos(place, 8, arguments.rounds, arguments.kills).run()
            else:
                result[part] = soak(place, arguments.calls, 4)
            print(part, json.dumps(result[part])[:2000], file=sys.stderr, flush=True)
    write(arguments.out, result)


if __name__ == "__main__":
    main()
