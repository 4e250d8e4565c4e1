#!/usr/bin/env python3
"""Contexts that die of an error and streams that hang: what is said of it, how exactly, and that the program is none
the worse for it."""
import os
import signal
import time

from guided_host import PATIENCE, GuidedTest
from kill_rounds import recover
from sim_host import SANITIZE, SLOW, main

STICKY = {700: "CUDA_ERROR_ILLEGAL_ADDRESS", 710: "CUDA_ERROR_ASSERT", 719: "CUDA_ERROR_LAUNCH_FAILED",
          702: "CUDA_ERROR_LAUNCH_TIMEOUT", 214: "CUDA_ERROR_ECC_UNCORRECTABLE"}


def names(launches):
    return [launch["name"] for launch in launches]


class Errors(GuidedTest):
    def one_error(self, host):
        """The error_event of the log once it is whole; there must be no second."""
        code, _, stderr = host.end()
        self.assertEqual((code, stderr), (0, b""))
        log = self.log()
        self.assert_balanced(log)
        (error,) = log["error_event"]
        return log, error

    def test_every_kind_of_error_is_told_with_its_culprit(self):
        for code, name in STICKY.items() if not SANITIZE else [(700, STICKY[700])]:
            with self.subTest(name):
                self.in_folder(name)
                host = self.guided("k:0.001", f"bad:1:{code}")
                host.do("stream a", "launch k 60 a")
                time.sleep(0.05)  # what came before is marked off as soon as the next launch comes
                self.assertEqual(host.do("launch bad 1 a 77"), "0")
                self.assertEqual(host.do("sync a"), str(code))
                (error,) = host.wait_for("error_event")
                log, again = self.one_error(host)
                self.assertEqual(error, again)
                self.assertEqual((error["code"], error["name"], error["call"]), (code, name, "cuStreamSynchronize"))
                self.assertEqual((error["thread"], error["context"]), (host.pid, log.kernels[0]["context"]))
                self.assertEqual(error["confidence"], "exact")
                (launched,) = [e for e in log.kernels if e["name"] == "bad"]
                culprit = error["culprit"]
                self.assertEqual((culprit["event"], culprit["name"], culprit["grid"], culprit["block"]),
                                 (launched["seq"], "bad", "(77,1,1)", "(64,1,1)"))
                (stream,) = error["in_flight"]
                self.assertEqual((stream["stream"], stream["count"]), (launched["stream"], 1))
                self.assertGreater(stream["finished_ns"], log.kernels[0]["launch_ns"])
                self.assertLess(stream["finished_ns"], launched["launch_ns"] + launched["call_ns"])

    def test_launches_in_flight_of_every_stream(self):
        host = self.guided("slow:300", "k:0.001", "bad:30:700")
        host.do("stream a", "stream b", "stream c", "launch k 1 c", "sync c")
        host.do("launch slow 1 b", "launch k 40 b", "launch bad 1 a")
        self.assertEqual(host.do("sync a"), "700")
        log, error = self.one_error(host)
        of = {e["name"]: e["stream"] for e in log.kernels if e["name"] != "k"}
        flying = {s["stream"]: s for s in error["in_flight"]}
        self.assertEqual(set(flying), set(of.values()))  # c had finished
        self.assertEqual((flying[of["slow"]]["count"], len(flying[of["slow"]]["launches"])), (41, 16))
        self.assertEqual(names(flying[of["slow"]]["launches"]), ["slow"] + ["k"] * 15)
        self.assertEqual(names(flying[of["bad"]]["launches"]), ["bad"])
        self.assertEqual(error["confidence"], "oldest_in_flight")  # either stream's first may be it

    def test_what_has_no_mark_may_be_the_culprit(self):
        host = self.guided("slow:300", "bad:1:700", "k:0.001")
        host.do("stream a", "stream b")
        for _ in range(10):
            host.do("launch k 1 a", "sync a", "launch k 1 b", "sync b")
        host.do("launch slow 1 b", "launch bad 1 a", "sync a")  # the wait for a says nothing of it yet, b is marked before
        _, error = self.one_error(host)
        self.assertTrue(error["culprit"]["name"] == "bad" or error["confidence"] == "oldest_in_flight", error)
        self.assertEqual({name for s in error["in_flight"] for name in names(s["launches"])} - {"k"}, {"slow", "bad"})

    def test_one_event_for_all_that_fails_with_it(self):
        host = self.guided("k:0.001", "bad:1:700")
        host.do("launch k 5", "launch bad")
        time.sleep(0.05)
        self.assertEqual(host.do("launch k 20"), "700")
        host.do("@other launch k 10", "@other wait", "@other sync", "@other wait", "sync")
        log, error = self.one_error(host)
        # The call that was first to be told, here a launch.
        self.assertEqual((error["call"], error["thread"]), ("cuLaunchKernel", host.pid))
        self.assertEqual([e["status"] for e in log.kernels if e["launch_ns"] < error["time_ns"]][:6], [0] * 6)
        late = [e["status"] for e in log.kernels[6:]]
        self.assertEqual(late, [700] * 30)  # the later ones are marked failed, each
        self.assertEqual(log.end["failed"], 30)
        self.assertEqual({e["status"] for e in log["sync_event"]}, {700})

    def test_any_call_may_be_the_first_to_be_told(self):
        for call in ("cuMemAlloc", "cuMemAllocAsync", "cuMemFree", "cuMemsetD8Async", "cuMemcpyDtoH", "cuEventRecord",
                     "cuStreamWaitEvent"):
            with self.subTest(call):
                self.in_folder(call)
                host = self.guided("k:0.001", "bad:1:700")
                host.do("call prepare", "launch k 5", "sync", "launch bad")
                time.sleep(0.05)
                self.assertEqual(host.do(f"call {call}"), "700")
                host.do("sync")
                log, error = self.one_error(host)
                self.assertEqual((error["call"], error["code"], error["culprit"]["name"]), (call, 700, "bad"))

    def test_each_context_has_an_error_of_its_own(self):
        kernels = {"k": {"name": "k", "duration_us": 1}, "bad": {"name": "bad", "duration_us": 500, "fault": 719}}
        # Functions belong to the context that loaded them: as library kernels they run in any.
        launch = {"op": "launch", "form": "library"}
        thread = {"context": "own", "ops": [{"op": "delay", "us": 20_000}, {**launch, "kernel": "k"},
                                            {**launch, "kernel": "bad"}, {"op": "sync", "expect": 719},
                                            {"op": "sync", "expect": 719}, {"op": "barrier"}]}
        self.play({"device": {"board": "sm_86"}, "modules": {"m": {"kernels": kernels}}, "threads": [thread, thread]})
        errors = self.log()["error_event"]
        self.assertEqual([(e["code"], e["culprit"]["name"]) for e in errors], [(719, "bad")] * 2)
        self.assertEqual(len({e["context"] for e in errors}), 2)
        self.assertEqual(len({e["thread"] for e in errors}), 2)

    def test_without_marks_it_is_less_exact(self):
        host = self.guided("k:0.001", "bad:1:700", GPUFLIGHT_MARKERS="off")
        host.do("stream a", "launch k 10 a", "sync a", "launch k 20 a")
        time.sleep(0.05)
        host.do("launch bad 1 a", "sync a")
        log, error = self.one_error(host)
        self.assertEqual(error["confidence"], "oldest_in_flight")
        self.assertEqual(error["culprit"]["name"], "k")
        (stream,) = error["in_flight"]
        self.assertEqual(stream["count"], 21)  # the synchronise proved the first ten done
        self.assertEqual(names(stream["launches"]), ["k"] * 16)

    def test_an_error_that_ends_no_context_is_none(self):
        kernels = {"k": {"name": "k", "max_threads": 64}}
        self.play({"device": {"board": "sm_86"}, "modules": {"m": {"kernels": kernels}}, "threads": [{"ops": [
            {"op": "launch", "kernel": "k", "block": 1024, "expect": 1}, {"op": "launch", "kernel": "k"},
            {"op": "sync"}]}]})
        log = self.log()
        self.assertEqual((log["error_event"], [e["status"] for e in log.kernels]), ([], [1, 0]))

    def test_no_mark_on_a_stream_that_is_captured(self):
        # The simulated driver, as the real one, gives up a capture that a mark is set in.
        host = self.guided("k:0.001")
        host.do("stream a", "stream b", "launch k 5 a", "launch k 5 b", "capture a")
        for _ in range(6):
            self.assertEqual(host.do("launch k 200 a"), "0")
            self.assertEqual(host.do("@t launch k 200 b", "@t wait"), "0")
            time.sleep(0.012)
        self.assertEqual(host.do("end_capture a"), "0")
        self.assertEqual(host.do("sync"), "0")
        host.end()
        self.assertEqual(sum(e["captured"] for e in self.log().kernels), 1200)


