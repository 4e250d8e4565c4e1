#!/usr/bin/env python3
"""Where the log and the flight file go, and what is never touched on the way."""
import os
import socket
import stat

from sim_host import PLAYER, SANITIZE, SimTest, main, quick_plan, started, environment

import unittest


class Paths(SimTest):
    def files(self, folder="."):
        return sorted(os.listdir(self.dir / folder))

    def pid_of(self, log):
        return log.start["pid"]

    def test_every_placeholder(self):
        pattern = self.dir / "out" / "%h" / "deep er" / "%e.%p.r%r.%q{JOB_NAME}.%%.ndjson"
        self.play(quick_plan(), GPUFLIGHT_LOG=pattern, RANK="3", JOB_NAME="a/b c")
        folder = self.dir / "out" / socket.gethostname() / "deep er"
        names = os.listdir(folder)
        self.assertEqual(len(names), 2, names)
        log = [n for n in names if n.endswith(".ndjson")][0]
        read = self.log(folder / log)
        pid = self.pid_of(read)
        self.assertEqual(log, f"gpuflight-play.{pid}.r3.a_b c.%.ndjson")
        self.assertIn(f"gpuflight-play.{pid}.r3.a_b c.%.flight", names)
        self.assertEqual(read.start["flight_path"], str(folder / f"gpuflight-play.{pid}.r3.a_b c.%.flight"))
        self.assertEqual(read.start["rank"], {"RANK": "3"})
        self.assertEqual(len(read.kernels), 5)

    def test_rank_from_other_launchers(self):
        for variable in ("SLURM_PROCID", "OMPI_COMM_WORLD_RANK"):
            self.play(quick_plan(), GPUFLIGHT_LOG=self.dir / "%r.ndjson", **{variable: "17"})
            self.assertEqual(len(self.log("17.ndjson").kernels), 5)
            os.remove(self.dir / "17.ndjson")
        self.play(quick_plan(), GPUFLIGHT_LOG=self.dir / "%r.ndjson")
        self.assertIn("none.ndjson", self.files())

    def test_default_is_a_folder_in_the_working_directory(self):
        self.play(quick_plan(), GPUFLIGHT_LOG=None)
        names = self.files("gpuflight")
        self.assertEqual(len(names), 2)
        log = self.log("gpuflight/" + [n for n in names if n.endswith(".ndjson")][0])
        self.assertEqual(log.path.name, f"gpuflight-play.{self.pid_of(log)}.ndjson")

    def test_a_relative_path_counts_from_where_the_program_began(self):
        self.play(quick_plan(), GPUFLIGHT_LOG="sub/rel.ndjson")
        self.assertEqual(len(self.log("sub/rel.ndjson").kernels), 5)

    def test_files_are_private(self):
        self.play(quick_plan(), GPUFLIGHT_LOG=self.dir / "a" / "b" / "log.ndjson")
        for path, mode in (("a", 0o700), ("a/b", 0o700), ("a/b/log.ndjson", 0o600), ("a/b/log.flight", 0o600)):
            self.assertEqual(stat.S_IMODE(os.stat(self.dir / path).st_mode), mode, path)

    def test_an_odd_umask(self):
        old = os.umask(0o777)
        try:
            self.play(quick_plan(), GPUFLIGHT_LOG=self.dir / "a" / "log.ndjson", expect=None)
        finally:
            os.umask(old)
        for path, mode in (("a", 0o700), ("a/log.ndjson", 0o600)):
            self.assertEqual(stat.S_IMODE(os.stat(self.dir / path).st_mode), mode, path)
        self.assertEqual(len(self.log("a/log.ndjson").kernels), 5)

    def test_what_is_there_is_left_alone(self):
        (self.dir / "log.ndjson").write_text("mine\n")
        (self.dir / "log.flight").write_text("mine too\n")
        self.play(quick_plan())
        self.play(quick_plan(times=7))
        self.assertEqual((self.dir / "log.ndjson").read_text(), "mine\n")
        self.assertEqual((self.dir / "log.flight").read_text(), "mine too\n")
        self.assertEqual(len(self.log("log.2.ndjson").kernels), 5)
        self.assertEqual(len(self.log("log.3.ndjson").kernels), 7)
        self.assertEqual(self.log("log.2.ndjson").start["flight_path"], str(self.dir / "log.2.flight"))

    def test_a_planted_link_is_not_followed(self):
        target, other = self.dir / "target", self.dir / "other"
        target.write_text("precious\n")
        os.symlink(target, self.dir / "log.ndjson")
        os.symlink(other, self.dir / "log.flight")
        self.play(quick_plan())
        self.assertEqual(target.read_text(), "precious\n")
        self.assertFalse(other.exists())
        self.assertTrue((self.dir / "log.ndjson").is_symlink())
        self.assertEqual(len(self.log("log.2.ndjson").kernels), 5)

    def test_a_fifo_or_folder_by_that_name_does_not_stop_the_program(self):
        os.mkfifo(self.dir / "log.ndjson")
        (self.dir / "log.flight").mkdir()
        self.play(quick_plan())
        self.assertEqual(len(self.log("log.2.ndjson").kernels), 5)

    def test_bad_patterns(self):
        for pattern in ("%z.ndjson", "%q.ndjson", "%q{}.ndjson", "x" * 300):
            with self.subTest(pattern):
                folder = self.dir / str(abs(hash(pattern)))
                folder.mkdir()
                self.play(quick_plan(), GPUFLIGHT_LOG=pattern, cwd=folder)
                (log,) = (folder / "gpuflight").glob("*.ndjson")
                read = self.log(log)
                self.assertEqual(len(read.notices("log_pattern")), 1)
                self.assertEqual(len(read.kernels), 5)

    def unwritable(self, path, *words):
        bare = self.play(quick_plan(), preload=False)
        run = self.play(quick_plan(), GPUFLIGHT_LOG=path)
        self.assertEqual((run.rc, run.stdout, run.result["launches"]), (bare.rc, bare.stdout, bare.result["launches"]))
        self.assertEqual(run.stderr.count(b"\n"), 1, run.stderr)
        for word in ("gpuflight: ", "GPUFLIGHT_LOG") + words:
            self.assertIn(word.encode(), run.stderr)
        quiet = self.play(quick_plan(), GPUFLIGHT_LOG=path, GPUFLIGHT_QUIET="on")
        self.assertEqual(quiet.stderr, b"")

    def test_a_file_where_a_folder_should_be(self):
        (self.dir / "file").write_text("")
        self.unwritable(self.dir / "file" / "log.ndjson", "Not a directory")

    def test_a_read_only_file_system(self):
        self.unwritable("/proc/gpuflight/log.ndjson", "/proc/gpuflight")

    @unittest.skipIf(os.geteuid() != 0, "needs root to become somebody else")
    def test_a_folder_of_somebody_else(self):
        folder = self.dir / "rooted"
        folder.mkdir(mode=0o755)
        os.chmod(self.dir, 0o755)
        file = self.plan_file(quick_plan())
        env = environment(GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_SIM_PLAN=file)
        import subprocess
        run = subprocess.run([str(PLAYER), str(file)], env=env, user=65534, group=65534, capture_output=True,
                             cwd=self.dir, check=False)
        self.assertEqual((run.returncode, run.stdout), (0, b""))
        self.assertIn(b"Permission denied", run.stderr)
        self.assertEqual(run.stderr.count(b"\n"), 1)
        self.assertEqual(os.listdir(folder), [])

    def test_flight_file_in_memory(self):
        self.play(quick_plan(), GPUFLIGHT_FLIGHT="memory")
        self.assertEqual([n for n in self.files() if n.endswith(".flight")], [])
        log = self.log()
        self.assertEqual((len(log.kernels), log.start["flight_path"]), (5, None))

    def test_flight_file_elsewhere(self):
        self.play(quick_plan(), GPUFLIGHT_FLIGHT=self.dir / "box.%p.flight")
        log = self.log()
        self.assertTrue((self.dir / f"box.{self.pid_of(log)}.flight").exists())

    def test_flight_file_that_cannot_be(self):
        self.play(quick_plan(), GPUFLIGHT_FLIGHT="/proc/nothing.flight")
        log = self.log()
        self.assertEqual(len(log.notices("flight_in_memory")), 1)
        self.assertEqual(len(log.kernels), 5)
        self.assertIsNone(log.start["flight_path"])

    def test_a_clean_run_leaves_a_small_flight_file(self):
        self.play(quick_plan())
        state = os.stat(self.dir / "log.flight")
        self.assertLess(state.st_blocks * 512, 2 << 20)

    @unittest.skipIf(SANITIZE, "two live processes are enough once")
    def test_two_at_once_on_one_name(self):
        file = self.plan_file({**quick_plan(times=200), "threads": [{"ops": [
            {"op": "launch", "kernel": "k", "grid": 1, "block": 32, "times": 200}, {"op": "delay", "us": 300_000}]}]})
        env = environment(GPUFLIGHT_LOG=self.dir / "same.ndjson", GPUFLIGHT_SIM_PLAN=file)
        with started(PLAYER, file, env=env) as a, started(PLAYER, file, env=env) as b:
            self.assertEqual((a.wait(60), b.wait(60)), (0, 0))
            pids = {a.pid, b.pid}
        logs = [self.log("same.ndjson"), self.log("same.2.ndjson")]
        self.assertEqual({self.pid_of(log) for log in logs}, pids)
        for log in logs:
            self.assertEqual(self.assert_balanced(log)["seen"], 200)


if __name__ == "__main__":
    main()
