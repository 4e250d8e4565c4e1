#!/usr/bin/env python3
"""fork, vfork, spawn, raw clone and exec around a recording: the parent's log stays whole, a child gets its own."""
import contextlib
import os
import shutil
import subprocess
import sys
import time
import unittest

from kill_rounds import TOOL, recover
from sim_host import (HOSTS, Log, PLANS, PLAYER, SANITIZE, SLOW, SimTest, environment, main, needs_python_host,
                      started)

HOST = HOSTS / "process_host"


class Processes(SimTest):
    def run_verb(self, *arguments, **options):
        run = self.run_host(HOST, *arguments, GPUFLIGHT_LOG=self.dir / "%e.%p.ndjson", GPUFLIGHT_SIM_DEVICE="sm_80",
                            **options)
        return {name: pid for name, pid in (line.split() for line in run.stdout.decode().splitlines())}

    def logs(self):
        return sorted(name for name in os.listdir(self.dir) if name.endswith(".ndjson"))

    def log_of(self, pid, **options):
        return self.log(f"process_host.{pid}.ndjson", **options)

    @unittest.skipIf("thread" in SANITIZE, "the sanitizer forbids threads in a forked child")
    def test_fork_without_exec_leaves_the_parent_whole(self):
        pids = self.run_verb("fork_after")
        self.assertEqual(self.logs(), [f"process_host.{pids['parent']}.ndjson"])
        log = self.log_of(pids["parent"])
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], 100 + 2000 + 100)
        grids = {}
        for event in log.kernels:
            grids[event["grid"]] = grids.get(event["grid"], 0) + 1
        self.assertEqual(grids, {"(1,1,1)": 100, "(2,1,1)": 2000, "(3,1,1)": 100})  # none of the children's
        self.assert_unique_seq(log)

    def test_a_child_that_uses_cuda_first_gets_its_own_log(self):
        pids = self.run_verb("fork_first")
        self.assertEqual(len(self.logs()), 2)
        for name, launches in (("child", 30), ("parent", 20)):
            log = self.log_of(pids[name])
            self.assertEqual(self.assert_balanced(log)["seen"], launches)
            self.assertEqual({e["name"] for e in log.kernels}, {name})
            self.assertEqual((log.start["pid"], log.end["reason"]), (int(pids[name]), "exit"))
        self.assertEqual(self.log_of(pids["child"]).start["ppid"], int(pids["parent"]))

    @unittest.skipIf(SANITIZE, "a raw clone breaks the sanitizer's own state")
    def test_raw_clone(self):
        pids = self.run_verb("raw_clone")
        self.assertEqual(self.logs(), [f"process_host.{pids['parent']}.ndjson"])
        log = self.log_of(pids["parent"])
        self.assertEqual(self.assert_balanced(log)["seen"], 200)
        self.assertNotIn("(77,1,1)", {e["grid"] for e in log.kernels})

    def test_exec_of_another_recorded_program(self):
        pids = self.run_verb("exec", HOST, "launch", "40")
        # One process, two programs, two recordings: what the first launched was written while it ran.
        pid = pids["before_exec"]
        self.assertEqual(self.logs(), [f"process_host.{pid}.2.ndjson", f"process_host.{pid}.ndjson"])
        before = self.log_of(pid)
        self.assertEqual(len(before.kernels), 10)
        self.assertEqual(before["session_end"], [])  # cut off, and it can be seen
        after = self.log(f"process_host.{pid}.2.ndjson")
        self.assertEqual(self.assert_balanced(after)["seen"], 40)
        self.assertEqual({e["name"] for e in after.kernels}, {"launched"})

    def test_spawn_system_and_vfork(self):
        pids = self.run_verb("spawn")
        self.assertEqual(self.logs(), [f"process_host.{pids['parent']}.ndjson"])
        log = self.log_of(pids["parent"])
        self.assertEqual(self.assert_balanced(log)["seen"], 60)

    def test_a_shell_of_recorded_and_other_programs(self):
        self.run_host("/bin/sh", "-c", f"/bin/true; {HOST} launch 3; for i in 1 2; do {HOST} launch 4 & done; wait",
                      GPUFLIGHT_LOG=self.dir / "%e.%p.ndjson")
        self.assertEqual(sorted(len(self.log(name).kernels) for name in self.logs()), [3, 4, 4])

    def test_excluded_by_name_in_a_chain(self):
        self.run_host("/bin/sh", "-c", f"{HOST} launch 3", GPUFLIGHT_EXCLUDE="process_host")
        self.assertEqual(self.logs(), [])