class Hangs(GuidedTest):
    def test_a_hang_is_told_and_told_again_when_it_ends(self):
        host = self.guided("slow:2200", "k:0.001", GPUFLIGHT_HANG_AFTER="600ms")
        host.do("stream a", "launch slow 1 a 9", "launch k 3 a")
        host.tell("sync a")
        (begin,) = host.wait_for("hang_event", phase="begin")
        self.assertEqual((begin["count"], names(begin["launches"])), (4, ["slow", "k", "k", "k"]))
        first = begin["launches"][0]
        self.assertEqual((first["grid"], first["block"], first["status"]), ("(9,1,1)", "(64,1,1)", 0))
        self.assertLess(abs(begin["since_ns"] - first["launch_ns"]), 1000e6)
        self.assertGreaterEqual(begin["hung_ns"], 600e6)
        (blocked,) = begin["blocked"]
        self.assertEqual((blocked["thread"], blocked["call"]), (host.pid, "cuStreamSynchronize"))
        self.assertEqual(blocked["for_ns"], begin["time_ns"] - blocked["since_ns"])
        self.assertGreater(blocked["for_ns"], 450e6)
        self.assertEqual(host.read(), "0")
        (end,) = host.wait_for("hang_event", phase="end")
        self.assertEqual((end["stream"], end["since_ns"]), (begin["stream"], begin["since_ns"]))
        self.assertGreater(end["hung_ns"], 2100e6)
        self.assertEqual((end["count"], end["blocked"]), (0, []))
        host.end()
        log = self.log()
        self.assertEqual([h["phase"] for h in log["hang_event"]], ["begin", "end"])
        self.assertEqual(begin["stream"], log.kernels[0]["stream"])

    def test_what_is_no_hang(self):
        after = 1.5 if not SANITIZE else 5
        host = self.guided("long:1000", "k:0.001", "bad:1:700", GPUFLIGHT_HANG_AFTER=f"{after * 1000:.0f}ms")
        host.do("stream a", "stream b", "launch long 1 a", "sync a")  # long, yet it finishes
        host.do("launch k 7 b")  # not all of them marked, and nobody waits
        time.sleep(after + 0.3)
        host.do("launch bad 1 a", "sync a")  # dead is not hung
        time.sleep(after + 0.3)
        host.end()
        log = self.log()
        self.assertEqual((len(log["error_event"]), log["hang_event"]), (1, []))

    def test_only_the_stream_that_hangs(self):
        host = self.guided("hang:forever", "k:0.001", GPUFLIGHT_HANG_AFTER="500ms")
        # The other thread's last launches are not marked, and it waits for nothing of the GPU's.
        host.do("stream a", "stream b", "@t launch k 7 b", "@t wait", "launch hang 1 a", "@u sync a")
        host.tell("sync")  # who waits for all of the context waits for that one
        host.wait_for("hang_event")
        time.sleep(0.7)
        (begin,) = host.events("hang_event")
        self.assertEqual(names(begin["launches"]), ["hang"])

    def test_in_a_loop_that_waits_at_each_step(self):
        host = self.guided("hang:forever", "k:0.001", GPUFLIGHT_HANG_AFTER="400ms")
        host.do("stream a", "stream b")
        for _ in range(100):
            host.do("launch k 3 a", "launch k 2 b", "sync a", "sync")
        host.do("launch k 1 a", "launch hang 1 a", "launch k 1 b", "launch k 2 a")
        host.tell("sync a")
        (begin,) = host.wait_for("hang_event")
        # What came before is known to be done by the waits; the one between them and the hang only if 10 ms had passed.
        self.assertIn(names(begin["launches"]), (["k", "hang", "k", "k"], ["hang", "k", "k"]))

    def test_who_waits_for_a_stream_by_name_says_which_one_hangs(self):
        host = self.guided("hang:forever", "k:0.001", GPUFLIGHT_HANG_AFTER="500ms")
        host.do("stream a", "stream b", "launch k 1 a", "launch k 1 b", "sync")
        host.do("@t launch k 3 b", "@t wait")  # done, and neither marked nor waited for
        host.do("launch hang 1 a")
        host.tell("@u sync a")
        host.tell("@v sync")
        host.wait_for("hang_event")
        time.sleep(0.7)
        (begin,) = host.events("hang_event")
        self.assertEqual(names(begin["launches"]), ["hang"])

    def test_a_copy_that_does_not_come_back_is_named(self):
        host = self.guided("hang:forever", GPUFLIGHT_HANG_AFTER="400ms")
        host.do("call prepare", "launch hang")
        host.tell("@t call cuMemcpyDtoH")
        (begin,) = host.wait_for("hang_event")
        self.assertEqual([(b["call"], b["thread"] != host.pid) for b in begin["blocked"]], [("cuMemcpyDtoH", True)])

    def test_without_marks_by_who_waits(self):
        host = self.guided("hang:forever", "k:0.001", GPUFLIGHT_HANG_AFTER="400ms", GPUFLIGHT_MARKERS="off")
        host.do("stream a", "launch k 3 a", "sync a", "launch hang 1 a", "launch k 2 a")
        time.sleep(0.8)
        self.assertEqual(host.events("hang_event"), [])  # nothing is known of it until somebody waits
        host.tell("sync a")
        (begin,) = host.wait_for("hang_event")
        self.assertEqual((names(begin["launches"]), begin["count"]), (["hang", "k", "k"], 3))

    def test_who_waits_for_a_context_that_is_not_current(self):
        host = self.guided("hang:forever", "k:0.001", GPUFLIGHT_HANG_AFTER="400ms", GPUFLIGHT_MARKERS="off")
        host.do("stream a", "launch k 3 a", "@t sync_from_outside", "@t wait", "launch hang 1 a", "launch k 2 a")
        host.tell("@t sync_from_outside")
        (begin,) = host.wait_for("hang_event")
        self.assertEqual((names(begin["launches"]), begin["count"]), (["hang", "k", "k"], 3))

    def test_switched_off(self):
        host = self.guided("hang:forever", GPUFLIGHT_HANG_AFTER="0")
        host.do("launch hang")
        host.tell("sync")
        time.sleep(1)
        self.assertEqual(host.events("hang_event"), [])

    def test_killed_while_it_hangs(self):
        host = self.guided("hang:forever", GPUFLIGHT_HANG_AFTER="300ms")
        host.do("stream a", "launch hang 1 a")
        host.tell("sync a")
        (begin,) = host.wait_for("hang_event")
        os.kill(host.pid, signal.SIGKILL)
        host.process.wait()
        code, said = recover(self.dir / "log.flight")
        self.assertEqual((code, said["verdict"]), (4, "stopped"))
        self.assertEqual([h["stream"] for h in said["hangs"]], [begin["stream"]])

    def test_a_pause_is_no_hang(self):
        host = self.guided("long:300", "k:0.001", GPUFLIGHT_HANG_AFTER="900ms")
        host.do("stream a", "stream b", "@u launch k 7 b", "@u wait", "@t launch long 1 a", "@t sync")
        time.sleep(0.05)
        self.assertEqual(host.do("api pause 0"), "0")
        self.assertEqual(host.do("@t wait"), "0")  # its return was not seen
        time.sleep(1.1)
        self.assertEqual(host.do("api resume"), "0")
        time.sleep(1.1)
        self.assertEqual(host.do("launch k"), "0")
        host.end()
        self.assertEqual(self.log()["hang_event"], [])


