#!/usr/bin/env python3
"""The recorder's own memory at 64 launching threads: at most 96 MB, however long the run; with GPU times, for which
CUPTI's buffers are read and the launches that wait are remembered, at most 128 MB more."""
from sim_host import HOSTS, SANITIZE, SimTest, main

import json
import sys

HOST = HOSTS / "hostile_host"
MOST_MB = 96


class Memory(SimTest):
    def measure(self, launches, name, **options):
        run = self.run_host(HOST, "memory", 64, launches, GPUFLIGHT_LOG=self.dir / name, GPUFLIGHT_SIM_DEVICE="sm_90",
                            GPUFLIGHT_EXIT_TIMEOUT_MS="60s", timeout=120, **options)
        pss, private = (int(kb) / 1024 for kb in run.stdout.split())
        return pss, private

    def test_64_threads(self):
        bare = self.measure(2_000, "none", preload=False)
        short = self.measure(4_000, "short.ndjson", GPUFLIGHT_TIMING="off")
        long = self.measure(12_000, "long.ndjson", GPUFLIGHT_TIMING="off")
        timed = self.measure(12_000, "timed.ndjson")
        added = [(with_us[0] - bare[0], with_us[1] - bare[1]) for with_us in (short, long)]
        print("added by the recorder, MB (anonymous): "
              f"{added[0][0]:.1f} ({added[0][1]:.1f}) for 256,000 launches, "
              f"{added[1][0]:.1f} ({added[1][1]:.1f}) for 768,000; the process without it: {bare[0]:.1f}")
        self.assertGreater(added[0][0], 1)  # it was measured at all
        for total, _ in added:
            self.assertLess(total, MOST_MB)
        self.assertLess(timed[0] - bare[0], MOST_MB + 128)
        # Three times as many launches take no more, also of what the compressor takes for each segment.
        self.assertLess(added[1][1] - added[0][1], 8)
        with open(self.dir / "long.ndjson", "rb") as file:  # the whole log is half a gigabyte of lines
            end = json.loads(file.read().splitlines()[-1])
        self.assertEqual(end["type"], "session_end")
        self.assertEqual(end["seen"], 64 * 12_000)
        self.assertGreater(end["written"], end["seen"] // 2)
        self.assertEqual((end["kernels"], end["configs"]), (64, 64 * 8))


if __name__ == "__main__":
    if SANITIZE:
        print("a sanitizer's memory is its own")
        sys.exit(77)
    main()