class Forks(Processes):
    """Written as fork_event by the parent; nothing of ours is in a child that uses no CUDA."""

    @unittest.skipIf("thread" in SANITIZE, "the sanitizer has a thread of its own")
    def test_workers_without_cuda(self):
        said = self.run_verb("workers", "4")
        self.assertEqual(self.logs(), [f"process_host.{said['parent']}.ndjson"])
        self.assertEqual(len(list(self.dir.glob("*.flight"))), 1)
        log = self.log_of(said["parent"])
        self.assertEqual(self.assert_balanced(log)["seen"], 4 * 50 + 50)
        forks = log["fork_event"]
        # Not the child's own child, not system(), not vfork.
        self.assertEqual([event["child_pid"] for event in forks], [int(said[f"worker{i}"]) for i in range(4)])
        times = [event["time_ns"] for event in forks]
        self.assertEqual(times, sorted(times))
        launches = sorted(event["launch_ns"] for event in log.kernels)
        for i, at in enumerate(times):  # between the launches before and after it
            self.assertTrue(launches[50 * (i + 1) - 1] < at < launches[50 * (i + 1)], (i, at))
        for i in range(4):
            self.assertEqual((said[f"worker{i}_threads"], said[f"worker{i}_flight_maps"]), ("1", "0"))
            self.assertEqual(said[f"worker{i}_descriptors"], said["before_descriptors"])
        self.assert_unique_seq(log)

    @unittest.skipIf("thread" in SANITIZE, "the sanitizer forbids threads in a forked child")
    def test_every_fork_of_a_busy_parent(self):
        said = self.run_verb("workers", "400", timeout=120)
        log = self.log_of(said["parent"])
        missed = sum(int(n["message"].split()[0]) for n in log.notices("forks_missed"))
        pids = [event["child_pid"] for event in log["fork_event"]]
        self.assertEqual(len(pids) + missed, 400)
        self.assertEqual(len(set(pids)), len(pids))
        self.assertGreater(len(pids), 300)

    def test_a_child_with_a_recorder_of_its_own_tells_its_own_forks(self):
        said = self.run_verb("fork_first")
        self.assertEqual(self.log_of(said["parent"])["fork_event"], [], "before there was a recorder")

    def test_daemon(self):
        told = self.dir / "told"
        self.run_host(HOST, "daemon", told, GPUFLIGHT_LOG=self.dir / "%e.%p.ndjson")
        deadline = time.monotonic() + 30 * SLOW
        while not told.exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        pid = int(told.read_text())
        while os.path.exists(f"/proc/{pid}"):
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertEqual(self.logs(), [f"process_host.{pid}.ndjson"])
        log = self.log_of(pid)
        self.assertEqual(self.assert_balanced(log)["seen"], 100)
        self.assertEqual((self.dir / f"process_host.{pid}.ndjson").stat().st_mode & 0o777, 0o600)

    def test_exec_chain(self):
        # Three programs in one process, one after the other, and each has its recording.
        pids = self.run_verb("exec", HOST, "exec", HOST, "launch", "5")
        pid = pids["before_exec"]
        self.assertEqual(self.logs(), [f"process_host.{pid}.2.ndjson", f"process_host.{pid}.3.ndjson",
                                       f"process_host.{pid}.ndjson"])
        self.assertEqual([len(self.log(name).kernels) for name in sorted(self.logs(), key=len, reverse=True)],
                         [10, 5, 10])


PYTHON_HOST = """
import ctypes, multiprocessing, os, sys

def launch(image, times):
    cuda = ctypes.CDLL("libcuda.so.1")
    def check(result):
        if result != 0:
            raise RuntimeError(result)
    context, module, function = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), image))
    check(cuda.cuModuleGetFunction(ctypes.byref(function), module, b"worker"))
    parameters = (ctypes.c_void_p * 1)()
    for _ in range(times):
        check(cuda.cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, None, parameters, None))
    check(cuda.cuCtxSynchronize())

def count(queue):
    queue.put((os.getpid(), len(os.listdir("/proc/self/task")), sum(".flight" in l for l in open("/proc/self/maps"))))

if __name__ == "__main__":
    image = open(sys.argv[1], "rb").read()
    context = multiprocessing.get_context(sys.argv[2])
    if sys.argv[3] == "workers-use-it":
        workers = [context.Process(target=launch, args=(image, 10 + i)) for i in range(3)]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        print(*(worker.exitcode for worker in workers))
    else:
        launch(image, 40)
        queue = context.SimpleQueue()
        workers = [context.Process(target=count, args=(queue,)) for _ in range(3)]
        for worker in workers: worker.start()
        for worker in workers: print(*queue.get())
        for worker in workers: worker.join()
        launch(image, 2)
"""