class HangCommand(GuidedTest):
    def test_the_command_knows_and_the_host_does_not(self):
        command = (f"env > {self.dir}/env; ls -l /proc/self/fd > {self.dir}/fd; sleep 0.5; touch {self.dir}/done; "
                   "sleep 1000 & exit 3")
        host = self.guided("hang:forever", GPUFLIGHT_HANG_AFTER="300ms", GPUFLIGHT_HANG_COMMAND=command,
                           MY_OWN="kept")
        host.do("stream a", "launch hang 1 a 5", "@t sync a")
        (begin,) = host.wait_for("hang_event")
        ended = False
        for _ in range(200 * SLOW):  # while it runs, and when it has ended
            self.assertEqual(host.do("children"), "none 0")
            if ended:
                break
            ended = (self.dir / "done").exists()
            time.sleep(0.01)
        time.sleep(0.1)
        self.assertEqual(host.do("children"), "none 0")
        environment = dict(line.split("=", 1) for line in (self.dir / "env").read_text().splitlines() if "=" in line)
        ours = {name: value for name, value in environment.items() if name.startswith(("GPUFLIGHT_", "LD_PRE", "CUDA_I",
                                                                                       "NVTX_I"))}
        self.assertEqual(ours, {"GPUFLIGHT_HANG_PID": str(host.pid), "GPUFLIGHT_HANG_STREAM": str(begin["stream"]),
                                "GPUFLIGHT_HANG_SECONDS": "0", "GPUFLIGHT_HANG_KERNEL": "hang"})
        self.assertEqual(environment["MY_OWN"], "kept")
        open_files = [line.split(" -> ")[1] for line in (self.dir / "fd").read_text().splitlines() if " -> " in line]
        self.assertEqual({f for f in open_files if not f.startswith((str(self.dir), "/proc/"))}, {"/dev/null"})
        code, seconds, _ = host.end("exit 5")
        self.assertEqual(code, 5)
        self.assertLess(seconds, 2 * SLOW)

    def test_one_that_cannot_be_run_or_does_not_end(self):
        host = self.guided("hang:forever", GPUFLIGHT_HANG_AFTER="300ms",
                           GPUFLIGHT_HANG_COMMAND=f"trap '' TERM HUP INT; sleep 1.5; touch {self.dir}/late")
        host.do("stream a", "launch hang 1 a", "@t sync a")
        host.wait_for("hang_event")
        time.sleep(0.2)
        code, seconds, _ = host.end("exit 0")  # the command goes on without us
        self.assertEqual(code, 0)
        self.assertLess(seconds, 1.2 * SLOW)
        self.assertFalse((self.dir / "late").exists() and not SANITIZE)
        time.sleep(1.6 + (SLOW - 1) * 0.1)
        self.assertTrue((self.dir / "late").exists())

    def test_many_streams_one_command(self):
        host = self.guided("hang:forever", GPUFLIGHT_HANG_AFTER="300ms",
                           GPUFLIGHT_HANG_COMMAND=f"echo $GPUFLIGHT_HANG_STREAM >> {self.dir}/hung")
        for i in range(3):
            host.do(f"stream s{i}", f"launch hang 1 s{i}")
        host.wait_for("hang_event", count=3)
        deadline = time.monotonic() + PATIENCE
        while not (self.dir / "hung").exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(0.2)  # the command has ended, the hang has not
        host.do("stream late", "launch hang 1 late")
        host.wait_for("hang_event", count=4)
        time.sleep(0.5)
        first = host.events("hang_event")[0]["stream"]
        self.assertEqual((self.dir / "hung").read_text(), f"{first}\n")


class Exit(GuidedTest):
    def test_with_a_hung_kernel(self):
        for line in ("exit 7", None):
            with self.subTest(line or "return"):
                self.in_folder(line or "return")
                host = self.guided("hang:forever", "k:0.001")
                host.do("stream a", "launch k 100 a", "launch hang 1 a", "launch k 5 a", "@t sync a", "@u sync")
                time.sleep(0.1)
                code, seconds, stderr = host.end(line)
                self.assertEqual((code, stderr), (7 if line else 0, b""))
                self.assertLess(seconds, 2 * SLOW)
                log = self.log()
                self.assertEqual(self.assert_balanced(log, pending=None)["pending"], 2)  # the calls that wait on
                self.assertEqual(len(log.kernels), 106)


if __name__ == "__main__":
    main()
