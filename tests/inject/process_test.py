#!/usr/bin/env python3
"""fork, vfork, spawn, raw clone and exec around a recording: the parent's log stays whole, a child gets its own."""
import os

from sim_host import HOSTS, SANITIZE, SimTest, main

import unittest

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


if __name__ == "__main__":
    main()
