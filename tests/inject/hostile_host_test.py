#!/usr/bin/env python3
"""Hosts that close all descriptors, delete the log's folder, move about, drop their rights, cancel threads."""
import ctypes
import os
import resource
import shutil
import struct

import time

from sim_host import (CAPTURE, HOSTS, PLAYER, SANITIZE, SLOW, SimTest, environment, main, needs_cupti, quick_plan,
                      started)

import unittest

HOST = HOSTS / "hostile_host"
STARVED = HOSTS / "starved_host"


def refuse_unshare():
    """As some containers do: unshare() is not permitted (a seccomp filter that knows only that call)."""
    program = b"".join(struct.pack("<HBBI", *instruction) for instruction in (
        (0x20, 0, 0, 0), (0x15, 0, 1, {"x86_64": 272, "aarch64": 97}[os.uname().machine]),
        (0x06, 0, 0, 0x00050001), (0x06, 0, 0, 0x7FFF0000)))
    buffer = ctypes.create_string_buffer(program)
    filter_ = ctypes.create_string_buffer(struct.pack("<HxxxxxxQ", 4, ctypes.addressof(buffer)))
    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(38, 1, 0, 0, 0)  # PR_SET_NO_NEW_PRIVS
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(filter_)), 0, 0) != 0:  # PR_SET_SECCOMP, filter
        raise OSError(ctypes.get_errno(), "seccomp")


