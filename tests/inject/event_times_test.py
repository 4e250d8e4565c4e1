#!/usr/bin/env python3
"""GPU times by events around every N-th launch that the hooks see: which are timed, that the times are those the
simulated device played, and that nothing of the program's is touched for it."""
import json
import os

import unittest

from guided_host import GuidedTest
from sim_host import HOOKS, HOSTS, LIBRARY, SANITIZE, SimTest, main, quick_plan

BOTH = f"{LIBRARY}:{HOOKS}"
HOST = HOSTS / "event_times_host"
FORKS = HOSTS / "process_host"
NS = 2  # an event's time is a float of milliseconds


def due(launches, every):
    """Numbers from 1: the second, and each N-th after it."""
    return [n for n in range(1, launches + 1) if (n - min(every, 2)) % every == 0 and n >= min(every, 2)]


def synced_plan(*arguments, **keywords):
    """The context goes with the program: what has not ended by then has no time."""
    plan = quick_plan(*arguments, **keywords)
    for thread in plan["threads"]:
        thread["ops"].append({"op": "sync"})
    return plan


class EventTimes(SimTest):
    def options(self, every, **variables):
        return {"LD_PRELOAD": BOTH, "GPUFLIGHT_CAPTURE": "interpose", "GPUFLIGHT_EVENT_TIMES": every, **variables}

    def played(self, plan, every, **variables):
        run = self.play(plan, **self.options(every, **variables))
        self.assertEqual((run.rc, run.stderr), (0, b""))
        log = self.log()
        self.assert_balanced(log)
        self.assert_counts(log, run.result)
        return log

    def hosted(self, what, *more, every=10, **variables):
        run = self.run_host(HOST, what, *more, **self.options(every, **variables))
        log = self.log()
        self.assert_balanced(log)
        return json.loads(run.stdout), log

    def timed(self, log, name=None):
        """Numbers, from 1, of the launches of a kernel that have a time."""
        kernels = [e for e in log.kernels if name in (None, e["name"])]
        return [n for n, e in enumerate(kernels, 1) if e["duration_ns"] is not None]

    def assert_right(self, log, played_ns):
        """Each time is at least what the device played, and not more than its error above that."""
        for event in log.kernels:
            if event["duration_ns"] is None:
                self.assertNotIn("time_source", event)
                continue
            self.assertEqual((event["time_source"], event["start_ns"], event["end_ns"], event["queue_ns"],
                              event["correlation"]), ("events", None, None, None, None))
            want = played_ns[event["name"]]
            self.assertGreaterEqual(event["duration_ns"] + NS + want * 1e-6, want)
            self.assertLessEqual(event["duration_ns"] - event["error_ns"] - NS - want * 1e-6, want)

    def test_which_are_timed_and_how_long_they_took(self):
        plan = {"device": {"board": "h200"},
                "modules": {"m": {"kernels": {"short": {"name": "short", "duration_us": 20},
                                              "long": {"name": "long", "duration_us": 1000},
                                              "once": {"name": "once", "duration_us": 5}}}},
                "threads": [{"ops": [{"op": "stream_create", "stream": "s"},
                                     {"op": "launch", "kernel": "short", "grid": 4, "block": 64, "times": 300},
                                     {"op": "launch", "kernel": "long", "grid": 4, "block": 64, "times": 35, "stream": "s"},
                                     {"op": "launch", "kernel": "once", "grid": 4, "block": 64},
                                     {"op": "launch", "kernel": "short", "grid": 4, "block": 128, "times": 5},
                                     {"op": "sync"}]}]}
        log = self.played(plan, 10)
        self.assertEqual(self.timed(log, "short"), due(300, 10) + [302])  # of the other block the second as well
        self.assertEqual(self.timed(log, "long"), due(35, 10))
        self.assertEqual(self.timed(log, "once"), [])
        self.assert_right(log, {"short": 20_000, "long": 1_000_000})
        end = log.end
        self.assertEqual((end["event_every"], end["event_timed"], end["null_time"]), (10, 30 + 1 + 4, 0))
        self.assertGreater(end["event_cost_ns"], 0)

    def test_every_launch(self):
        log = self.played(synced_plan(50), 1)
        self.assertEqual(self.timed(log), list(range(1, 51)))
        self.assert_right(log, {"k": 1_000})

    def test_forms_of_launches_and_streams(self):
        log = self.played("every_form", 1)
        self.assertGreater(len(self.timed(log)), 10)
        for event in log.kernels:
            if event["captured"]:
                self.assertIsNone(event["duration_ns"])

    def test_off_makes_no_call_of_an_event(self):
        for off in ("off", None):
            calls, log = self.hosted("plain", 500, every=off)
            self.assertEqual(set(calls.values()), {0})
            self.assertEqual(self.timed(log), [])
            self.assertNotIn("event_every", log.end)
            os.remove(self.dir / "log.ndjson")

    def test_calls_of_events_are_few(self):
        calls, log = self.hosted("plain", 500)
        timed = len(due(500, 10))
        self.assertEqual(len(self.timed(log)), timed)
        # Two around each launch, two more to see how long nothing is, four times. Events are made with the first of them.
        self.assertEqual(calls["record"], 2 * timed + 8)
        self.assertLessEqual(calls["create"], 2 * (timed + 12))
        self.assertEqual(calls["destroy"], 0)
        # Not where another source of launches tells the times.
        calls, log = self.hosted("plain", 500, GPUFLIGHT_CAPTURE="cupti", GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1")
        self.assertEqual(set(calls.values()), {0})

    def test_cupti_tells_them_itself(self):
        log = self.played(synced_plan(50), 10, GPUFLIGHT_CAPTURE="cupti", GPUFLIGHT_TIMING="all")
        self.assertEqual(len(self.timed(log)), 50)
        self.assertEqual([e for e in log.kernels if "time_source" in e], [])
        (notice,) = log.notices("event_times")
        self.assertEqual(notice["severity"], "info")
        self.assertIn("no effect", notice["message"])

    def test_a_capture_is_left_alone(self):
        _, log = self.hosted("capture", 40)
        beside = [e for e in log.kernels if e["name"] == "k"]
        self.assertEqual(len(beside), 120)
        # Those of before the capture; of those beside it none; behind it as counted on.
        by_thread = {}
        for event in beside:
            by_thread.setdefault(event["thread"], []).append(event["duration_ns"] is not None)
        mine, other = sorted(by_thread.values(), key=len, reverse=True)
        self.assertEqual([n for n, t in enumerate(mine, 1) if t], due(80, 10))
        self.assertEqual(other, [False] * 40)
        self.assert_right(log, {"k": 20_000})

    def test_a_stream_with_programmatic_launches_is_left_alone(self):
        launch = {"op": "launch", "kernel": "k", "grid": 4, "block": 64, "form": "ex"}
        plan = quick_plan()
        plan["device"]["board"] = "h200"
        plan["threads"] = [{"ops": [{"op": "stream_create", "stream": "a"}, {"op": "stream_create", "stream": "b"},
                                    {**launch, "stream": "a", "times": 20},
                                    {**launch, "stream": "a", "programmatic": True, "times": 20},
                                    {**launch, "stream": "a", "times": 20},
                                    {**launch, "stream": "b", "times": 20}, {"op": "sync"}]}]
        log = self.played(plan, 1)
        self.assertEqual(self.timed(log), list(range(1, 21)) + list(range(61, 81)))

    def test_a_loop_that_waits_at_each_step_is_left_without_marks(self):
        said, log = self.hosted("waits", 100)
        self.assertEqual((len(log.kernels), len(log["sync_event"])), (100, 100))
        self.assertLessEqual(said["marks"], 1 + 3 * said["slow"])  # the first, and where a step took over 10 ms
        self.assertGreaterEqual(said["marks"], 1)

    def test_a_capture_that_ends_unjoined_is_over(self):
        _, log = self.hosted("unjoined", 40)
        self.assertEqual([e["captured"] for e in log.kernels], [True] + [False] * 40)
        self.assertGreaterEqual(len(self.timed(log)), 4)

    def test_a_refused_launch_has_none(self):
        launch = {"op": "launch", "kernel": "k", "grid": 4, "block": 64}
        plan = quick_plan()
        plan["threads"] = [{"ops": [{**launch, "times": 11}, {**launch, "expect": 701}, {**launch, "times": 50},
                                    {"op": "sync"}]}]
        run = self.play(plan, **self.options(10, GPUFLIGHT_SIM_LAUNCH_ERROR="12:701"))
        self.assertEqual(run.rc, 0, run.stderr)
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(self.timed(log), [n for n in due(62, 10) if n != 12])
        self.assertEqual([e["status"] for e in log.kernels][11], 701)

    def test_contexts_go_while_launches_are_in_flight(self):
        for what, most in (("context", 80 * 20 + 40), ("reset", 20 * 20)):
            with self.subTest(what):
                calls, log = self.hosted(what)
                self.assertEqual(len(log.kernels), most)
                self.assertEqual(calls["destroy"], 0)
                given_up = sum(1 for e in log.kernels if e["duration_ns"] is None)
                self.assertLessEqual(log.end["event_timed"], most - given_up + log.end["null_time"])
                self.assertGreater(log.end["null_time"], 0)
                os.remove(self.dir / "log.ndjson")

    def test_what_has_not_ended_at_the_end_has_none(self):
        calls, log = self.hosted("unfinished")
        self.assertEqual((len(log.kernels), self.timed(log)), (50, []))
        self.assertEqual(log.end["null_time"], log.end["event_timed"])

    def test_the_programs_state_is_as_it_was(self):
        self.hosted("state", 300, every=1)

    @unittest.skipIf("thread" in SANITIZE, "the sanitizer forbids threads in a forked child")
    def test_forks(self):
        for what in ("fork_after", "fork_first", "raw_clone"):
            with self.subTest(what):
                self.run_host(FORKS, what, **self.options(3, GPUFLIGHT_LOG=self.dir / f"{what}.%p.ndjson"))
                logs = sorted(self.dir.glob(f"{what}.*.ndjson"))
                self.assertGreater(len(logs), 0)
                for path in logs:
                    log = self.log(path.name)
                    self.assertEqual({e["duration_ns"] is None for e in log.kernels}, {True, False})

    def test_many_threads(self):
        plan = synced_plan(500, threads=16, board="h200")
        plan["threads"][0]["ops"][0]["stream"] = "per_thread"
        log = self.played(plan, 7)
        self.assertEqual(len(log.kernels), 8000)
        timed = len(self.timed(log))
        self.assertGreater(timed, 100)
        self.assertLessEqual(timed, 16 * len(due(500, 7)))
        self.assertEqual(timed + log.end["null_time"], log.end["event_timed"])
        self.assert_right(log, {"k": 1_000})

    def test_the_interval_grows_where_it_costs_too_much(self):
        plan = synced_plan(60_000)
        plan["threads"][0]["rate"] = 100_000
        log = self.played(plan, 1)
        end = log.end
        self.assertGreater(end["event_every"], 1)
        self.assertEqual(end["event_every"] & (end["event_every"] - 1), 0)  # doubled, and doubled again
        self.assertLess(end["event_timed"], 60_000)

    def test_a_black_box_sums_them_up(self):
        run = self.play(synced_plan(200), **self.options(10, GPUFLIGHT_MODE="blackbox"))
        self.assertEqual(run.rc, 0)
        log = self.log()
        whole = [s for s in log["kernel_summary"] if s["session"]]
        self.assertEqual([(s["count"], s["timed"]) for s in whole], [(200, 20)])
        self.assertGreaterEqual(whole[0]["min_ns"], 1_000 - NS)


@unittest.skipIf(SANITIZE, "hooks are not preloaded into hosts of a sanitizer")
class Switched(GuidedTest):
    def test_while_the_hooks_stand_in_for_cupti(self):
        host = self.guided("k:0.001", LD_PRELOAD=BOTH, GPUFLIGHT_EVENT_TIMES="10")
        host.do("launch k 20")
        self.tool("pause", "--release", host.pid)
        host.do("launch k 30")
        self.tool("resume", host.pid)
        host.do("launch k 40")
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assert_balanced(log)
        sources = [e.get("time_source", "cupti" if e["duration_ns"] is not None else None) for e in log.kernels]
        self.assertEqual(sources[:20] + sources[50:], ["cupti"] * 60)
        self.assertEqual([n for n, s in enumerate(sources[20:50], 1) if s == "events"], due(30, 10))
        self.assertEqual(sources[20:50].count("cupti"), 0)


if __name__ == "__main__":
    main()