@needs_python_host
class Python(SimTest):
    """multiprocessing, as frameworks use it."""

    def run_python(self, *arguments):
        image = self.dir / "image"
        image.write_bytes(self.run_host(HOST, "image", "worker", preload=False).stdout)
        script = self.dir / "host.py"
        script.write_text(PYTHON_HOST)
        return self.run_host(sys.executable, script, image, *arguments, GPUFLIGHT_LOG=self.dir / "%p.ndjson",
                             GPUFLIGHT_SIM_DEVICE="sm_80").stdout.decode().split("\n")

    def logs(self):
        return [self.log(name) for name in sorted(os.listdir(self.dir)) if name.endswith(".ndjson")]

    def test_workers_that_use_cuda_get_their_own_logs(self):
        for method in ("fork", "spawn", "forkserver"):
            with self.subTest(method):
                for file in [*self.dir.glob("*.ndjson"), *self.dir.glob("*.flight")]:
                    file.unlink()
                self.assertEqual(self.run_python(method, "workers-use-it")[0], "0 0 0")
                logs = self.logs()
                # By their names: one that left at once may not have written its first line.
                self.assertEqual(len({log.path.stem for log in logs}), 3)
                if method == "spawn":
                    self.assertEqual(sorted(len(log.kernels) for log in logs), [10, 11, 12])
                    for log in logs:
                        self.assert_balanced(log)
                    continue
                # The others leave by os._exit, behind which no library gets to run: what is not written yet is in
                # the flight file.
                if not TOOL.exists():
                    self.skipTest("the command line is not built")
                for log in logs:
                    self.assertEqual(log["session_end"], [])
                    recover(log.path.with_suffix(".flight"))
                both = [Log(log.path.with_suffix(".recovered.ndjson")).kernels + log.kernels for log in logs]
                self.assertEqual(sorted(map(len, both)), [10, 11, 12])

    def test_workers_of_a_parent_with_cuda_cost_nothing(self):
        for method in ("fork", "spawn"):
            with self.subTest(method):
                for file in self.dir.glob("*.ndjson"):
                    file.unlink()
                workers = [list(map(int, line.split())) for line in self.run_python(method, "parent-uses-it") if line]
                (log,) = self.logs()
                self.assertEqual(len(log.kernels), 42)
                self.assert_balanced(log)
                self.assertEqual([worker[2] for worker in workers], [0, 0, 0], "no flight file is mapped there")
                self.assertEqual([worker[1] for worker in workers], [1, 1, 1], "no thread runs there")
                told = {event["child_pid"] for event in log["fork_event"]}
                pids = {worker[0] for worker in workers}
                self.assertTrue(pids <= told if method == "fork" else not pids & told, (pids, told))


