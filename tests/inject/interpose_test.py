#!/usr/bin/env python3
"""Launches seen by the driver's entry points: which source is chosen and why, other interposers on either side,
programs that reach the driver in unusual ways, and processes that never use CUDA."""
import json
import os
import sys

from guided_host import GuidedTest
from sim_host import BUILD, HOOKS, HOSTS, LIBRARY, SANITIZE, SIM, SimTest, main, quick_plan

import unittest

BOTH = f"{LIBRARY}:{HOOKS}"
HOST = HOSTS / "interpose_host"
ASKER = HOSTS / "libinterpose_asker.so"
COUNTER = BUILD / "tests" / "gpu" / "liblaunch_counter.so"  # an interposer of dlsym and of all launches itself
# What a search for another libcupti must not find on the machine the test runs on.
ALONE = {"CUDA_HOME": None, "CUDA_PATH": None, "VIRTUAL_ENV": None}


class HooksTest(SimTest):
    def hooked(self, **variables):
        return {"LD_PRELOAD": BOTH, **variables}

    def captured(self, log):
        return log.start["capture"], log.start["capture_reason"]


class Choice(HooksTest):
    def played(self, **variables):
        run = self.play(quick_plan(), **self.hooked(**variables))
        self.assertEqual((run.rc, run.stdout, run.stderr), (0, b"", b""))
        log = self.log()
        self.assert_balanced(log)
        self.assert_counts(log, run.result)
        return log

    def test_cupti_for_gpu_times(self):
        log = self.played()
        self.assertEqual(self.captured(log), ("cupti", "GPU times are wanted"))
        self.assertNotIn(None, [e["duration_ns"] for e in log.kernels])

    def test_hooks_where_no_times_are_wanted(self):
        log = self.played(GPUFLIGHT_TIMING="off")
        self.assertEqual(self.captured(log), ("interpose", "timing is off"))
        self.assertEqual(log.notices(), [])

    def test_each_as_asked_for(self):
        for source in ("cupti", "interpose"):
            log = self.played(GPUFLIGHT_CAPTURE=source)
            self.assertEqual(self.captured(log), (source, "asked for"))
            os.remove(self.dir / "log.ndjson")

    def fallen_back(self, reason, *words, **variables):
        log = self.played(**variables)
        self.assertEqual(self.captured(log), ("interpose", reason))
        self.assertEqual({e["duration_ns"] for e in log.kernels}, {None})
        self.assertNotIn(None, [e["occupancy"] for e in log.kernels])
        (notice,) = log.notices()
        self.assertEqual((notice["severity"], notice["code"]), ("warning", "no_gpu_times"))
        for word in words:
            self.assertIn(word, notice["message"])

    def test_slot_taken(self):
        self.fallen_back("CUPTI's subscriber slot is taken", "another CUPTI client", GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1",
                         **ALONE)

    def test_cupti_newer_than_the_driver(self):
        self.fallen_back("CUPTI cannot be used", "newer than the driver", GPUFLIGHT_SIM_CUPTI_TOO_NEW="1", **ALONE)

    def test_no_cupti(self):
        folder = self.dir / "driver"
        folder.mkdir()
        os.symlink(SIM / "libcuda.so.1", folder / "libcuda.so.1")
        self.fallen_back("CUPTI cannot be used", LD_LIBRARY_PATH=folder, GPUFLIGHT_CUPTI="/nowhere/libcupti.so.13",
                         GPUFLIGHT_SIM_DRIVER_VERSION="11080", **ALONE)

    def test_the_injection_variable_is_another_tools(self):
        log = self.played(CUDA_INJECTION64_PATH="/not/there.so")
        self.assertEqual(len(log.kernels), 5)

    def test_hooks_alone_do_nothing(self):
        self.play(quick_plan(), LD_PRELOAD=HOOKS)
        self.assertFalse((self.dir / "log.ndjson").exists())

    def test_asked_for_without_hooks(self):
        self.play(quick_plan(), GPUFLIGHT_CAPTURE="interpose", LD_PRELOAD=LIBRARY)
        log = self.log()
        self.assertEqual(log.start["capture"], "none")
        (notice,) = log.notices()
        self.assertEqual((notice["severity"], notice["code"]), ("error", "no_hooks"))
        self.assertIn("libgpuflight_hooks.so is not preloaded", notice["message"])

    def test_every_form_is_the_same_under_both(self):
        facts = []
        for source in ("cupti", "interpose"):
            run = self.play("every_form", **self.hooked(GPUFLIGHT_CAPTURE=source, GPUFLIGHT_TIMING="off"))
            log = self.log()
            self.assert_counts(log, run.result)
            facts.append([{key: e[key] for key in e if key not in ("correlation", "launch_ns", "call_ns", "thread")}
                          for e in log.kernels])
            os.remove(self.dir / "log.ndjson")
        self.assertEqual(*facts)


