#!/usr/bin/env python3
"""Hosts that close all descriptors, delete the log's folder, move about, drop their rights, cancel threads."""
import os
import shutil

from sim_host import HOSTS, SANITIZE, SLOW, SimTest, main

import unittest

HOST = HOSTS / "hostile_host"


class Host(SimTest):
    def run_verb(self, *arguments, **options):
        return self.run_host(HOST, *arguments, GPUFLIGHT_SIM_DEVICE="sm_86", **options)

    def test_all_descriptors_closed_and_taken_by_the_host(self):
        own = self.dir / "own"
        own.mkdir()
        self.run_verb("close_fds", own)  # exit 1: one of its files was written to or closed
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], 100 + 20 * 100)
        self.assertEqual(len(log.kernels), 2100)
        self.assertEqual({f: os.path.getsize(own / f) for f in os.listdir(own) if os.path.getsize(own / f)}, {})

    def test_folder_of_the_log_deleted(self):
        folder = self.dir / "logs"
        self.run_verb("remove_folder", folder, GPUFLIGHT_LOG=folder / "log.ndjson")
        # Made anew: what came after is there, what went is counted.
        log = self.log("logs/log.ndjson")
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], 100 + 20 * 50)
        self.assertEqual(end["written"], 1100)
        self.assertEqual(len(log.kernels), end["written"] - end["rotated_away"])
        self.assertGreaterEqual(end["rotated_away"], 100)
        self.assertGreater(len(log.kernels), 0)
        self.assertEqual(log["device_info"][0]["device"], 0)

    def test_directory_and_umask_changed(self):
        self.run_verb("move_about", GPUFLIGHT_LOG="rel/log.ndjson", GPUFLIGHT_LOG_SEGMENT="256K")
        log = self.log("rel/log.ndjson")
        self.assertEqual(self.assert_balanced(log)["written"], 2100)
        self.assertEqual(len(log.kernels), 2100)
        self.assertGreater(len(log.files), 3)
        for file in log.files:
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)

    @unittest.skipIf(os.geteuid() != 0, "needs root to have something to drop")
    def test_rights_dropped(self):
        # In a folder that is root's alone: the open file goes on, a new segment cannot be had.
        folder = self.dir / "roots"
        folder.mkdir(mode=0o700)
        self.run_verb("drop_rights", GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_LOG_SEGMENT="256K")
        log = self.log("roots/log.ndjson")
        end = self.assert_balanced(log, lost=None)
        self.assertEqual(end["seen"], 100 + 40 * 500)
        self.assertEqual(end["lost"], end["lost_by_cause"]["write_failed"])
        self.assertEqual(len(log.kernels), end["written"])
        self.assertEqual(end["lost"], 0)

    @unittest.skipIf("address" in SANITIZE, "its runtime does not survive a cancelled thread")
    def test_threads_cancelled_inside_a_launch(self):
        self.run_verb("cancel")
        log = self.log()
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], 10 + 50 * 2 + 10)
        cut = [e for e in log.kernels if e["grid"] == "(3,1,1)"]
        self.assertEqual(len(cut), 50)
        self.assertEqual({(e["status"], e["call_ns"]) for e in cut}, {(None, None)})  # it never came back
        self.assertEqual({e["status"] for e in log.kernels if e["grid"] != "(3,1,1)"}, {0})

    def test_ten_thousand_short_lived_threads(self):
        count = 10_000 if not SANITIZE else 1000
        self.run_verb("threads", count, 16, GPUFLIGHT_EXIT_TIMEOUT_MS="60s", timeout=240)
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], count)
        grids = {e["grid"] for e in log.kernels}
        self.assertEqual(grids, {f"({n},1,1)" for n in range(1, count + 1)})
        slots = {e["seq"] >> 40 for e in log.kernels}
        self.assertLessEqual(len(slots), 200)  # used again, not one for each
        self.assert_unique_seq(log)
        threads = {e["thread"] for e in log.kernels}
        self.assertGreater(len(threads), count // 2)
        kinds = {s["stream"]: s["kind"] for s in log["stream_info"]}
        for event in log.kernels:
            n = int(event["grid"][1:].split(",")[0]) - 1
            self.assertEqual(kinds[event["stream"]], "legacy_default" if n % 2 == 0 else "per_thread_default")

    def test_more_streams_than_the_table_holds(self):
        count = 17_000 if not SANITIZE else 2000
        self.run_verb("streams", count, GPUFLIGHT_EXIT_TIMEOUT_MS="60s", timeout=240)
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], count)
        known = [e for e in log.kernels if e["stream"] is not None]
        self.assertEqual(len({e["stream"] for e in known}), len(known))  # each a stream of its own
        if count > 16_384:
            self.assertEqual(len(known), 16_383)
            self.assertEqual(len(log.notices("stream_table_full")), 1)
            # Not known is null, and the line is whole otherwise.
            self.assertEqual(log.kernels[-1]["name"], "k")


@unittest.skipIf(os.geteuid() != 0 or not shutil.which("mount"), "needs root for a small file system")
class SmallDisk(SimTest):
    def setUp(self):
        super().setUp()
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        if os.system(f"mount -t tmpfs -o size=1m gpuflight-test {self.disk} 2>/dev/null") != 0:
            self.skipTest("may not mount")
        self.addCleanup(os.system, f"umount -l {self.disk}")

    def test_full_disk(self):
        self.run_host(HOST, "move_about", GPUFLIGHT_LOG=self.disk / "log.ndjson", timeout=60 * SLOW)
        log = self.log(self.disk / "log.ndjson", validate=False)
        # 2,100 lines do not fit one megabyte, nor does the flight file, which then is in memory.
        self.assertLess(len(log.kernels), 2100)
        self.assertGreater(len(log.kernels), 300)
        for line in log.lines:
            self.assertTrue(line.endswith(b"}"))
        self.assertEqual(len(log.notices("flight_in_memory")), 1)


if __name__ == "__main__":
    main()
