#!/usr/bin/env python3
"""A recording that is led from outside: the black box and what makes it write, pause, release and resume, and commands
that cannot be done."""
import mmap
import os
import signal
import struct
import subprocess
import time

from guided_host import PATIENCE, TOOL, GuidedTest
from kill_rounds import events, recover
from sim_host import SANITIZE, environment, main, quick_plan

import unittest

CONTROL, CONTROL_RESULT, CONTROL_DONE = 1556, 1592, 1596  # docs/FORMAT.md, Header


class BlackBox(GuidedTest):
    def box(self, *kernels, **variables):
        return self.guided(*kernels, GPUFLIGHT_MODE="blackbox", **variables)

    def dumps(self, log):
        return [n["message"].split(": ")[1] for n in log.notices("dump")]

    def assert_no_doubles(self, log):
        self.assert_unique_seq(log)
        end = self.assert_balanced(log)
        self.assertEqual(end["written"], len(log.kernels) + len(log["sync_event"]) + len(log["api_event"]))
        return end

    def test_summaries_only_and_the_last_events_in_the_flight_file(self):
        host = self.box()
        host.do("launch k 700")
        host.end()
        log = self.log()
        self.assertEqual(log.kernels, [])
        self.assertEqual([s["count"] for s in log["kernel_summary"] if s["session"]], [700])
        self.assertEqual(self.assert_no_doubles(log)["summarised"], 700)
        code, said = recover(self.dir / "log.flight")
        self.assertEqual((code, said["verdict"], said["ledger"]["summarised"]), (0, "clean", 700))
        kernels, _ = events([self.dir / "log.recovered.ndjson"])
        self.assertEqual(len(set(kernels)), 700)

    def test_dump_by_the_program_and_by_command_without_doubles(self):
        host = self.box()
        host.do("launch k 50", "api dump")
        host.wait_for("kernel_event", count=50)
        host.do("launch k 30")
        self.assertIn("log.ndjson", self.tool("dump", host.pid).stdout)
        self.assertEqual(len(host.events("kernel_event")), 80)
        self.tool("dump", host.pid)
        host.do("launch k 20")
        host.end()
        log = self.log()
        self.assertEqual([e["seq"] & 0xFFFFFFFF for e in log.kernels], list(range(80)))
        self.assertEqual(self.assert_no_doubles(log)["summarised"], 20)
        self.assertEqual(self.dumps(log), ["asked for by the program"] + ["asked for from outside"] * 2)

    def test_a_dump_is_the_last_events_at_most(self):
        host = self.box("k:0.001", "last:0.001", GPUFLIGHT_DUMP_EVENTS="40")
        host.do("launch k 500", "@t launch k 300", "@t wait", "launch last 25")
        self.tool("dump", host.pid)
        host.end()
        log = self.log()
        self.assertEqual(len(log.kernels), 40)
        self.assertEqual(sum(e["name"] == "last" for e in log.kernels), 25)
        self.assert_no_doubles(log)

    def test_dump_on_a_cuda_error(self):
        host = self.box("k:0.001", "bad:1:700", GPUFLIGHT_DUMP_EVENTS="100")
        host.do("stream a", "launch k 400 a", "launch bad 1 a", "sync a", "launch k 5 a")
        host.end()
        log = self.log()
        self.assertEqual(len(log["error_event"]), 1)
        self.assertEqual(self.dumps(log)[:1], ["a CUDA error"])
        written = log.kernels + log["sync_event"]
        self.assertGreaterEqual(len(written), 100)
        self.assertEqual(sum(e.get("name") == "bad" for e in written), 1)
        self.assert_no_doubles(log)

    def test_dump_on_a_hang(self):
        host = self.box("k:0.001", "hang:forever", GPUFLIGHT_HANG_AFTER="300ms")
        host.do("stream a", "launch k 60 a", "launch hang 1 a", "@t sync a")
        host.wait_for("notice_event", code="dump")
        host.end("exit 0")
        log = self.log()
        self.assertEqual((len(log["hang_event"]), self.dumps(log)), (1, ["a hang"]))
        self.assertEqual([e["name"] for e in log.kernels], ["k"] * 60 + ["hang"])

    def rule(self, rule, ops, **variables):
        self.play({**quick_plan(), "threads": [{"ops": ops}]}, GPUFLIGHT_MODE="blackbox", GPUFLIGHT_DUMP_WHEN=rule,
                  **variables)
        return self.log()

    def test_dump_when_a_launch_matches(self):
        launch = {"op": "launch", "kernel": "k", "times": 30}
        refused = {"op": "launch", "kernel": "k", "block": 2000, "expect": 1}
        log = self.rule("status == 1", [launch, refused, launch, {"op": "delay", "us": 300_000}, launch, refused])
        # The second match comes within ten seconds of the first dump.
        self.assertEqual(self.dumps(log), ["dump_when matched"])
        self.assertIn(len(log.kernels), range(31, 62))
        self.assertEqual([e["status"] for e in log.kernels[:31]], [0] * 30 + [1])
        self.assert_no_doubles(log)

    def test_rules_that_do_not_match_or_cannot(self):
        launch = [{"op": "launch", "kernel": "k", "times": 30}]
        log = self.rule("call_ns > 1e12", launch)
        self.assertEqual((log.kernels, log.notices()), ([], []))
        log = self.rule("colour > 5", launch, GPUFLIGHT_LOG=self.dir / "bad.ndjson") and self.log("bad.ndjson")
        (notice,) = log.notices("dump_when")
        self.assertIn("no rule is in force", notice["message"])

    def test_a_rule_on_times_that_are_not_measured_is_said(self):
        log = self.rule("duration_ns > 5e6", [{"op": "launch", "kernel": "k", "times": 30}], GPUFLIGHT_TIMING="off")
        (notice,) = log.notices("dump_when")
        self.assertIn("duration_ns", notice["message"])

    def test_killed_after_a_dump(self):
        host = self.box()
        host.do("launch k 200")
        self.tool("dump", host.pid)
        host.do("launch k 90")
        os.kill(host.pid, signal.SIGKILL)
        host.process.wait()
        said = recover(self.dir / "log.flight")[1]
        self.assertTrue(said["ledger"]["balanced"], said["ledger"])
        self.assertEqual(said["ledger"]["lost"], 0)
        kernels, _ = events([self.dir / "log.ndjson", self.dir / "log.recovered.ndjson"])
        self.assertEqual((len(kernels), len(set(kernels))), (290, 290))


