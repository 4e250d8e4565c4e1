#!/usr/bin/env python3
"""On a hit no allocation, no lock, no system call: counted in the launching thread, against the same program bare."""
import json
import sys

from sim_host import HOSTS, SANITIZE, SimTest, main

HOST = HOSTS / "hot_path_host"
KINDS = ("allocations", "locks", "launches_with_syscall")


class HotPath(SimTest):
    def count(self, *arguments, **options):
        run = self.run_host(HOST, *arguments, expect=None, **options)
        if run.returncode == 77:
            self.skipTest(run.stderr.decode().strip())
        self.assertEqual((run.returncode, run.stderr), (0, b""), run.stderr)
        counts = json.loads(run.stdout)
        self.assertEqual(counts["failed"], 0)
        return counts

    def compare(self, warm_up, launches, **variables):
        # A stream marker is a call of the driver's, with whatever that takes, and its cost is known: none for these.
        # So it is with CUPTI's activity records, which CUPTI makes on the launching thread.
        variables.setdefault("GPUFLIGHT_MARKERS", "off")
        variables.setdefault("GPUFLIGHT_TIMING", "off")
        bare = self.count(warm_up, launches, preload=False)
        with_us = self.count(warm_up, launches, **variables)
        log = self.log()
        self.assertEqual(len(log.kernels), warm_up + launches)  # it did record
        self.assertEqual({k: with_us[k] - bare[k] for k in KINDS}, dict.fromkeys(KINDS, 0), (with_us, bare))

    def test_within_one_chunk(self):
        self.compare(20, 200)

    def test_across_chunks(self):
        # A chunk holds 255 records: its refill is on the path too, and every 256th launch times itself.
        self.compare(20, 5000)

    def test_without_details(self):
        self.compare(20, 600, GPUFLIGHT_DETAILS="off")

    def test_launches_of_graphs(self):
        bare = self.count(20, 2000, "graph", preload=False)
        with_us = self.count(20, 2000, "graph", GPUFLIGHT_MARKERS="off", GPUFLIGHT_TIMING="off")
        log = self.log()
        self.assertEqual(len(log["graph_launch_event"]), 2020)
        self.assertEqual(log.end["replayed_kernels"], 202_000)
        self.assertEqual({k: with_us[k] - bare[k] for k in KINDS}, dict.fromkeys(KINDS, 0), (with_us, bare))

    def test_in_black_box_mode(self):
        bare = self.count(20, 2000, preload=False)
        with_us = self.count(20, 2000, GPUFLIGHT_MODE="blackbox", GPUFLIGHT_MARKERS="off",
                             GPUFLIGHT_TIMING="off")
        self.assertEqual(self.assert_balanced(self.log())["summarised"], 2020)
        self.assertEqual({k: with_us[k] - bare[k] for k in KINDS}, dict.fromkeys(KINDS, 0), (with_us, bare))

    def test_markers_are_few(self):
        bare = self.count(20, 5000, preload=False)
        with_us = self.count(20, 5000)
        self.assertLess(with_us["launches_with_syscall"] - bare["launches_with_syscall"], 5000 // 20)

    def test_the_counters_count(self):
        counts = self.count(20, 200, "bad")
        self.assertGreaterEqual(counts["allocations"], 400)
        self.assertGreaterEqual(counts["locks"], 200)
        self.assertEqual(counts["launches_with_syscall"], 200)

    def test_a_miss_does_all_of_it(self):
        # No warm-up: the first launch resolves its kernel, so that zero above is not for want of looking.
        bare = self.count(0, 50, preload=False)
        with_us = self.count(0, 50)
        self.assertGreater(with_us["allocations"], bare["allocations"])
        self.assertGreater(with_us["locks"], bare["locks"])


if __name__ == "__main__":
    if SANITIZE:
        print("a sanitizer has taken malloc already")
        sys.exit(77)
    main()