class Host(SimTest):
    def run_verb(self, *arguments, **options):
        return self.run_host(HOST, *arguments, GPUFLIGHT_SIM_DEVICE="sm_86", **options)

    def test_all_descriptors_closed_and_taken_by_the_host(self):
        own = self.dir / "own"
        own.mkdir()
        self.run_verb("close_fds", own)  # exit 1: one of its files was written to or closed
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], 100 + 20 * 100)
        self.assertEqual(len(log.kernels), 2100)
        self.assertEqual({f: os.path.getsize(own / f) for f in os.listdir(own) if os.path.getsize(own / f)}, {})

    @unittest.skipIf(SANITIZE, "it shares the recorder's writes with the sanitizer's")
    def test_the_same_where_no_own_descriptor_table_is_to_be_had(self):
        own = self.dir / "own"
        own.mkdir()
        self.run_verb("close_fds", own, preexec_fn=refuse_unshare)
        self.assertEqual({f: os.path.getsize(own / f) for f in os.listdir(own) if os.path.getsize(own / f)}, {})
        end = self.assert_balanced(self.log(), lost=None)
        self.assertEqual(end["seen"], 2100)

    def no_descriptors(self, when, name, refuse=lambda: None):
        def limited():
            resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
            refuse()
        run = self.run_verb("no_descriptors", when, GPUFLIGHT_LOG=self.dir / name, preexec_fn=limited,
                            GPUFLIGHT_LOG_SEGMENT="256K")
        self.assertEqual((run.stdout, run.stderr), (b"", b""))
        return self.dir / name

    @unittest.skipIf(SANITIZE, "it needs descriptors itself, and knows one table of them only")
    def test_no_descriptor_left_while_it_runs(self):
        for name, refuse in (("own", lambda: None), ("shared", refuse_unshare)):
            if SANITIZE and name == "shared":
                continue
            with self.subTest(name):
                log = self.log(self.no_descriptors("after", f"{name}.ndjson", refuse))
                self.assertEqual(self.assert_balanced(log)["written"], 2100)
                self.assertEqual(len(log.kernels), 2100)
                self.assertGreater(len(log.files), 3)

    @unittest.skipIf(SANITIZE, "it needs descriptors itself, and knows one table of them only")
    def test_no_descriptor_left_at_the_start(self):
        # The driver itself cannot open what the variable names, or we cannot open libcupti: nothing can be recorded.
        log = self.no_descriptors("before", "log.ndjson")
        if log.exists() and CAPTURE == "interpose":
            self.assertEqual(len(self.log().kernels), 2100)
        elif log.exists():
            (notice,) = self.log().notices()
            self.assertEqual(notice["code"], "no_cupti")
            self.assertIn("Too many open files", notice["message"])

    @unittest.skipIf(os.geteuid() != 0, "needs root to change it")
    def test_root_changed(self):
        empty = self.dir / "empty"
        empty.mkdir()
        self.run_verb("change_root", empty, GPUFLIGHT_LOG_SEGMENT="256K")
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["written"], 2100)
        self.assertEqual((len(log.kernels), os.listdir(empty)), (2100, []))
        self.assertGreater(len(log.files), 3)

    def test_a_thousand_module_loads_and_unloads(self):
        self.run_verb("modules", 1000, timeout=120)
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], 2000)
        own = [e for e in log.kernels if e["name"] != "stays"]
        self.assertEqual([e["name"] for e in own], [f"passes_{i}" for i in range(1000)])
        self.assertEqual([e["num_regs"] for e in own], [16 + i % 64 for i in range(1000)])

    def test_folder_of_the_log_deleted(self):
        folder = self.dir / "logs"
        self.run_verb("remove_folder", folder, GPUFLIGHT_LOG=folder / "log.ndjson")
        # Made anew: what came after is there, what went is counted.
        log = self.log("logs/log.ndjson")
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], 100 + 20 * 50)
        self.assertEqual(end["written"], 1100)
        self.assertEqual(len(log.kernels), end["written"] - end["rotated_away"])
        self.assertGreaterEqual(end["rotated_away"], 100)
        self.assertGreater(len(log.kernels), 0)
        self.assertEqual(log["device_info"][0]["device"], 0)

    def test_directory_and_umask_changed(self):
        self.run_verb("move_about", GPUFLIGHT_LOG="rel/log.ndjson", GPUFLIGHT_LOG_SEGMENT="256K")
        log = self.log("rel/log.ndjson")
        self.assertEqual(self.assert_balanced(log)["written"], 2100)
        self.assertEqual(len(log.kernels), 2100)
        self.assertGreater(len(log.files), 3)
        for file in log.files:
            self.assertEqual(os.stat(file).st_mode & 0o777, 0o600)

    @unittest.skipIf(os.geteuid() != 0, "needs root to have something to drop")
    def test_rights_dropped(self):
        # In a folder that is root's alone: the open file goes on, a new segment cannot be had.
        folder = self.dir / "roots"
        folder.mkdir(mode=0o700)
        self.run_verb("drop_rights", GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_LOG_SEGMENT="256K")
        log = self.log("roots/log.ndjson")
        end = self.assert_balanced(log, lost=None)
        self.assertEqual(end["seen"], 100 + 40 * 500)
        self.assertEqual(end["lost"], end["lost_by_cause"]["write_failed"])
        self.assertEqual(len(log.kernels), end["written"])
        self.assertEqual(end["lost"], 0)

    @needs_cupti
    @unittest.skipIf(SANITIZE, "their runtimes lose track of a cancelled thread")
    def test_threads_cancelled_inside_a_launch(self):
        self.run_verb("cancel")
        log = self.log()
        end = self.assert_balanced(log)
        self.assertEqual(end["seen"], 10 + 50 * 2 + 10)
        cut = [e for e in log.kernels if e["grid"] == "(3,1,1)"]
        self.assertEqual(len(cut), 50)
        self.assertEqual({(e["status"], e["call_ns"]) for e in cut}, {(None, None)})  # it never came back
        self.assertEqual({e["status"] for e in log.kernels if e["grid"] != "(3,1,1)"}, {0})

    def test_ten_thousand_short_lived_threads(self):
        count = 10_000 if not SANITIZE else 1000
        self.run_verb("threads", count, 16, GPUFLIGHT_EXIT_TIMEOUT_MS="60s", timeout=240)
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], count)
        grids = {e["grid"] for e in log.kernels}
        self.assertEqual(grids, {f"({n},1,1)" for n in range(1, count + 1)})
        slots = {e["seq"] >> 40 for e in log.kernels}
        self.assertLessEqual(len(slots), 200)  # used again, not one for each
        self.assert_unique_seq(log)
        threads = {e["thread"] for e in log.kernels}
        self.assertGreater(len(threads), count // 2)
        kinds = {s["stream"]: s["kind"] for s in log["stream_info"]}
        for event in log.kernels:
            n = int(event["grid"][1:].split(",")[0]) - 1
            self.assertEqual(kinds[event["stream"]], "legacy_default" if n % 2 == 0 else "per_thread_default")

    def test_more_streams_than_the_table_holds(self):
        count = 17_000 if not SANITIZE else 2000
        self.run_verb("streams", count, GPUFLIGHT_EXIT_TIMEOUT_MS="60s", timeout=240)
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["seen"], count)
        known = [e for e in log.kernels if e["stream"] is not None]
        self.assertEqual(len({e["stream"] for e in known}), len(known))  # each a stream of its own
        if count > 16_384:
            self.assertEqual(len(known), 16_383)
            self.assertEqual(len(log.notices("stream_table_full")), 1)
            # Not known is null, and the line is whole otherwise.
            self.assertEqual(log.kernels[-1]["name"], "k")


