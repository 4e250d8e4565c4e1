#!/usr/bin/env python3
"""A budget for the recorder's own cost: over it less is recorded, under it again more, each change is in the log, and
whatever the level every launch is counted once."""
import json
import os
import signal
import time
import unittest

from guided_host import PATIENCE, TOOL, GuidedTest
from kill_rounds import recover
from sim_host import BUILD, CAPTURE, HOOKS, SANITIZE, environment, main, started

LONG = 6 * PATIENCE  # steps up want several periods of a second each
# Less than a program pays that launches as fast as it can, many times what an idle one does.
BUDGET = "8%" if SANITIZE else "3%"


class Follower:
    """What is new in a log, by type: rare lines themselves, of launches their number."""

    def __init__(self, path):
        self.path, self.at, self.rest = path, 0, b""
        self.levels, self.notices, self.lines, self.summarised = [], [], 0, 0

    def look(self):
        if not self.path.exists():
            return self
        with open(self.path, "rb") as file:
            file.seek(self.at)
            text = file.read()
        self.at += len(text)
        *lines, self.rest = (self.rest + text).split(b"\n")
        for line in lines:
            if line.startswith(b'{"type":"kernel_event"'):
                self.lines += 1
            elif line.startswith(b'{"type":"kernel_summary"'):
                self.summarised += json.loads(line)["count"]
            elif line.startswith(b'{"type":"level_event"'):
                self.levels.append(json.loads(line))
            elif line.startswith(b'{"type":"notice_event"'):
                self.notices.append(json.loads(line)["code"])
        return self

    @property
    def launches(self):
        return self.lines + self.summarised

    @property
    def level(self):
        return self.levels[-1]["to"] if self.levels else "events"


class Budget(GuidedTest):
    def budgeted(self, *kernels, **variables):
        variables.setdefault("GPUFLIGHT_BUDGET", BUDGET)
        variables.setdefault("GPUFLIGHT_FLUSH_MS", "200ms")
        # One file to follow: a bounded log has smaller segments, whatever their size is set to.
        variables.setdefault("GPUFLIGHT_LOG_MAX", "0")
        variables.setdefault("GPUFLIGHT_LOG_SEGMENT", "4G")
        # A program that launches without a driver's work outruns a recorder that waits for its processor.
        variables.setdefault("GPUFLIGHT_POOL", "128M")
        # On a machine with very many processors what the recorder's thread takes of them is next to nothing.
        variables.setdefault("preexec", lambda: os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2]))
        host = self.guided(*(kernels or ("k:0.001",)), **variables)
        host.launched = 0
        host.seen = Follower(host.log)
        return host

    def launch(self, host, times):
        self.assertEqual(host.do(f"launch k {times}"), "0")
        host.launched += times

    def until(self, host, done, step=lambda: time.sleep(0.02)):
        deadline = time.monotonic() + LONG
        while not done(host.seen.look()):
            self.assertLess(time.monotonic(), deadline, (host.seen.levels, host.seen.notices))
            step()

    def down_to(self, host, *levels):
        """Faster and faster, and fast once launches have no lines: the log stays small."""
        burst = 400

        def step():
            nonlocal burst
            if host.seen.level == "events":
                self.launch(host, int(burst))
                burst *= 1.01
                time.sleep(0.01)
            else:
                self.launch(host, 5000)
        self.until(host, lambda seen: seen.level in levels, step)

    def up_to(self, host, level):
        self.until(host, lambda seen: seen.level == level)

    def assert_counted(self, launched, log=None, **report):
        """By the log's end, by its ledger, by the lines themselves and by report."""
        log = log or self.log()
        end = self.assert_balanced(log)
        self.assertEqual(end["launches"], launched)
        lines = [e for e in log.kernels if not e["captured"]]
        summed = sum(s["count"] for s in log["kernel_summary"] if not s["session"])
        self.assertEqual(len(lines) + summed, launched)
        self.assertEqual(end["summarised"], summed)
        self.assertEqual(sum(s["count"] for s in log["kernel_summary"] if s["session"]), launched)
        told = json.loads(self.tool("report", "--json", log.path).stdout)
        self.assertEqual(told["totals"]["launches"], launched)
        self.assertEqual(told["groups"][0]["launches"], launched)
        return told

    def assert_chain(self, log, lowest):
        """Each change begins where the last one ended, and says what it rests on."""
        level = "events"
        for change in log["level_event"]:
            self.assertEqual(change["from"], level)
            level = change["to"]
            self.assertAlmostEqual(change["share_percent"], change["app_percent"] + change["recorder_percent"], 5)
            self.assertLessEqual(change["floor_percent"], change["app_percent"] + 1e-6)
            if change["reason"] == "over_budget":
                self.assertGreater(change["share_percent"], change["budget_percent"])
        self.assertEqual(log["level_event"][-1]["reason"], "end")
        self.assertIn(lowest, [c["to"] for c in log["level_event"]])


