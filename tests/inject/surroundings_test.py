#!/usr/bin/env python3
"""No driver, no CUPTI, CUPTI that refuses: the program runs as it would, and what is wrong is said where it can be."""
import os
import shutil

from guided_host import GuidedTest
from sim_host import (HOSTS, LIBRARY, SANITIZE, SIM, SLOW, SimTest, environment, main, needs_python_host,
                      quick_plan)

import subprocess
import unittest

# What a search for another libcupti must not find on the machine the test runs on.
ALONE = {"CUDA_HOME": None, "CUDA_PATH": None, "VIRTUAL_ENV": None}


class NoDriver(SimTest):
    @needs_python_host
    def test_programs_without_cuda(self):
        for command in (["/bin/true"], ["/bin/sh", "-c", "/bin/true; exit 5"], ["python3", "-c", "print(1+1)"]):
            bare = self.run_host(*command, preload=False, sim=False, expect=None)
            run = self.run_host(*command, sim=False, expect=None)
            self.assertEqual((run.returncode, run.stdout, run.stderr), (bare.returncode, bare.stdout, bare.stderr))
        self.assertEqual(os.listdir(self.dir), [])

    @needs_python_host
    def test_a_program_that_loads_nothing_keeps_its_environment(self):
        script = "import os; print(os.environ['CUDA_INJECTION64_PATH'])"
        run = self.run_host("python3", "-c", script, sim=False)
        self.assertEqual(os.path.realpath(run.stdout.decode().strip()), os.path.realpath(LIBRARY))
        run = self.run_host("python3", "-c", script, sim=False, CUDA_INJECTION64_PATH="/another/tool.so")
        self.assertEqual(run.stdout, b"/another/tool.so\n")

    @unittest.skipIf(SANITIZE, "the runtime must come first")
    def test_dlopen_and_every_call_without_a_driver(self):
        script = (f"import ctypes\nf = ctypes.CDLL('{LIBRARY}')\n"
                  "print(f.gpuflight_init(None, 0), f.InitializeInjection(), f.gpuflight_flush(10), "
                  "f.gpuflight_shutdown(10))\nf.gpuflight_mark(b'x'); f.gpuflight_push_scope(b'x'); "
                  "f.gpuflight_pop_scope()")
        run = self.run_host("python3", "-c", script, sim=False, preload=False, GPUFLIGHT_LIBCUDA="/nowhere.so")
        self.assertEqual((run.stdout, run.stderr), (b"5 1 3 3\n", b""))

    def test_the_driver_fails_to_start(self):
        bare = self.play(quick_plan(), preload=False, expect=2, GPUFLIGHT_SIM_INIT_ERROR="100")
        run = self.play(quick_plan(), expect=2, GPUFLIGHT_SIM_INIT_ERROR="100")
        self.assertEqual((run.stdout, run.stderr), (bare.stdout, bare.stderr))


    @unittest.skipIf(not shutil.which("cc"), "needs a C compiler to make one")
    def test_the_stub_of_the_toolkit(self):
        stubs = self.dir / "stubs"
        stubs.mkdir()
        text = "".join(f"int {name}() {{ return 34; }}\n" for name in ("cuInit", "cuDriverGetVersion"))
        subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", stubs / "libcuda.so.1", "-x", "c", "-"], check=True,
                       input=text.encode())
        seen = [self.run_host(HOSTS / "hostile_host", "move_about", preload=preload, expect=99, LD_LIBRARY_PATH=stubs)
                for preload in (False, True)]
        self.assertEqual(seen[1].stderr, b"cuInit: 34\n")  # CUDA_ERROR_STUB_LIBRARY
        self.assertEqual((seen[0].stdout, seen[0].stderr), (seen[1].stdout, seen[1].stderr))
        self.assertEqual(os.listdir(self.dir), ["stubs"])
        if not SANITIZE:
            script = f"import ctypes\nprint(ctypes.CDLL('{LIBRARY}').gpuflight_init(None, 0))"
            run = self.run_host("python3", "-c", script, sim=False, preload=False,
                                GPUFLIGHT_LIBCUDA=stubs / "libcuda.so.1")
            self.assertEqual((run.stdout, run.stderr), (b"5\n", b""))