class Pause(GuidedTest):
    def test_a_pause_costs_no_callback(self):
        host = self.guided(GPUFLIGHT_MARKERS="off")  # memory that a mark needs is registered by a call that calls back
        host.do("launch k 5", "delivered", "delivered")
        host.do("launch k 10", "sync")
        self.assertEqual(host.do("delivered"), "22")  # entry and return of each
        self.assertIn("paused", self.tool("pause", host.pid).stdout)
        host.do("launch k 10", "sync", "@t launch k 3", "@t wait")
        self.assertEqual(host.do("delivered"), "0")
        self.assertIn("recording again", self.tool("resume", host.pid).stdout)
        host.do("launch k 10", "@t launch k 3", "@t wait")
        self.assertEqual(host.do("delivered"), "26")
        host.end()
        log = self.log()
        self.assertEqual(len(log.kernels), 5 + 10 + 10 + 3)
        self.assertEqual(self.assert_balanced(log)["seen"], len(log.kernels) + 1)  # what was paused was not seen

    def test_commands_twice_and_in_any_order(self):
        host = self.guided()
        for verb, more in (("resume", ()), ("pause", ()), ("pause", ()), ("pause", ("--release",)),
                           ("pause", ()), ("resume", ()), ("resume", ()), ("dump", ())):
            self.tool(verb, *more, host.pid)
        host.do("launch k 4")
        host.end()
        self.assertEqual(len(self.log().kernels), 4)

    def test_release_gives_the_slot_to_another_and_resume_takes_it_again(self):
        host = self.guided()
        host.do("launch k 10")
        self.assertEqual(host.do("subscribe"), "39")  # one subscriber at a time
        self.tool("pause", host.pid)
        self.assertEqual(host.do("subscribe"), "39")  # a plain pause keeps the slot
        self.tool("pause", "--release", host.pid)
        self.assertEqual(host.do("subscribe"), "0")
        host.do("launch k 10", "stream a", "launch k 2 a")
        refused = self.tool("resume", host.pid, expect=1)
        self.assertEqual(refused.stdout, "")
        self.assertEqual(len(refused.stderr.splitlines()), 1)
        self.assertIn("another CUPTI client holds the subscriber slot", refused.stderr)
        host.do("launch k 10")
        self.assertEqual(host.do("unsubscribe"), "0")
        self.tool("resume", host.pid)
        host.do("launch k 10", "launch k 4 a", "stream b", "launch k 3 b")
        host.end()
        log = self.log()
        self.assertEqual(len(log.kernels), 10 + 17)
        self.assertEqual(len(log.notices("cupti_slot_taken")), 1)
        # What the handles mean was not seen meanwhile: the default stream, too, is another one than before.
        self.assertEqual(len({e["stream"] for e in log.kernels}), 4)
        self.assertEqual(self.assert_balanced(log)["seen"], 27)

    def test_while_paused_the_end_comes(self):
        for more in ((), ("--release",)):
            with self.subTest(more):
                self.in_folder("".join(more) or "pause")
                host = self.guided()
                host.do("launch k 10")
                self.tool("pause", *more, host.pid)
                host.do("launch k 10")
                self.assertEqual(host.end("exit 4")[0], 4)
                log = self.log()
                self.assertEqual((self.assert_balanced(log)["seen"], log.end["reason"]), (10, "exit"))


