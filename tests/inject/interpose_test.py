#!/usr/bin/env python3
"""Launches seen by the driver's entry points: which source is chosen and why, other interposers on either side, programs
that reach the driver in unusual ways, and processes that never use CUDA."""
import os
import subprocess
import sys

from guided_host import GuidedTest
from sim_host import HOOKS, HOSTS, LIBRARY, PLAYER, SANITIZE, SIM, SimTest, environment, main, quick_plan

import unittest

BOTH = f"{LIBRARY}:{HOOKS}"
HOST = HOSTS / "interpose_host"
OTHER = HOSTS / "libother_interposer.so"
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
        self.assertEqual([n["code"] for n in log.notices()].count("capture"), 2)
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