class SideBySide(SimTest):
    def test_eight_ranks(self):
        with contextlib.ExitStack() as stack:
            ranks = []
            for rank in range(8):
                env = environment(GPUFLIGHT_LOG=self.dir / "run" / "%e.%r.ndjson", GPUFLIGHT_SIM_DEVICE="sm_80",
                                  RANK=rank, LOCAL_RANK=rank, WORLD_SIZE=8)
                ranks.append(stack.enter_context(started(HOST, "launch", 100 + rank, env=env, cwd=self.dir)))
            self.assertEqual([rank.wait(60 * SLOW) for rank in ranks], [0] * 8)
        self.assertEqual(sorted(p.name for p in (self.dir / "run").glob("*.ndjson")),
                         [f"process_host.{rank}.ndjson" for rank in range(8)])
        for rank in range(8):
            log = self.log(f"run/process_host.{rank}.ndjson")
            self.assertEqual(self.assert_balanced(log)["seen"], 100 + rank)
            self.assertEqual((log.start["rank"]["RANK"], log.start["rank"]["WORLD_SIZE"]), (str(rank), "8"))

    def test_a_pid_that_is_given_out_again(self):
        # What an earlier process of this number left is not touched, and not taken for ours.
        run = self.run_host("/bin/sh", "-c", f"for e in ndjson flight; do echo old > process_host.$$.$e; done; exec {HOST} launch 6",
                            GPUFLIGHT_LOG=self.dir / "%e.%p.ndjson")
        self.assertEqual(run.stderr, b"")
        (old,) = (p for p in self.dir.glob("process_host.*.ndjson") if p.read_text() == "old\n")
        self.assertEqual(old.with_suffix(".flight").read_text(), "old\n")
        log = self.log(old.with_suffix(".2.ndjson"))
        self.assertEqual(self.assert_balanced(log)["seen"], 6)
        self.assertEqual(log.start["flight_path"], str(old.with_suffix(".2.flight")))

    def namespace(self, *command):
        """`command` as process 1 of a namespace of its own, as in a container."""
        words = ["unshare", "--pid", "--fork", "--kill-child", *map(str, command)]
        probe = subprocess.run([*words[:4], "true"], capture_output=True, check=False)
        if probe.returncode != 0:
            self.skipTest(f"no pid namespaces here: {probe.stderr.decode().strip()}")
        env = environment(GPUFLIGHT_LOG=self.dir / "%e.%p.ndjson", GPUFLIGHT_SIM_DEVICE="sm_80")
        return started(*words, env=env, cwd=self.dir, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    @unittest.skipUnless(TOOL.exists(), "the command line is not built")
    def test_two_containers_share_a_folder(self):
        with self.namespace(HOST, "linger") as a, self.namespace(HOST, "linger") as b:
            for process in (a, b):
                self.assertEqual(process.stdout.readline(), b"lingering 1\n")
            flights = sorted(self.dir.glob("*.flight"))
            self.assertEqual([p.name for p in flights], ["process_host.1.2.flight", "process_host.1.flight"])
            for flight in flights:  # from outside they have other numbers, and live
                self.assertEqual(recover(flight, "--dry-run")[1]["verdict"], "running", flight.name)
            a.kill()
            a.wait()
            deadline = time.monotonic() + 10 * SLOW
            verdicts = []
            while sorted(verdicts) != ["running", "stopped"]:
                self.assertLess(time.monotonic(), deadline, verdicts)
                verdicts = [recover(flight, "--dry-run")[1]["verdict"] for flight in flights]
        for flight in flights:
            _, said = recover(flight)
            self.assertEqual(said["ledger"]["seen"], 25)
            self.assertTrue(said["ledger"]["balanced"])
            self.assertEqual(said["log_path"], str(flight.with_suffix(".ndjson")))


@unittest.skipIf(SANITIZE, "run gives a sanitized program no preload")
@unittest.skipUnless(TOOL.exists(), "the command line is not built")
class Selected(SimTest):
    """gpuflight run -- bash train.sh, and only what matters is recorded."""

    def recorded(self, *options):
        script = self.dir / "train.sh"
        script.write_text(f"{HOST} launch 3\n{PLAYER} {PLANS}/article_sm86.json\n/bin/true\n")
        env = environment(preload=False, GPUFLIGHT_SIM_PLAN=PLANS / "article_sm86.json")
        folder = self.dir / "logs"
        shutil.rmtree(folder, ignore_errors=True)
        run = subprocess.run([str(TOOL), "run", "--log", f"{folder}/%e.ndjson", *options, "--", "bash", str(script)],
                             env=env, cwd=self.dir, capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        return sorted(p.stem for p in folder.glob("*.ndjson")), run.stderr

    def test_include_and_exclude(self):
        self.assertEqual(self.recorded()[0], ["gpuflight-play", "process_host"])
        names, said = self.recorded("--include", "proc*")
        self.assertEqual(names, ["process_host"])
        self.assertIn("in 1 process", said)
        self.assertEqual(self.recorded("--exclude", "process_host,bash")[0], ["gpuflight-play"])
        self.assertEqual(self.recorded("--include", "*", "--exclude", "gpuflight-*")[0], ["process_host"])
        self.assertIn("nothing was recorded", self.recorded("--include", "python3")[1])

    def test_the_injection_of_another_tool_is_respected_and_said(self):
        env = environment(preload=False, GPUFLIGHT_SIM_DEVICE="sm_80", CUDA_INJECTION64_PATH="/opt/other/libtool.so")
        run = subprocess.run([str(TOOL), "run", "--capture", "cupti", "--", str(HOST), "launch", "3"], env=env,
                             cwd=self.dir, text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertIn("another tool's '/opt/other/libtool.so' and stays so", run.stderr)
        self.assertIn("nothing was recorded, see above", run.stderr)
        self.assertEqual(list(self.dir.glob("**/*.ndjson")), [])

    def test_with_hooks_the_injection_of_another_tool_is_no_obstacle(self):
        env = environment(preload=False, GPUFLIGHT_SIM_DEVICE="sm_80", CUDA_INJECTION64_PATH="/opt/other/libtool.so")
        run = subprocess.run([str(TOOL), "run", "--log", self.dir / "log.ndjson", "--", str(HOST), "launch", "3"],
                             env=env, cwd=self.dir, text=True, capture_output=True, timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(len(self.log().kernels), 3)


if __name__ == "__main__":
    main()
