#!/usr/bin/env python3
"""The log stays within its bound: rotated, compressed, the oldest deleted, and summaries where events come too fast."""
import collections
import os
import threading
import time
import unittest

from sim_host import (PLAYER, SANITIZE, SimTest, environment, main, quick_plan, read_segment, segments, started,
                      validate_log)

MI = 1 << 20


def files_on_disk(folder):
    """By inode: a file that is being renamed may be met under both names."""
    found = {}
    for file in os.scandir(folder):
        try:
            if ".ndjson" in file.name:
                state = file.stat()
                found[state.st_ino] = state.st_size
        except FileNotFoundError:
            pass
    return found


def bytes_on_disk(folder):
    """0 while the files change under us: then the sum is of no one moment."""
    first, second = files_on_disk(folder), files_on_disk(folder)
    return sum(first.values()) if first == second else 0


class Retention(SimTest):
    def play_and_watch(self, plan, **variables):
        """Also the most that lay on disk at any moment seen."""
        folder = self.dir / "logs"
        folder.mkdir(exist_ok=True)
        most, looks, stop = [0], [0], threading.Event()

        def watch():
            while not stop.is_set():
                total = bytes_on_disk(folder)
                looks[0] += total > 0
                most[0] = max(most[0], total)
                time.sleep(0.001)

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            played = self.play(plan, GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_EXIT_TIMEOUT_MS="120s",
                               timeout=120, **variables)
        finally:
            stop.set()
            watcher.join()
        self.assertGreater(looks[0], 0)  # how often is up to the machine
        return played, max(most[0], bytes_on_disk(folder))

    def test_oldest_segments_go(self):
        bound = 2 * MI
        plan = quick_plan(times=20_000 if not SANITIZE else 8_000)
        plan["threads"][0]["rate"] = 20_000
        played, most = self.play_and_watch(plan, GPUFLIGHT_LOG_MAX=bound, GPUFLIGHT_LOG_SEGMENT="128K",
                                           GPUFLIGHT_LOG_KEEP="0", GPUFLIGHT_COMPRESS="off")
        self.assertLessEqual(most, bound)
        log = self.log("logs/log.ndjson")
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], played.result["launches"]["returned"])
        self.assertEqual(end["summarised"], 0)
        self.assertGreater(end["rotated_away"], 0)
        self.assertEqual(len(log.kernels), end["written"] - end["rotated_away"])
        # The newest are those that are left, without a gap.
        seqs = [e["seq"] for e in log.kernels]
        self.assertEqual(seqs, list(range(seqs[0], seqs[0] + len(seqs))))
        self.assertGreater(len(log.files), 5)

    @unittest.skipIf(SANITIZE, "the compressor is too slow then")
    def test_compressed_segments_count_by_what_they_take(self):
        plan = quick_plan(times=20_000)
        plan["threads"][0]["rate"] = 4_000
        bound = 2 * MI
        played, most = self.play_and_watch(plan, GPUFLIGHT_LOG_MAX=bound, GPUFLIGHT_LOG_SEGMENT="128K")
        self.assertLessEqual(most, bound)
        log = self.log("logs/log.ndjson")
        end = self.assert_balanced(log)
        # Many times the bound, and all of it is there; where the compressor could not follow, in summaries.
        self.assertEqual(end["rotated_away"], 0)
        self.assertGreater(end["bytes_written"], 3 * bound)
        self.assertLess(end["summarised"], end["written"])
        if end["summarised"] == 0:
            self.assert_counts(log, played.result)
        self.assertTrue(any(f.suffix == ".zst" for f in log.files))

    def test_segments_are_readable_alone(self):
        plan = quick_plan(times=3000, threads=2)
        plan["threads"][0]["ops"].insert(0, {"op": "stream_create", "stream": "s"})
        plan["threads"][0]["ops"][1]["stream"] = "s"
        played, _ = self.play_and_watch(plan, GPUFLIGHT_LOG_MAX="0", GPUFLIGHT_LOG_SEGMENT="256K")
        log = self.log("logs/log.ndjson")
        self.assert_balanced(log)
        self.assert_counts(log, played.result)
        self.assert_unique_seq(log)
        self.assertGreater(len(log.files), 4)
        for number, file in enumerate(log.files, 1):
            lines = [validate_log.parse_line(line, True) for line in read_segment(file).splitlines()]
            self.assertEqual((lines[0]["type"], lines[0]["segment"]), ("session_start", number))
            known = {line["stream"] for line in lines if line["type"] == "stream_info"}
            devices = {line["device"] for line in lines if line["type"] == "device_info"}
            for line in lines:
                if line["type"] == "kernel_event":
                    self.assertIn(line["stream"], known)
                    self.assertIn(line["device"], devices)
            if file != log.path:
                self.assertLessEqual(sum(len(line) + 1 for line in read_segment(file).splitlines()), 256 * 1024)

    def test_too_fast_for_the_bound_becomes_summaries(self):
        bound = 1 * MI
        kernels = {name: {"name": name, "duration_us": 1, "registers": 16 + i} for i, name in enumerate("abc")}
        plan = {"device": {"board": "sm_86"}, "modules": {"m": {"kernels": kernels}}, "threads": [
            {"count": 2, "rate": 10_000, "ops": [{"op": "repeat", "times": 10_000, "ops": [
                {"op": "launch", "kernel": name, "grid": 1, "block": 32} for name in "abc"]}]}]}
        played, most = self.play_and_watch(plan, GPUFLIGHT_LOG_MAX=bound, GPUFLIGHT_LOG_SEGMENT="64K",
                                           GPUFLIGHT_LOG_KEEP="10m")
        self.assertLessEqual(most, bound)
        log = self.log("logs/log.ndjson")
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], played.result["launches"]["returned"])
        self.assertGreater(end["summarised"], 0)
        self.assertGreater(end["written"], 0)
        # It says so each time it goes over; compression makes room again now and then.
        begun, ended = log.notices("summaries_begin"), log.notices("summaries_end")
        self.assertIn(len(begun) - len(ended), (0, 1))
        self.assertGreater(len(begun), 0)
        self.assertIn("log_max", begun[0]["message"])
        # Nothing younger than log_keep went for something newer, summaries included.
        self.assertEqual(end["rotated_away"], 0)
        # Exact per kernel: what the seconds' summaries say is what was summarised; the session's sum up all.
        seconds, session = collections.Counter(), collections.Counter()
        for summary in log["kernel_summary"]:
            (session if summary["session"] else seconds)[summary["name"]] += summary["count"]
        self.assertEqual(sum(seconds.values()), end["summarised"])
        for name in "abc":
            self.assertEqual(session[name], played.result["kernels"][name]["returned"])
        written = collections.Counter(e["name"] for e in log.kernels)
        self.assertEqual(seconds + written, session)

    def test_black_box_mode_writes_summaries_only(self):
        played, _ = self.play_and_watch(quick_plan(times=5000, threads=3), GPUFLIGHT_MODE="blackbox")
        log = self.log("logs/log.ndjson")
        end = self.assert_balanced(log)
        self.assertEqual((end["seen"], end["summarised"], end["written"]), (15_000, 15_000, 0))
        self.assertEqual(log.kernels, [])
        self.assertEqual(sum(s["count"] for s in log["kernel_summary"] if not s["session"]), 15_000)
        self.assertEqual(log.start["mode"], "blackbox")
        self.assertEqual(played.result["launches"]["returned"], 15_000)

    def test_no_compression(self):
        self.play_and_watch(quick_plan(times=3000), GPUFLIGHT_COMPRESS="off", GPUFLIGHT_LOG_SEGMENT="256K")
        self.assertGreater(len(segments(self.dir / "logs" / "log.ndjson")), 3)
        self.assertEqual([f for f in os.listdir(self.dir / "logs") if ".zst" in f], [])
        self.assert_balanced(self.log("logs/log.ndjson"))

    def test_a_rotated_log_can_be_followed_by_name(self):
        """The live file keeps its name; what was in it is in the next segment number."""
        folder = self.dir / "logs"
        folder.mkdir()
        plan = quick_plan(times=6000)
        plan["threads"][0]["rate"] = 3000
        file = self.plan_file(plan)
        env = environment(GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_LOG_SEGMENT="256K", GPUFLIGHT_SIM_PLAN=file)
        with started(PLAYER, file, env=env) as process:
            inodes = set()
            while process.poll() is None:
                try:
                    inodes.add(os.stat(folder / "log.ndjson").st_ino)
                except FileNotFoundError:
                    pass
                time.sleep(0.005)
            self.assertEqual(process.returncode, 0)
        self.assertGreater(len(inodes), 2)
        self.assertEqual(len(self.log("logs/log.ndjson").kernels), 6000)


if __name__ == "__main__":
    main()