@unittest.skipIf(os.geteuid() != 0 or not shutil.which("mount"), "needs root for a small file system")
class SmallDisk(SimTest):
    def setUp(self):
        super().setUp()
        self.disk = self.dir / "disk"
        self.disk.mkdir()
        if os.system(f"mount -t tmpfs -o size=1m gpuflight-test {self.disk} 2>/dev/null") != 0:
            self.skipTest("may not mount")
        self.addCleanup(os.system, f"umount -l {self.disk}")

    def test_full_disk(self):
        run = self.run_host(HOST, "move_about", GPUFLIGHT_LOG=self.disk / "log.ndjson")
        log = self.log(self.disk / "log.ndjson")
        if log["session_end"]:  # a short line may find the room that a batch did not
            self.assertEqual((log.end["lost"], run.stderr), (2100 - len(log.kernels), b""))
        else:
            self.assertEqual(run.stderr.count(b"\n"), 1)
            self.assertIn(f"{2100 - len(log.kernels)} events are lost".encode(), run.stderr)
        # 2,100 lines do not fit one megabyte, nor does the flight file, which then is in memory.
        self.assertLess(len(log.kernels), 2100)
        self.assertGreater(len(log.kernels), 300)
        for line in log.lines:
            self.assertTrue(line.endswith(b"}"))
        self.assertEqual(len(log.notices("flight_in_memory")), 1)

    def test_a_disk_that_was_full_before(self):
        (self.disk / "full").write_bytes(b"x" * (1 << 20))
        bare = self.run_host(HOST, "move_about", preload=False)
        run = self.run_host(HOST, "move_about", GPUFLIGHT_LOG=self.disk / "log.ndjson")
        self.assertEqual(run.stdout, bare.stdout)
        self.assertEqual(run.stderr.count(b"\n"), 1, run.stderr)
        for words in (b"No space left on device", b"2100 events are lost", bytes(self.disk / "log.ndjson")):
            self.assertIn(words, run.stderr)

    def test_space_comes_back(self):
        ballast = self.disk / "full"
        ballast.write_bytes(b"x" * (1 << 20))
        file = self.plan_file({**quick_plan(), "threads": [{"ops": [
            {"op": "launch", "kernel": "k", "times": 50}, {"op": "delay", "us": 300_000 * SLOW}] * 3}]})
        env = environment(GPUFLIGHT_LOG=self.disk / "log.ndjson", GPUFLIGHT_SIM_PLAN=file)
        with started(PLAYER, file, env=env, stderr=-1) as player:
            time.sleep(0.15 * SLOW)
            ballast.unlink()
            self.assertEqual((player.wait(60 * SLOW), player.stderr.read()), (0, b""))
        log = self.log(self.disk / "log.ndjson")
        end = self.assert_balanced(log, lost=None)
        self.assertEqual((end["seen"], end["written"]), (150, len(log.kernels)))
        self.assertIn(len(log.kernels), range(100, 151))
        self.assertEqual(sum(e["lost_since_last"]["write_failed"] for e in log["loss_event"]), end["lost"])
        self.assertEqual(end["lost"], end["lost_by_cause"]["write_failed"])

    def test_small_shm(self):
        # In a mount namespace of its own /dev/shm is as small as containers make it.
        script = f"mount -t tmpfs -o size=1m gpuflight-test /dev/shm && exec {HOST} move_about"
        self.run_host("unshare", "-m", "/bin/sh", "-c", script, GPUFLIGHT_FLIGHT="/dev/shm/%p.flight")
        log = self.log()
        self.assertEqual(self.assert_balanced(log)["written"], 2100)
        (notice,) = log.notices()
        self.assertEqual(notice["code"], "flight_in_memory")
        self.assertIn("/dev/shm", notice["message"])


