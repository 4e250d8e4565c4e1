#!/usr/bin/env python3
"""Launches of a burst share times: what the log says of when each began holds against the program's own clock."""
import json

from kill_rounds import recover
from sim_host import HOOKS, HOSTS, LIBRARY, SANITIZE, SimTest, main

HOST = HOSTS / "burst_host"
STEP_NS = 10_000  # docs/FORMAT.md


class Burst(SimTest):
    def told(self, what, n, *more, expect=0, **variables):
        run = self.run_host(HOST, what, n, *more, LD_PRELOAD=f"{LIBRARY}:{HOOKS}", GPUFLIGHT_CAPTURE="interpose",
                            expect=expect, **variables)
        self.by_thread = {int(tid): list(zip(t[::2], t[1::2])) for tid, t in json.loads(run.stdout)["threads"].items()}
        return list(self.by_thread.values())

    def assert_held(self, log):
        t0 = log.start["t0_monotonic_ns"]
        threads = {}
        for event in sorted(log.kernels, key=lambda e: e["seq"]):
            threads.setdefault(event["thread"], []).append(event)
        self.assertEqual(set(threads), set(self.by_thread))
        slack = 2_000 + 100_000 * bool(SANITIZE)  # two clocks that are held against each other
        for tid, events in threads.items():
            times = self.by_thread[tid]
            self.assertEqual(len(events), len(times))
            before = 0
            for event, (begin, end) in zip(events, times):
                error = event.get("launch_error_ns", 0)
                where = (event, begin - t0, end - t0)
                if error is not None:
                    self.assertGreaterEqual(event["launch_ns"] + error, begin - t0 - slack, where)
                    self.assertLessEqual(event["launch_ns"] - error, end - t0 + slack, where)
                self.assertLessEqual(event["launch_ns"], end - t0 + slack + (error or 0), where)
                self.assertGreaterEqual(event["launch_ns"], before - slack, where)
                before = event["launch_ns"]
                if "launch_error_ns" in event:
                    self.assertIsNone(event["call_ns"])
        return list(threads.values())

    def shared(self, events):
        return [e for e in events if "launch_error_ns" in e]

    def test_one_in_eight_is_read(self):
        self.told("plain", 4000)
        log = self.log()
        self.assert_balanced(log)
        (events,) = self.assert_held(log)
        shared = self.shared(events)
        # Bursts end with the recorder's rounds, and with every launch that comes late on a busy machine.
        self.assertGreater(len(shared), 4000 * (0.2 if SANITIZE else 0.6))
        self.assertLess(len(shared), 4000 * 7 / 8)
        errors = sorted(e["launch_error_ns"] for e in shared)
        self.assertLess(errors[len(errors) // 2], 8 * STEP_NS)
        runs = [0]
        for event in events:
            runs = runs + [0] if "launch_error_ns" not in event else runs[:-1] + [runs[-1] + 1]
        self.assertEqual(max(runs), 7)

    def test_threads(self):
        self.told("plain", 2000, 4)
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(len(self.assert_held(log)), 4)

    def test_all_are_read_where_that_is_asked_for(self):
        for more in ({"GPUFLIGHT_CALL_TIMES": "all"}, {"GPUFLIGHT_EVENT_TIMES": "100"}):
            self.told("plain", 1000, **more)
            (events,) = self.assert_held(self.log())
            self.assertEqual(self.shared(events), [])
            (self.dir / "log.ndjson").unlink()

    def test_a_pause_is_in_the_error(self):
        told = self.told("paused", 500)
        (events,) = self.assert_held(self.log())
        # Where it came between two readings, nobody knows behind which launch; none is put into the middle of it.
        begun = told[0][500][0] - told[0][499][1]
        self.assertGreater(begun, 19_000_000)
        for one, next_one in zip(events[480:499], events[481:500]):
            self.assertLess(next_one["launch_ns"] - one["launch_ns"], 10_000_000 if SANITIZE else 5_000_000)

    def test_between_other_calls_and_refusals(self):
        self.told("mixed", 1000)
        log = self.log()
        self.assert_balanced(log)
        (events,) = self.assert_held(log)
        failed = [i for i, e in enumerate(events) if e["status"] != 0]
        self.assertEqual(failed, [i for i in range(1000) if i % 70 == 40])
        copies = [e for e in log["api_event"] if e["call"].startswith("cuMemcpyHtoDAsync")]
        self.assertEqual(len(copies), 20)

    def test_a_module_that_comes_ends_it(self):
        self.told("unloaded", 500)
        (events,) = self.assert_held(self.log())
        self.assertEqual([e["name"] for e in events], ["k"] * 500 + ["other"] * 500)

    def test_a_thread_that_ends(self):
        told = self.told("exit", 300)
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(len(log.kernels), len(told[0]))

    def test_what_a_kill_leaves(self):
        self.told("killed", 3000, expect=-9, GPUFLIGHT_FLUSH_MS="200")
        recover(self.dir / "log.flight")
        log = self.log()
        if (self.dir / "log.recovered.ndjson").exists():
            log.by_type["kernel_event"] += self.log("log.recovered.ndjson")["kernel_event"]
        (events,) = self.assert_held(log)
        self.assertEqual(len(events), 3000)
        unknown = [i for i, e in enumerate(events) if e.get("launch_error_ns", 0) is None]
        self.assertLessEqual(len(unknown), 7)
        self.assertEqual(unknown, list(range(3000 - len(unknown), 3000)))


if __name__ == "__main__":
    main()
