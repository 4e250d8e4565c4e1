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

BURST = 2000  # launches; so many take the simulated device some milliseconds
LONG = 6 * PATIENCE  # steps up want several periods of a second each
# A twentieth of a thread's time: so much a program that only launches pays, and no idle one.
BUDGET = "5%"


class Budget(GuidedTest):
    def budgeted(self, *kernels, **variables):
        variables.setdefault("GPUFLIGHT_BUDGET", BUDGET)
        host = self.guided(*(kernels or ("k:0.001",)), **variables)
        host.launched = 0
        return host

    def launch_until(self, host, done, pause=0.0):
        """Bursts of launches until `done` (of the level_event lines so far) says so."""
        deadline = time.monotonic() + LONG
        while not done(host.events("level_event")):
            self.assertLess(time.monotonic(), deadline, host.events("level_event"))
            self.assertEqual(host.do(f"launch k {BURST}"), "0")
            host.launched += BURST
            time.sleep(pause)

    def idle_until(self, host, done):
        deadline = time.monotonic() + LONG
        while not done(host.events("level_event")):
            self.assertLess(time.monotonic(), deadline, host.events("level_event"))
            time.sleep(0.05)

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


@unittest.skipIf("thread" in SANITIZE, "what it costs there says nothing")
class Levels(Budget):
    def test_down_under_load_and_up_again(self):
        host = self.budgeted()
        self.launch_until(host, lambda changes: changes and changes[-1]["to"] in ("summaries", "hooks"))
        self.launch_until(host, lambda changes: host.launched % (10 * BURST) == 0)  # some more at that level
        self.idle_until(host, lambda changes: changes[-1]["to"] == "events")
        for _ in range(3):
            self.assertEqual(host.do("launch k 100"), "0")
            host.launched += 100
        code, _, stderr = host.end()
        self.assertEqual((code, stderr), (0, b""))
        log = self.log()
        self.assert_chain(log, log["level_event"][0]["to"])
        told = self.assert_counted(host.launched, log)
        # What was launched last has lines again.
        last = max(c["time_ns"] for c in log["level_event"] if c["reason"] == "fits")
        self.assertEqual(sum(e["launch_ns"] > last for e in log.kernels), 300)
        budget = told["logs"][0]["budget"]
        changes = [c for c in log["level_event"] if c["reason"] != "end"]
        self.assertEqual(budget["changes"], len(changes))
        self.assertEqual(budget["level"], "events")
        self.assertEqual([e["to"] for e in budget["events"]], [c["to"] for c in changes])
        self.assertEqual(sum(budget["time_ns"].values()), log.end["time_ns"])
        self.assertGreater(budget["mean"]["share_percent"], 0)
        text = self.tool("report", log.path).stdout
        self.assertIn(f"budget     5 %: {len(changes)} changes", text)
        self.assertIn("at summaries" if budget["time_ns"]["summaries"] else "at sampled", text)
        shown = self.tool("tail", "-n", "all", "--no-follow", log.path).stdout
        self.assertEqual(shown.count("  level: "), len(changes) + 1)
        self.assertIn("over budget", shown)

    def test_gpu_times_are_off_below_and_on_again(self):
        if CAPTURE == "interpose" or os.environ.get("GPUFLIGHT_TEST_TIMING") == "off":
            self.skipTest("there are none")
        host = self.budgeted()
        self.launch_until(host, lambda changes: changes)
        self.idle_until(host, lambda changes: changes[-1]["to"] == "events")
        self.assertEqual(host.do("launch k 50"), "0")
        host.launched += 50
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

    def test_what_others_have_switched_off_stays_off(self):
        if CAPTURE == "interpose" or os.environ.get("GPUFLIGHT_TEST_TIMING") == "off":
            self.skipTest("there are no GPU times")
        host = self.budgeted()
        self.launch_until(host, lambda changes: changes)
        refused = self.tool("timing", "on", host.pid, expect=None)
        self.assertNotEqual(refused.returncode, 0)
        self.tool("timing", "off", host.pid)
        self.idle_until(host, lambda changes: changes[-1]["to"] == "events")
        self.assertEqual(host.do("launch k 50"), "0")
        host.launched += 50
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        up = max(c["time_ns"] for c in log["level_event"] if c["reason"] == "fits")
        self.assertEqual([e["start_ns"] for e in log.kernels if e["launch_ns"] > up], [None] * 50)
        self.assert_counted(host.launched, log)

    def test_unattainable_is_said_once_with_the_floor(self):
        host = self.budgeted(GPUFLIGHT_BUDGET="0.0001%")
        self.launch_until(host, lambda changes: host.events("notice_event") and any(
            n["code"] == "budget_unattainable" for n in host.events("notice_event")))
        self.launch_until(host, lambda changes: host.launched % (10 * BURST) == 0)
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        said = log.notices("budget_unattainable")
        self.assertEqual(len(said), 1)
        self.assertEqual(said[0]["severity"], "warning")
        self.assertRegex(said[0]["message"], r"^the budget of 0\.0001 % is unattainable, floor [0-9.e+-]+ %")
        self.assertNotIn("fits", [c["reason"] for c in log["level_event"]])
        self.assert_counted(host.launched, log)

    def test_a_killed_program_lacks_nothing(self):
        host = self.budgeted()
        self.launch_until(host, lambda changes: changes and changes[-1]["to"] in ("summaries", "hooks"))
        self.launch_until(host, lambda changes: host.launched % (10 * BURST) == 0)
        host.process.send_signal(signal.SIGKILL)
        host.process.wait()
        code, _ = recover(self.dir / "log.flight")
        self.assertEqual(code, 4)
        told = json.loads(self.tool("report", "--json", self.dir).stdout)
        self.assertEqual(told["totals"]["launches"], host.launched)

    def test_black_box(self):
        host = self.budgeted(GPUFLIGHT_MODE="blackbox")
        if CAPTURE == "interpose" or os.environ.get("GPUFLIGHT_TEST_TIMING") == "off":
            for _ in range(20):
                host.do(f"launch k {BURST}")
                host.launched += BURST
        else:
            self.launch_until(host, lambda changes: changes)
            self.idle_until(host, lambda changes: changes[-1]["to"] == "events")
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

    def test_to_the_hooks_and_back_to_cupti(self):
        if os.environ.get("GPUFLIGHT_TEST_TIMING") == "off":
            self.skipTest("the hooks are the source from the start")
        host = self.with_hooks(GPUFLIGHT_BUDGET="0.0001%")
        self.launch_until(host, lambda changes: changes and changes[-1]["to"] == "hooks")
        self.assertEqual(host.do("launch k 100"), "0")
        host.launched += 100
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assertEqual(len(log.notices("hooks_stand_in")), 1)
        self.assert_chain(log, "hooks")
        self.assert_counted(host.launched, log)

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
