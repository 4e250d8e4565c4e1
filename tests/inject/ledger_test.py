#!/usr/bin/env python3
"""The loss ledger under load: everything seen is written, summarised, pending or lost by a cause, and nothing else.

GPUFLIGHT_TEST_LAUNCHES sets how many launches the large run makes (default 10,000,000).
"""
import os
import pathlib
import shutil
import tempfile

from sim_host import PLAYER, SANITIZE, SimTest, environment, main, validate_log

import json
import subprocess
import time

LAUNCHES = int(os.environ.get("GPUFLIGHT_TEST_LAUNCHES", 100_000 if SANITIZE else 10_000_000))


def scratch():
    """In memory where there is room: the disk is not what is tested."""
    need = LAUNCHES * 450
    if os.path.isdir("/dev/shm") and shutil.disk_usage("/dev/shm").free > 2 * need:
        return "/dev/shm"
    return None


def count_lines(path):
    """Kernel events by kernel, without a JSON parser for each; first, last and odd lines whole."""
    counts, others, tail = {}, [], b""
    with open(path, "rb", buffering=1 << 20) as file:
        for line in file:
            if line.startswith(b'{"type":"kernel_event","name":"'):
                name = line[31:line.index(b'"', 31)]
                counts[name] = counts.get(name, 0) + 1
                if line[-2:] != b"}\n":
                    raise AssertionError(f"a torn line: {line[-100:]}")
                tail = line
            else:
                others.append(validate_log.parse_line(line, True))
    return counts, others, tail


class Ledger(SimTest):
    def play_into(self, folder, plan, **variables):
        file = self.plan_file(plan)
        result = folder / "result.json"
        env = environment(GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_SIM_PLAN=file, GPUFLIGHT_LOG_MAX="0",
                          GPUFLIGHT_LOG_SEGMENT="1T", GPUFLIGHT_COMPRESS="off", GPUFLIGHT_EXIT_TIMEOUT_MS="5m",
                          **variables)
        began = time.monotonic()
        run = subprocess.run([str(PLAYER), str(file), "--result", str(result)], env=env, capture_output=True,
                             timeout=550, check=False)
        took = time.monotonic() - began
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"", b""))
        counts, others, _ = count_lines(folder / "log.ndjson")
        (end,) = [line for line in others if line["type"] == "session_end"]
        return json.loads(result.read_text()), counts, others, end, took

    def check(self, result, counts, others, end):
        self.assertEqual(end["seen"], end["written"] + end["summarised"] + end["pending"] + end["lost"], end)
        self.assertEqual(end["lost"], sum(end["lost_by_cause"].values()))
        self.assertEqual(end["lost"], end["lost_by_cause"]["pool_empty"])
        self.assertEqual(end["pending"], 0)
        self.assertEqual(end["seen"], result["launches"]["returned"])
        self.assertEqual(sum(counts.values()), end["written"])
        losses = [line for line in others if line["type"] == "loss_event"]
        self.assertEqual(sum(line["lost_since_last"]["pool_empty"] for line in losses), end["lost"])
        for kernel in result["kernels"].values():
            written = counts.get(kernel["name"].encode(), 0)
            self.assertLessEqual(written, kernel["returned"])
            if end["lost"] == 0:
                self.assertEqual(written, kernel["returned"])

    def plan(self, launches, threads=64, rate=0):
        per_thread = launches // threads
        return {
            "device": {"board": "sm_90"},
            "modules": {"m": {"kernels": {
                "tick": {"name": "tick", "registers": 24, "duration_us": 0.5},
                "tock": {"name": "tock", "registers": 40, "static_shared_bytes": 4096, "duration_us": 0.5}}}},
            "threads": [{"count": threads, "rate": rate / threads, "ops": [
                {"op": "stream_create", "stream": "mine", "non_blocking": True}, {"op": "barrier"},
                {"op": "launch", "kernel": "tick", "grid": 64, "block": 128, "stream": "mine",
                 "times": per_thread * 4 // 5},
                {"op": "launch", "kernel": "tock", "grid": [8, 8, 1], "block": [32, 4, 1], "stream": "mine",
                 "times": per_thread - per_thread * 4 // 5}]}],
        }

    def test_as_fast_as_64_threads_can(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuflight-ledger.", dir=scratch()))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        # Short lines: it is the counting that is tested, and what is not lost takes room.
        result, counts, others, end, took = self.play_into(folder, self.plan(LAUNCHES), GPUFLIGHT_DETAILS="off")
        self.check(result, counts, others, end)
        self.assertEqual(result["launches"]["returned"], LAUNCHES // 64 * 64)
        print(f"{end['seen']:,} launches from 64 threads in {result['seconds']:.1f} s ({took:.1f} s with exit): "
              f"{end['written']:,} written, {end['lost']:,} lost; "
              f"recorder {end['recorder_cpu_ns'] / max(1, end['written']):.0f} ns CPU per line")

    def test_nothing_is_lost_at_200_000_a_second(self):
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuflight-ledger.", dir=scratch()))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        rate = 20_000 if SANITIZE else 200_000
        result, counts, others, end, took = self.play_into(folder, self.plan(rate * 5, rate=rate))
        self.check(result, counts, others, end)
        reached = end["seen"] / result["seconds"]
        print(f"{reached:,.0f} launches a second for {result['seconds']:.1f} s: {end['lost']} lost")
        self.assertGreater(reached, rate * 0.5)  # a busy machine; else nothing was tested
        self.assertEqual(end["lost"], 0)

    def test_a_pool_too_small_loses_and_says_so(self):
        folder = self.dir / "small"
        folder.mkdir()
        result, counts, others, end, _ = self.play_into(folder, self.plan(300_000 if not SANITIZE else 100_000),
                                                        GPUFLIGHT_POOL="1M")
        self.check(result, counts, others, end)
        self.assertGreater(end["lost"], 0)


if __name__ == "__main__":
    main()