class NoCupti(SimTest):
    def refused(self, code, *words, **variables):
        bare = self.play(quick_plan(), preload=False, **variables)
        run = self.play(quick_plan(), **variables)
        self.assertEqual((run.rc, run.stdout, run.stderr, run.result["launches"]),
                         (bare.rc, bare.stdout, bare.stderr, bare.result["launches"]))
        log = self.log()
        self.assertEqual(log.start["capture"], "none")
        self.assertEqual(log.kernels, [])
        (notice,) = log.notices()
        self.assertEqual((notice["code"], notice["severity"]), (code, "error"))
        for word in words:
            self.assertIn(word, notice["message"])
        self.assertNotIn("\n", notice["message"])
        self.assertEqual(self.assert_balanced(log)["seen"], 0)
        return log

    def test_slot_taken(self):
        log = self.refused("cupti_slot_taken", "another CUPTI client", GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1", **ALONE)
        self.assertEqual(log.start["cupti_version"], 130001)

    def test_newer_than_the_driver(self):
        log = self.refused("no_cupti", "newer than the driver", GPUFLIGHT_SIM_CUPTI_TOO_NEW="1", **ALONE)
        self.assertIsNone(log.start["cupti_version"])

    def test_none_to_be_found(self):
        folder = self.dir / "driver"
        folder.mkdir()
        os.symlink(SIM / "libcuda.so.1", folder / "libcuda.so.1")
        log = self.refused("no_cupti", "no usable libcupti", "GPUFLIGHT_CUPTI", "/nowhere/libcupti.so.13",
                           LD_LIBRARY_PATH=folder, GPUFLIGHT_CUPTI="/nowhere/libcupti.so.13",
                           # a major version that no toolkit at hand has
                           GPUFLIGHT_SIM_DRIVER_VERSION="11080", **ALONE)
        self.assertIsNone(log.start["cupti_path"])

    def test_not_a_cupti(self):
        self.refused("no_cupti", "lacks cuptiGetVersion", GPUFLIGHT_CUPTI=SIM / "libcuda.so.1",
                     GPUFLIGHT_SIM_CUPTI_TOO_NEW="1", **ALONE)

    def test_the_choice_is_logged(self):
        self.play(quick_plan())
        start = self.log().start
        self.assertEqual((start["cupti_path"], start["cupti_reason"], start["capture"]),
                         (str(SIM / "libcupti.so.13"), "option cupti", "cupti"))
        self.assertEqual((start["driver_version"], start["libcuda_path"]), (13000, str(SIM / "libcuda.so.1")))

    def test_older_cupti(self):
        self.play("every_form", GPUFLIGHT_SIM_CUPTI_VERSION="12.4")
        log = self.log()
        self.assertEqual((log.start["cupti_version"], log.start["capture"]), (22, "cupti"))
        self.assertGreater(len(log.kernels), 30)

    def test_activity_records_are_not_needed(self):
        # Refused, or of a layout that is not known: launches are seen by callbacks.
        for name, variables in (("refused", {"GPUFLIGHT_SIM_ACTIVITY_ERROR": "7"}),
                                ("unknown", {"GPUFLIGHT_SIM_CUPTI_VERSION": "140000"})):
            self.play(quick_plan(), GPUFLIGHT_LOG=self.dir / f"{name}.ndjson", **variables)
            log = self.log(f"{name}.ndjson")
            self.assertEqual((len(log.kernels), log.start["capture"]), (5, "cupti"))
            self.assertEqual([n["code"] for n in log.notices()], ["no_gpu_times"])
            self.assertEqual({e["duration_ns"] for e in log.kernels}, {None})

    def test_the_driver_answers_no_question(self):
        self.play(quick_plan(registers=32), GPUFLIGHT_SIM_OCCUPANCY_ERROR="999")
        log = self.log()
        self.assertEqual(len(log.kernels), 5)
        for event in log.kernels:
            self.assertEqual((event["num_regs"], event["occupancy_source"]), (32, "model"))


class Injection(SimTest):
    def test_without_preload_by_the_variable_alone(self):
        preload = None
        if SANITIZE:
            from sim_host import preload_list
            preload = preload_list().split(":")[0]
        self.play(quick_plan(), preload=False, LD_PRELOAD=preload, CUDA_INJECTION64_PATH=LIBRARY)
        log = self.log()
        self.assertEqual(len(log.kernels), 5)
        self.assert_balanced(log)

    def test_another_tool_in_the_variable_is_respected(self):
        run = self.play(quick_plan(), CUDA_INJECTION64_PATH="/not/there.so")
        self.assertEqual(run.rc, 0)
        self.assertFalse((self.dir / "log.ndjson").exists())

    def test_no_launch_is_missed_at_the_start(self):
        # The very first launch of a process that launches at once, from many threads.
        self.play(quick_plan(times=1, threads=64))
        self.assertEqual(len(self.log().kernels), 64)

    @unittest.skipIf(SANITIZE, "stderr belongs to the sanitizer")
    def test_preload_listed_twice_and_under_two_names(self):
        link = self.dir / "libother.so"
        os.symlink(LIBRARY, link)
        file = self.plan_file(quick_plan())
        env = environment(GPUFLIGHT_LOG=self.dir / "log.ndjson", GPUFLIGHT_SIM_PLAN=file)
        env["LD_PRELOAD"] = f"{LIBRARY}:{link}:{LIBRARY}"
        run = subprocess.run([str(SIM / "gpuflight-play"), str(file)], env=env, capture_output=True, check=False)
        self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"", b""))
        self.assertEqual(len(self.log().kernels), 5)
        self.assertEqual([n for n in os.listdir(self.dir) if n.endswith(".ndjson")], ["log.ndjson"])

    @unittest.skipIf(SANITIZE, "a copy would need its own runtime")
    def test_two_copies_preloaded_are_one_recorder(self):
        copy = self.dir / "libcopy.so"
        copy.write_bytes(LIBRARY.read_bytes())
        file = self.plan_file(quick_plan())
        env = environment(GPUFLIGHT_LOG=self.dir / "log.ndjson", GPUFLIGHT_SIM_PLAN=file)
        for order in (f"{LIBRARY}:{copy}", f"{copy}:{LIBRARY}"):
            env["LD_PRELOAD"] = order
            run = subprocess.run([str(SIM / "gpuflight-play"), str(file)], env=env, capture_output=True, check=False)
            self.assertEqual((run.returncode, run.stdout, run.stderr), (0, b"", b""))
            logs = [n for n in os.listdir(self.dir) if n.endswith(".ndjson")]
            self.assertEqual(logs, ["log.ndjson"], order)
            self.assertEqual(len(self.log().kernels), 5)
            os.remove(self.dir / "log.ndjson")


class Clock(GuidedTest):
    def test_the_wall_clock_is_set_back(self):
        host = self.guided("k:0.001")
        host.do("launch k 20")
        before = host.wait_for("kernel_event", count=20)
        self.assertEqual(host.do("step_clock -86400"), "0")
        host.do("launch k 20", "@t launch k 20", "@t wait", "step_clock 86400", "launch k 20")
        self.assertEqual(host.end()[0], 0)
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], 80)
        times = [e["launch_ns"] for e in log.kernels if e["thread"] == host.pid]
        self.assertEqual(times, sorted(times))
        self.assertLess(times[-1] - before[0]["launch_ns"], 30e9 * SLOW)
        self.assertEqual([e for e in log.kernels if "late" in e], [])


if __name__ == "__main__":
    main()