class CannotBeDone(GuidedTest):
    def refused(self, *arguments, words, code=1):
        run = self.tool(*arguments, expect=code)
        self.assertEqual((run.stdout, len(run.stderr.splitlines())), ("", 1), run.stderr)
        self.assertIn(words, run.stderr)

    def test_processes_that_are_not_there_or_not_recorded(self):
        ended = subprocess.Popen(["/bin/true"])
        ended.wait()
        idle = subprocess.Popen(["sleep", "100"])
        self.addCleanup(idle.wait)
        self.addCleanup(idle.kill)
        for verb in ("dump", "pause", "resume"):
            self.refused(verb, ended.pid, words="no process")
            self.refused(verb, "4194399999", words="no process")
            self.refused(verb, idle.pid, words="has no flight file")
            self.refused(verb, "me", words="is no process id", code=2)
            self.refused(verb, "-1", words="", code=2)

    def test_a_recording_that_is_over(self):
        host = self.guided()
        host.do("launch k 3", "api shutdown 5000")
        self.refused("pause", host.pid, words=f"the recording of process {host.pid} has ended")

    def test_without_a_flight_file(self):
        host = self.guided(GPUFLIGHT_FLIGHT="memory")
        host.do("launch k 3")
        self.refused("dump", host.pid, words="flight=memory")

    @unittest.skipIf(os.geteuid() != 0, "needs root to become somebody else")
    def test_of_somebody_else(self):
        host = self.guided()
        host.do("launch k 3")
        run = subprocess.run([str(TOOL), "pause", str(host.pid)], user=65534, group=65534, capture_output=True,
                             timeout=PATIENCE, env=environment(preload=False, sim=False), check=False)
        self.assertEqual((run.returncode, run.stdout), (1, b""))
        self.assertIn(b"not allowed", run.stderr)
        host.do("launch k 3")
        host.end()
        self.assertEqual(len(self.log().kernels), 6)

    def test_a_command_that_is_unknown(self):
        host = self.guided()
        with open(self.dir / "log.flight", "r+b") as file, mmap.mmap(file.fileno(), 4096) as header:
            header[CONTROL:CONTROL + 4] = struct.pack("<I", 99)
            deadline = time.monotonic() + PATIENCE
            while struct.unpack_from("<I", header, CONTROL_DONE)[0] == 0 and time.monotonic() < deadline:
                time.sleep(0.005)
            self.assertEqual(struct.unpack_from("<I", header, CONTROL_RESULT)[0], 4)
            self.assertEqual(struct.unpack_from("<I", header, CONTROL)[0], 0)
        host.do("launch k 3")
        host.end()
        self.assertEqual(len(self.log().kernels), 3)


if __name__ == "__main__":
    main()