class CallTimes(HooksTest):
    """The host's time in a call: of each launch, but where they follow one another closely."""
    LAUNCHES = 4000

    def run_closely(self, **variables):
        self.run_host(HOST, "name", SIM / "libcuda.so.1", self.LAUNCHES,
                      **self.hooked(GPUFLIGHT_CAPTURE="interpose", **variables))
        log = self.log()
        self.assert_balanced(log)
        return log

    def test_of_some(self):
        log = self.run_closely()
        self.assertEqual(len(log.kernels), self.LAUNCHES)
        self.assertEqual({e["status"] for e in log.kernels}, {0})
        timed = sum(e["call_ns"] is not None for e in log.kernels)
        self.assertGreaterEqual(timed, self.LAUNCHES // 8)
        self.assertLess(timed, self.LAUNCHES)
        (summary,) = log["kernel_summary"]
        self.assertEqual((summary["count"], summary["calls_timed"]), (self.LAUNCHES, timed))

    def test_of_all(self):
        log = self.run_closely(GPUFLIGHT_CALL_TIMES="all")
        self.assertNotIn(None, [e["call_ns"] for e in log.kernels])

    def test_of_all_where_a_rule_asks_for_them(self):
        log = self.run_closely(GPUFLIGHT_MODE="blackbox", GPUFLIGHT_DUMP_WHEN="call_ns > 1e15")
        sums = [(s["count"], s["calls_timed"]) for s in log["kernel_summary"] if s["session"]]
        self.assertEqual(sums, [(self.LAUNCHES, self.LAUNCHES)])

    def test_by_cupti_of_all(self):
        self.run_host(HOST, "name", SIM / "libcuda.so.1", self.LAUNCHES,
                      **self.hooked(GPUFLIGHT_CAPTURE="cupti", GPUFLIGHT_TIMING="off"))
        self.assertNotIn(None, [e["call_ns"] for e in self.log().kernels])


class Ways(HooksTest):
    """How a program comes by the driver's functions."""

    def way(self, name, *more, **variables):
        options = self.hooked(GPUFLIGHT_CAPTURE="interpose", **variables)
        self.run_host(HOST, name, SIM / "libcuda.so.1", 7, *more, **options)
        return self.log()

    def test_all_that_can_be_seen(self):
        for name in ("name", "path", "proc", "proc_itself", "default"):
            with self.subTest(name):
                log = self.way(name)
                self.assertEqual(len(log.kernels), 7)
                self.assert_balanced(log)
                os.remove(self.dir / "log.ndjson")

    @unittest.skipIf(SANITIZE, "a sanitizer's runtime refuses such libraries")
    def test_what_cannot_is_said(self):
        for name, more in (("deepbind", (ASKER,)), ("dlmopen", ())):
            with self.subTest(name):
                run = self.run_host(HOST, name, SIM / "libcuda.so.1", 7, *more, **self.hooked(
                    GPUFLIGHT_CAPTURE="interpose"))
                if not (self.dir / "log.ndjson").exists():  # a namespace of its own has a loader of its own
                    self.assertEqual(name, "dlmopen")
                    continue
                log = self.log()
                self.assertEqual((log.start["capture"], log.kernels), ("none", []))
                (notice,) = log.notices()
                self.assertIn("RTLD_DEEPBIND" if name == "deepbind" else "dlmopen", notice["message"], run)
                os.remove(self.dir / "log.ndjson")

    @unittest.skipIf(SANITIZE, "a sanitizer's runtime refuses such libraries")
    def test_past_the_hooks_cupti_sees_it(self):
        self.run_host(HOST, "deepbind", SIM / "libcuda.so.1", 7, ASKER, **self.hooked(GPUFLIGHT_TIMING="off"))
        log = self.log()
        self.assertEqual((log.start["capture"], len(log.kernels)), ("cupti", 7))
        self.assertIn("RTLD_DEEPBIND", log.start["capture_reason"])

    def test_threads_look_up_while_others_launch(self):
        self.run_host(HOST, "lookups", SIM / "libcuda.so.1", 2000, **self.hooked(GPUFLIGHT_CAPTURE="interpose"))
        log = self.log()
        self.assertEqual(len(log.kernels), 8000)
        self.assert_balanced(log)

    @unittest.skipIf(SANITIZE, "a sanitizer's runtime answers itself")
    def test_the_loader_answers_as_without_us(self):
        said = []
        for preload in (None, HOOKS, BOTH):
            said.append(self.run_host(HOST, "loader", ASKER, preload=False, LD_PRELOAD=preload).stdout.decode())
        self.assertIn("its RTLD_NEXT asked_for: nothing", said[0])
        self.assertEqual(said[0], said[1])
        self.assertEqual(said[0], said[2])


@unittest.skipIf(SANITIZE or not COUNTER.exists(), "the other interposer is not built")
class OthersToo(HooksTest):
    """Another library that interposes dlsym and the launches, on either side of ours."""

    def test_both_see_everything(self):
        for order in (f"{BOTH}:{COUNTER}", f"{COUNTER}:{BOTH}", f"{LIBRARY}:{COUNTER}:{HOOKS}"):
            for program in ("play", "path", "proc", "proc_itself"):
                with self.subTest(order=order.replace(str(BUILD), ""), program=program):
                    count = self.dir / "count.json"
                    variables = {"LD_PRELOAD": order, "GPUFLIGHT_CAPTURE": "interpose", "LAUNCH_COUNTER_OUT": count}
                    if program == "play":
                        run = self.play("every_form", **variables)
                        log = self.log()
                        self.assert_counts(log, run.result)
                    else:
                        self.run_host(HOST, program, SIM / "libcuda.so.1", 7, **variables)
                        log = self.log()
                        self.assertEqual(len(log.kernels), 7)
                    counted = json.loads(count.read_text())
                    self.assertEqual(len(log.kernels), counted["kernels"])
                    self.assertEqual(len(log["graph_launch_event"]), counted["graphs"])
                    os.remove(self.dir / "log.ndjson")


class Allocator(HooksTest):
    @unittest.skipIf(SANITIZE, "a sanitizer has taken malloc already")
    def test_one_that_asks_dlsym_in_its_first_allocation(self):
        malloc = HOSTS / "libinterpose_malloc.so"
        for order in (f"{malloc}:{BOTH}", f"{BOTH}:{malloc}"):
            self.run_host(HOST, "proc", SIM / "libcuda.so.1", 7, LD_PRELOAD=order, GPUFLIGHT_CAPTURE="interpose")
            self.assertEqual(len(self.log().kernels), 7)
            os.remove(self.dir / "log.ndjson")
            bare = self.run_host("/bin/sh", "-c", "echo hello", sim=False, LD_PRELOAD=order)
            self.assertEqual((bare.stdout, bare.stderr), (b"hello\n", b""))


class NoCuda(HooksTest):
    def test_a_process_that_never_uses_cuda_leaves_nothing(self):
        run = self.run_host("/bin/sh", "-c", "echo hello; /bin/true", sim=False, **self.hooked())
        self.assertEqual((run.stdout, run.stderr), (b"hello\n", b""))
        self.assertEqual(os.listdir(self.dir), [])

    @unittest.skipIf(SANITIZE, "Python is not built with it")
    def test_python_that_never_uses_cuda(self):
        script = "import ctypes, ctypes.util; print(ctypes.CDLL(None).strlen(b'abc'))"
        run = self.run_host(sys.executable, "-c", script, sim=False, **self.hooked())
        self.assertEqual((run.stdout, run.stderr), (b"3\n", b""))


class Release(GuidedTest):
    def test_no_launch_is_lost_while_another_has_the_slot(self):
        host = self.guided("k:0.001", LD_PRELOAD=BOTH)
        host.do("launch k 20")
        self.tool("pause", "--release", host.pid)
        host.do("launch k 30")
        self.tool("resume", host.pid)
        host.do("launch k 40")
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(len(log.kernels), 90)
        codes = [n["code"] for n in log.notices()]
        wanted = ["hooks_stand_in", "cupti_again"]
        self.assertEqual([c for c in codes if c in wanted], wanted)
        self.assertEqual(len({e["context"] for e in log.kernels}), 1)
        timed = [e["duration_ns"] is not None for e in log.kernels]
        self.assertEqual((timed[20:50], all(timed[50:])), ([False] * 30, True))

    def test_pause_without_release_sees_nothing(self):
        host = self.guided("k:0.001", LD_PRELOAD=BOTH, GPUFLIGHT_CAPTURE="interpose")
        host.do("launch k 20")
        self.tool("pause", host.pid)
        host.do("launch k 30")
        self.tool("resume", host.pid)
        host.do("launch k 40")
        self.assertEqual(host.end()[0], 0)
        self.assertEqual(len(self.log().kernels), 60)


if __name__ == "__main__":
    main()