BELOW = ("sampled", "summaries", "hooks")
NO_TIMES = CAPTURE == "interpose" or os.environ.get("GPUFLIGHT_TEST_TIMING") == "off"
needs_times = unittest.skipIf(NO_TIMES, "there are no GPU times")


@unittest.skipIf("thread" in SANITIZE, "what it costs there says nothing")
class Levels(Budget):
    def test_down_under_load_and_up_again(self):
        host = self.budgeted()
        self.down_to(host, *BELOW)
        lowest = host.seen.level
        for _ in range(10):
            self.launch(host, 2000)
        self.up_to(host, "events")
        for _ in range(3):
            self.launch(host, 100)
        code, _, stderr = host.end()
        self.assertEqual((code, stderr), (0, b""))
        log = self.log()
        self.assert_chain(log, lowest)
        told = self.assert_counted(host.launched, log)
        # What was launched last has lines again.
        last = max(c["time_ns"] for c in log["level_event"] if c["reason"] == "fits")
        self.assertEqual(sum(e["launch_ns"] > last for e in log.kernels), 300)
        changes = [c for c in log["level_event"] if c["reason"] != "end"]
        budget = told["logs"][0]["budget"]
        self.assertEqual(budget["changes"], len(changes))
        self.assertEqual(budget["level"], "events")
        self.assertEqual([e["to"] for e in budget["events"]], [c["to"] for c in changes])
        self.assertEqual(sum(budget["time_ns"].values()), log.end["time_ns"])
        self.assertGreater(budget["mean"]["share_percent"], 0)
        text = self.tool("report", log.path).stdout
        self.assertIn(f"budget     {BUDGET[:-1]} %: {len(changes)} changes", text)
        self.assertIn(f" at {lowest}", text)
        shown = self.tool("tail", "-n", "all", "--no-follow", log.path).stdout
        self.assertEqual(shown.count("  level: "), len(changes) + 1)
        self.assertIn("over budget", shown)

    def test_samples_have_lines_and_the_rest_is_summed_up(self):
        host = self.budgeted()
        self.down_to(host, *BELOW)
        self.assertEqual(host.seen.level, "sampled")
        self.launch(host, 5000)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        sampled = [e for e in log.kernels if e["launch_ns"] > log["level_event"][0]["time_ns"]]
        self.assertGreaterEqual(len(sampled), 50)
        self.assertLessEqual(len(sampled), (host.launched - len(log.kernels)) // 99 + 1)
        # Each 100th by its place in the thread: all of them are of one configuration.
        places = [e["seq"] for e in sampled]
        self.assertEqual({b - a for a, b in zip(places, places[1:])}, {100})
        self.assert_counted(host.launched, log)

    @needs_times
    def test_gpu_times_are_off_below_and_on_again(self):
        host = self.budgeted()
        self.down_to(host, *BELOW)
        self.launch(host, 1000)
        self.up_to(host, "events")
        self.launch(host, 50)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        down = min(c["time_ns"] for c in log["level_event"])
        up = max(c["time_ns"] for c in log["level_event"] if c["reason"] == "fits")
        between = [e for e in log.kernels if down < e["launch_ns"] < up]
        after = [e for e in log.kernels if e["launch_ns"] > up]
        self.assertTrue(all(e["start_ns"] is None for e in between))
        self.assertEqual(len(after), 50)
        self.assertTrue(all(e["start_ns"] is not None for e in after), after[0])
        self.assertEqual(log.gpu_kernels, [])
        self.assert_counted(host.launched, log)

    @needs_times
    def test_what_others_have_switched_off_stays_off(self):
        host = self.budgeted()
        self.down_to(host, *BELOW)
        self.assertNotEqual(self.tool("timing", "on", host.pid, expect=None).returncode, 0)
        self.tool("timing", "off", host.pid)
        self.up_to(host, "events")
        self.launch(host, 50)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        up = max(c["time_ns"] for c in log["level_event"] if c["reason"] == "fits")
        self.assertEqual([e["start_ns"] for e in log.kernels if e["launch_ns"] > up], [None] * 50)
        self.assertEqual(len(log.notices("budget_holds_times")), 1)
        self.assert_counted(host.launched, log)

    def test_paused_and_resumed_at_a_lower_level(self):
        host = self.budgeted()
        self.down_to(host, *BELOW)
        self.tool("pause", host.pid)
        self.assertEqual(host.do("launch k 70"), "0")  # not seen
        self.tool("resume", host.pid)
        self.launch(host, 30)
        self.up_to(host, "events")
        self.launch(host, 50)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assert_counted(host.launched, log)
        if not NO_TIMES:
            self.assertEqual(sum(e["start_ns"] is not None for e in log.kernels[-50:]), 50)

    def test_unattainable_is_said_once_with_the_floor(self):
        host = self.budgeted(GPUFLIGHT_BUDGET="0.0001%")
        def step():
            self.launch(host, 200)
            time.sleep(0.01)

        self.until(host, lambda seen: "budget_unattainable" in seen.notices, step)
        for _ in range(10):
            self.launch(host, 2000)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        said = log.notices("budget_unattainable")
        self.assertEqual(len(said), 1)
        self.assertEqual(said[0]["severity"], "warning")
        self.assertRegex(said[0]["message"], r"^the budget of 0\.0001 % is unattainable, floor [0-9.e+-]+ %")
        self.assertNotIn("fits", [c["reason"] for c in log["level_event"]])
        self.assert_counted(host.launched, log)

    def test_a_killed_program_lacks_nothing(self):
        host = self.budgeted(GPUFLIGHT_BUDGET="0.1%")
        self.down_to(host, "summaries")
        for _ in range(10):
            self.launch(host, 2000)
        # These are summed up; what comes now is not yet when the program is killed.
        self.until(host, lambda seen: seen.launches == host.launched)
        self.launch(host, 100)
        host.process.send_signal(signal.SIGKILL)
        host.process.wait()
        code, _ = recover(self.dir / "log.flight")
        self.assertEqual(code, 4)
        told = json.loads(self.tool("report", "--json", self.dir).stdout)
        self.assertEqual(told["totals"]["launches"], host.launched)

    @needs_times
    def test_a_killed_program_with_work_that_has_not_ended(self):
        host = self.budgeted("k:0.001", "long:600000", GPUFLIGHT_BUDGET="0.1%")
        host.do("stream s")

        def step():
            host.do("launch long 1 s")  # it has no line yet, so none of its chunk counts as dealt with
            host.launched += 1
            for _ in range(10):
                self.launch(host, 20)
                time.sleep(0.005)

        self.until(host, lambda seen: seen.level == "summaries", step)
        self.launch(host, 20)
        summarised = host.seen.summarised
        self.until(host, lambda seen: seen.summarised > summarised)
        host.process.send_signal(signal.SIGKILL)
        host.process.wait()
        self.assertEqual(recover(self.dir / "log.flight")[0], 4)
        told = json.loads(self.tool("report", "--json", self.dir).stdout)
        self.assertEqual(told["totals"]["launches"], host.launched)

    def test_black_box(self):
        host = self.budgeted(GPUFLIGHT_MODE="blackbox")
        if NO_TIMES:  # nothing to step down to
            for _ in range(20):
                self.launch(host, 2000)
        else:
            self.down_to(host, "summaries")
            self.up_to(host, "events")
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assertNotIn("sampled", [c["to"] for c in log["level_event"]])
        self.assertEqual(log.end["launches"], host.launched)
        self.assert_balanced(log)
        told = json.loads(self.tool("report", "--json", log.path).stdout)
        self.assertEqual(told["totals"]["launches"], host.launched)


class Option(Budget):
    def test_without_a_budget_nothing_of_it_is_there(self):
        host = self.budgeted(GPUFLIGHT_BUDGET=None)
        host.do("launch k 10")
        self.assertEqual(host.end()[0], 0)
        self.assertEqual(self.log()["level_event"], [])
        self.assertEqual(self.log().start["configuration"]["budget"], "off")
        told = json.loads(self.tool("report", "--json", self.dir / "log.ndjson").stdout)
        self.assertIsNone(told["logs"][0]["budget"])
        self.assertNotIn("budget", self.tool("report", self.dir / "log.ndjson").stdout)

    def test_one_that_is_kept_changes_nothing(self):
        host = self.budgeted(GPUFLIGHT_BUDGET="100%")
        host.do("launch k 10")
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assertEqual([e["reason"] for e in log["level_event"]], ["end"])
        self.assertEqual(len(log.kernels), 10)
        self.assertEqual(log.start["configuration"]["budget"], "100%")

    def test_a_budget_that_is_none_is_said(self):
        host = self.budgeted(GPUFLIGHT_BUDGET="lots")
        self.assertEqual(host.end()[0], 0)
        self.assertIn("expected off or a percentage", self.log().notices("option")[0]["message"])
        wrong = self.tool("run", "--budget", "0%", "--", "true", expect=2)
        self.assertIn("expected off or a percentage", wrong.stderr)


@unittest.skipIf(CAPTURE == "interpose" or SANITIZE or not HOOKS.exists(), "a run of its own, with the hooks at hand")
class Hooks(Budget):
    """Preloaded beside CUPTI, they are the last level."""

    def with_hooks(self, **variables):
        return self.budgeted(LD_PRELOAD=f"{BUILD / 'lib' / 'libgpuflight.so'}:{HOOKS}", GPUFLIGHT_CAPTURE="auto", **variables)

    @needs_times
    def test_to_the_hooks_and_back_to_cupti(self):
        host = self.with_hooks()
        self.down_to(host, "hooks")
        self.launch(host, 1000)
        self.up_to(host, "events")
        self.launch(host, 50)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assertGreaterEqual(len(log.notices("hooks_stand_in")), 1)
        self.assertEqual(len(log.notices("hooks_stand_in")), len(log.notices("cupti_again")))
        self.assert_chain(log, "hooks")
        self.assert_counted(host.launched, log)
        self.assertTrue(all(e["start_ns"] is not None for e in log.kernels[-50:]))

    @needs_times
    def test_resumed_at_the_level_of_the_hooks(self):
        host = self.with_hooks()
        self.down_to(host, "hooks")
        self.tool("pause", "--release", host.pid)
        self.launch(host, 50)
        self.tool("resume", host.pid)
        self.until(host, lambda seen: seen.level != "hooks")
        self.launch(host, 50)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assertEqual(len(log.notices("hooks_stand_in")), len(log.notices("cupti_again")))
        self.assert_chain(log, "hooks")
        self.assert_counted(host.launched, log)

    @needs_times
    def test_whoever_wants_the_slot_keeps_it(self):
        host = self.with_hooks()
        self.down_to(host, *BELOW)
        self.tool("pause", "--release", host.pid)
        self.launch(host, 100)
        self.up_to(host, "events")
        self.launch(host, 50)
        self.assertEqual(host.seen.look().notices.count("cupti_again"), host.seen.notices.count("hooks_stand_in") - 1)
        self.tool("resume", host.pid)
        self.launch(host, 50)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assert_counted(host.launched, log)
        self.assertEqual([e["start_ns"] is None for e in log.kernels[-100:]], [True] * 50 + [False] * 50)

    def test_run_says_that_it_cannot_be_kept(self):
        plan = self.plan_file({"device": {"board": "sm_86"}, "modules": {"m": {"kernels": {"k": {"name": "k"}}}},
                               "threads": [{"ops": [{"op": "repeat", "times": 60, "ops": [
                                   {"op": "launch", "kernel": "k", "grid": 1, "block": 64, "times": 2000},
                                   {"op": "delay", "us": 100000}]}]}]})
        env = environment(preload=False, GPUFLIGHT_SIM_PLAN=plan, GPUFLIGHT_LOG=self.dir / "log.ndjson",
                          GPUFLIGHT_LIB=BUILD / "lib" / "libgpuflight.so")
        with started(TOOL, "run", "--budget", "0.0001%", "--", BUILD / "sim" / "gpuflight-play", plan, env=env,
                     stderr=-1, text=True) as run:
            stderr = run.communicate(timeout=LONG)[1]
            self.assertEqual(run.returncode, 0, stderr)
        self.assertIn("gpuflight: the budget of 0.0001 % is unattainable, floor ", stderr)
        self.assertIn("120,000 launches", stderr)


if __name__ == "__main__":
    main()
