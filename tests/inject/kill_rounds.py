"""Ends a launching program in the middle of it and holds what is left against what the program itself had counted.

Used by recover_test.py (short) and tools/soak.sh kill (long). Nothing here believes `gpuflight recover` about events:
the log and what was recovered are read line by line, and only its verdict and ledger are taken from it.
"""
import json
import os
import pathlib
import random
import re
import signal
import struct
import subprocess
import time

from sim_host import BUILD, GPU_SLOT, HOSTS, SLOW, environment, read_segment, segments, started

TOOL = pathlib.Path(os.environ.get("GPUFLIGHT_TEST_TOOL") or BUILD / "bin" / "gpuflight")
HOST = HOSTS / "soak_host"
ANY_EVENT = re.compile(rb'"seq":(\d+),')
RING_EVENT = re.compile(rb'\{"type":"(kernel_event|graph_launch_event)",.*"seq":(\d+),')


def counted(path):
    """(launches, graph launches) that have returned, and how many threads count."""
    data = path.read_bytes()
    workers = struct.unpack_from("<8sQ", data)[1]
    both = [struct.unpack_from("<QQ", data, 64 * (i + 1)) for i in range(workers)]
    return sum(k for k, _ in both), sum(g for _, g in both), workers


def events(files):
    """Sequence numbers of kernel and graph launches in whole lines, as they stand there."""
    kinds = {b"kernel_event": [], b"graph_launch_event": []}
    for file in files:
        for line in read_segment(file).split(b"\n")[:-1]:
            match = RING_EVENT.match(line)
            if match and int(match[2]) >> 40 != GPU_SLOT:
                kinds[match[1]].append(int(match[2]))
    return kinds[b"kernel_event"], kinds[b"graph_launch_event"]


def gpu_lines(files):
    """How many lines tell of work that the GPU did and no record of a ring stands for."""
    return sum(1 for file in files for line in read_segment(file).split(b"\n")[:-1]
               if (match := ANY_EVENT.search(line)) and int(match[1]) >> 40 == GPU_SLOT)


def recover(flight, *arguments):
    run = subprocess.run([str(TOOL), "recover", "--json", str(flight), *arguments], capture_output=True, check=False,
                         timeout=120 * SLOW)
    if run.returncode not in (0, 3, 4):
        raise AssertionError(f"recover: {run.returncode}: {run.stderr[-2000:]}")
    return run.returncode, json.loads(run.stdout)


def killed_while_it_counts(folder, host, *arguments):
    """Runs a host that prints how much it has done, kills it after a few lines and recovers: the count of its last
    line, recover's exit code and what it says."""
    with started(host, *arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder,
                 env=environment(GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_SIM_DEVICE="h200",
                                 GPUFLIGHT_FLUSH_MS="200ms")) as process:
        for _ in range(6):
            done = int(process.stdout.readline())
        time.sleep(0.03)
        os.kill(process.pid, signal.SIGKILL)
        done = int((process.stdout.read().split() or [done])[-1])
    return (done, *recover(folder / "log.flight"))


class Round:
    """One program, started with DIR/log.ndjson as its log, and what came of it."""

    def __init__(self, folder, *arguments, **variables):
        folder.mkdir(parents=True)
        self.folder = folder
        self.counters = folder / "counters"
        self.log = folder / "log.ndjson"
        self.flight = folder / "log.flight"
        env = environment(GPUFLIGHT_LOG=self.log, **variables)
        # The host dies on purpose: no core files, and its last words are not ours.
        self.process = subprocess.Popen([str(HOST), "--counters", str(self.counters), *map(str, arguments)], env=env,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, cwd=folder)

    def wait_for_launches(self, wanted, seconds=60):
        deadline = time.monotonic() + seconds * SLOW
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                return
            if self.counters.exists() and self.counters.stat().st_size >= 128 and counted(self.counters)[0] >= wanted:
                return
            time.sleep(0.01)
        raise AssertionError(f"{wanted} launches took more than {seconds} s")

    def end(self, number):
        self.process.send_signal(number)
        return self.wait()

    def wait(self):
        stderr = self.process.communicate(timeout=120 * SLOW)[1]
        self.stderr = stderr.decode(errors="replace")
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.communicate()

    def check(self, verdict="stopped", lost=0):
        """Everything the program counted is in the log or was recovered; returns the ledger."""
        launches, graphs, workers = counted(self.counters)
        code, said = recover(self.flight)
        ledger = said["ledger"]
        shown = {key: said[key] for key in ("verdict", "ledger", "flight_troubles", "log_troubles")}
        where = f"{self.folder}: {json.dumps(shown)}"
        assert said["verdict"] == verdict, where
        assert code == {"clean": 0, "running": 0, "cuda_error": 3, "stopped": 4}[verdict], (code, where)
        assert ledger["balanced"], where
        causes = dict(ledger["lost_by_cause"])
        # A record that was being written: its call had not begun, so that nobody counted it.
        assert causes.pop("unfinished") <= workers, where
        assert lost is None or sum(causes.values()) == lost, where
        files = segments(self.log)
        kernels, graph_launches = events(files)
        lines = (len(kernels), len(graph_launches), gpu_lines(files))
        assert sum(lines) == ledger["in_log"], (lines, where)
        recovered = self.folder / "log.recovered.ndjson"
        assert recovered.exists() == (ledger["recovered"] > 0), where
        if recovered.exists():
            for line in recovered.read_bytes().splitlines():
                json.loads(line)
            more_kernels, more_graphs = events([recovered])
            assert len(more_kernels) + len(more_graphs) == ledger["recovered"], where
            kernels += more_kernels
            graph_launches += more_graphs
        everything = kernels + graph_launches
        assert len(everything) == len(set(everything)), f"an event twice; {where}"
        if lost == 0:
            # At most one launch of each thread was on its way.
            for what, have, want in (("launches", kernels, launches), ("graph launches", graph_launches, graphs)):
                assert want <= len(have) <= want + workers, f"{what}: {want} returned, {len(have)} known; {where}"
        return ledger


def random_kill(folder, rng, **variables):
    """One round: 4 to 64 threads, killed at a random moment."""
    threads = rng.randint(4, 64)
    arguments = ["--threads", threads, "--rate", rng.choice([2_000, 10_000, 30_000]) / (10 if SLOW > 1 else 1)]
    if rng.random() < 0.5:
        arguments += ["--life", rng.choice([20, 200]), "--reload-ms", rng.choice([2, 20])]
    if rng.random() < 0.5:  # small segments: it may die in the middle of a rotation or of a compression
        variables["GPUFLIGHT_LOG_SEGMENT"] = rng.choice(["64K", "1M"])
    round_ = Round(folder, *arguments, **variables)
    try:
        round_.wait_for_launches(rng.choice([1, 1, 100, 3_000]))
        time.sleep(rng.random() * 0.5)
        code = round_.end(signal.SIGKILL)
        assert code == -signal.SIGKILL, (code, round_.stderr)
        return threads, counted(round_.counters)[0], round_.check()
    finally:
        round_.close()


def seeded(text=""):
    seed = int(os.environ.get("GPUFLIGHT_TEST_SEED", random.randrange(1 << 30)))
    print(f"seed {seed} (GPUFLIGHT_TEST_SEED){text}", flush=True)
    return random.Random(seed)