class FileSizeLimit(SimTest):
    def run_limited(self, limit):
        def limited():
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
        bare = self.run_host(HOST, "move_about", preload=False, preexec_fn=limited)
        run = self.run_host(HOST, "move_about", preexec_fn=limited)  # SIGXFSZ would end it
        self.assertEqual((run.returncode, run.stdout), (bare.returncode, bare.stdout))
        return run

    def test_the_log_is_cut_into_smaller_segments(self):
        run = self.run_limited(256 << 10)
        log = self.log()
        end = self.assert_balanced(log)
        self.assertEqual((end["written"], len(log.kernels), run.stderr), (2100, 2100, b""))
        (notice,) = log.notices("flight_in_memory")
        self.assertIn("File too large", notice["message"])
        for file in log.files:
            self.assertLessEqual(os.path.getsize(file), 256 << 10)

    def test_not_even_one_line_fits(self):
        run = self.run_limited(100)
        self.assertEqual(run.stderr.count(b"\n"), 1, run.stderr)
        self.assertIn(b"File too large", run.stderr)


@unittest.skipIf(SANITIZE, "a sanitizer has taken malloc already")
class Starved(SimTest):
    """Every allocation of the recorder can fail: at the start, in a callback, on its threads."""

    def starve(self, how, number, **variables):
        folder = self.dir / f"{how}{number}"
        folder.mkdir()
        run = self.run_host(STARVED, how, number, GPUFLIGHT_LOG=folder / "log.ndjson", GPUFLIGHT_SIM_DEVICE="sm_86",
                            GPUFLIGHT_FLUSH_MS="2ms", **variables)
        self.assertEqual(run.stdout, b"launched 540\n", (how, number))
        self.assertLessEqual(run.stderr.count(b"\n"), 1, (how, number, run.stderr))
        if run.stderr:
            self.assertTrue(run.stderr.startswith(b"gpuflight: "), run.stderr)
        return run, folder / "log.ndjson"

    def test_none_is_refused(self):
        _, log = self.starve("from", 1 << 40, STARVED_COUNT=self.dir / "count")
        self.assertEqual(self.assert_balanced(self.log(log))["seen"], 540 + 1)
        self.assertGreater(int((self.dir / "count").read_text()), 200)

    def test_one_is_refused(self):
        for number in (*range(0, 40, 3), *range(40, 400, 24)):
            run, log = self.starve("once", number)
            if not log.exists() or not log.read_bytes():
                self.assertIn(b"gpuflight: ", run.stderr, number)  # nothing is recorded, and it is said
                continue
            end = self.assert_balanced(self.log(log, validate=False), lost=None, pending=None)
            self.assertLessEqual(end["seen"], 541)

    def test_all_are_refused(self):
        for number in (*range(0, 40, 4), *range(40, 400, 40)):
            run, log = self.starve("from", number)
            if not log.exists():
                self.assertIn(b"gpuflight: ", run.stderr, number)


if __name__ == "__main__":
    main()
