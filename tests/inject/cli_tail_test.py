"""tail on a log that grows, rotates, ends, or comes late."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from cli_support import SOURCE, TOOL, WRITER, FolderTest, environment, tool, write_log


class Tail(FolderTest):
    def start_tail(self, *words):
        self.out = open(self.folder / "out.txt", "wb")
        self.err = open(self.folder / "err.txt", "wb")
        child = subprocess.Popen([TOOL, "tail", *map(str, words)], stdout=self.out, stderr=self.err, env=environment())
        self.addCleanup(self.out.close)
        self.addCleanup(self.err.close)
        self.addCleanup(child.kill)
        return child

    def output(self):
        return (self.folder / "out.txt").read_text()

    def errors(self):
        return (self.folder / "err.txt").read_text()

    def wait_for(self, condition, seconds=20):
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if condition():
                return
            time.sleep(0.02)
        self.fail(f"did not come: {self.output()[-500:]} {self.errors()[-500:]}")

    def writer(self, path, *options):
        child = subprocess.Popen([WRITER, str(path), *map(str, options)], stdout=subprocess.DEVNULL)
        self.addCleanup(child.kill)
        return child

    def test_what_is_no_kernel(self):
        log = write_log(self.folder / "a.ndjson", "--steps", 1, "--no-end")
        with open(log, "a") as file:
            file.write('{"type":"kernel_pending","name":"_Z4slowv","config":1,"device":0,"context":1,"stream":2,"seq":90,'
                       '"event":1,"launch_ns":1000000,"time_ns":6000000000,"pending_ns":5999000000,"behind":3}\n')
        plain = tool("tail", "-n", "all", "--no-follow", log).stdout
        self.assertNotIn("copy", plain)
        self.assertIn("pending: slow in s2, launched at 0.001000, has not ended after 6.00 s; 3 launches behind it\n", plain)
        calls = tool("tail", "-n", "all", "--no-follow", "--calls", log).stdout
        for row in ("  30.0 us   1.00 us  copy htod pinned > device, async, 1 MiB\n", "  2.00 us   1.00 us  fill async, 4 KiB\n",
                    "  cuMemAlloc 1 MiB, then 3 MiB\n", "  cuEventRecord 0x5581bb10\n", "  cuCtxSynchronize\n"):
            self.assertIn(row, calls)

    def test_last_lines(self):
        log = write_log(self.folder / "a.ndjson", "--events", 50)
        lines = tool("tail", "--no-follow", log).stdout.strip().split("\n")
        self.assertEqual(len(lines), 11)  # with the heading
        self.assertIn("limiter", lines[0])
        self.assertEqual(lines[-1].split(),
                         ["0.001500", "s1", "16384", "256", "100.0%", "warps", "-", "5.00", "us", "reduce_1"])
        self.assertEqual(lines[-2].split()[4:6], ["83.3%", "shared_mem"])
        self.assertEqual(len(tool("tail", "--no-follow", "-n", 3, log).stdout.strip().split("\n")), 4)
        self.assertEqual(len(tool("tail", "--no-follow", "-n", "all", log).stdout.strip().split("\n")), 51)
        self.assertEqual(len(tool("tail", "--no-follow", "-n", 0, log).stdout.strip().split("\n")), 1)

    def test_a_filter_does_not_hide_what_went_wrong(self):
        log = write_log(self.folder / "a.ndjson", "--events", 30, "--no-end")
        golden = (SOURCE / "tests" / "golden" / "log_lines.ndjson").read_text().splitlines(keepends=True)
        wrong = [line for line in golden if json.loads(line)["type"] in
                 ("error_event", "hang_event", "loss_event", "exit_event", "notice_event")]
        info = '{"type":"notice_event","seq":90,"time_ns":1,"severity":"info","code":"x","message":"all is well"}\n'
        with open(log, "a", encoding="utf-8") as file:
            file.writelines([info, *wrong])
        done = tool("tail", "--no-follow", "-n", "all", "--name", "no such kernel", log)
        lines = done.stdout.splitlines()[1:]
        self.assertEqual(len(lines), len(wrong), lines)
        for words in ("error: CUDA_ERROR_ILLEGAL_ADDRESS (700", "hang: stream 2 hangs", "hang over: stream 2 goes on",
                      "lost so far: ", "end: ended by signal 9 (SIGKILL: Killed)"):
            self.assertEqual(sum(words in line for line in lines), 1, words)
        self.assertNotIn("all is well", done.stdout)
        shown = tool("tail", "--no-follow", "-n", "all", "--json", "--name", "no such kernel", log).stdout
        self.assertEqual(shown, "".join(wrong))
        only = tool("tail", "--no-follow", "-n", "all", "--json", "--limiter", "shared_mem", log).stdout.splitlines()
        self.assertEqual(len(only), 15 + len(wrong))

    def test_the_ledger_is_the_last_line(self):
        lost = tool("tail", "--no-follow", write_log(self.folder / "a.ndjson", "--lost", 7)).stderr.splitlines()
        self.assertEqual(lost[-1], "gpuflight: events seen 17 = written 10 + summarised 0 + pending 0 + lost 7 (pool_empty 7)")
        whole = tool("tail", "--no-follow", write_log(self.folder / "b.ndjson")).stderr
        self.assertNotIn("seen", whole)
        self.assertIn("the recording ended (exit)", whole)

    def test_filters(self):
        log = write_log(self.folder / "a.ndjson", "--events", 100, "--kernels", 4, "--failed-every", 10)

        def shown(*words):
            done = tool("tail", "--no-follow", "-n", "all", "--json", *words, log)
            self.assertEqual(done.returncode, 0, done.stderr)
            return [json.loads(line) for line in done.stdout.split("\n") if line]
        self.assertEqual(len(shown("--name", "reduce_2")), 25)
        self.assertEqual(len(shown("--name", "reduce_[13]")), 50)
        self.assertEqual(len(shown("--name", "reduce_2", "--name", "/^reduce_3$/")), 50)
        self.assertEqual(len(shown("--limiter", "shared_mem")), 50)
        self.assertEqual(len(shown("--limiter", "shared_mem,warps")), 100)
        self.assertEqual(len(shown("--occupancy-below", "90%")), 50)
        self.assertEqual(len(shown("--failed")), 10)
        self.assertEqual(len(shown("--stream", 1)), 100)
        self.assertEqual(len(shown("--stream", 2)), 0)
        self.assertEqual(len(shown("--stream", 2, "--stream", 1)), 100)
        self.assertEqual(len(shown("--failed", "--limiter", "warps")), 10)

    def test_json_is_the_log_itself(self):
        log = write_log(self.folder / "a.ndjson", "--events", 20)
        self.assertEqual(tool("tail", "--no-follow", "--json", "-n", "all", log).stdout, log.read_text())

    def test_follows_and_ends_with_the_recording(self):
        log = self.folder / "a.ndjson"
        tail = self.start_tail(log)
        self.wait_for(lambda: "waiting for" in self.errors())
        writer = self.writer(log, "--events", 500, "--batch", 10, "--pause-us", 20000)
        self.wait_for(lambda: "reduce_" in self.output())
        self.assertIsNone(writer.poll(), "the first lines came only after the last")
        self.assertEqual(tail.wait(30), 0)
        self.assertIn("the recording ended (exit)", self.errors())
        self.assertEqual(self.output().count("reduce_"), 500)

    def test_follows_through_rotations(self):
        log = self.folder / "a.ndjson"
        tail = self.start_tail("-n", "all", "--json", log)
        self.writer(log, "--events", 600, "--batch", 10, "--pause-us", 60000, "--segment", 65536, "--compress")
        self.assertEqual(tail.wait(60), 0, self.errors())
        self.assertGreater(len(list(self.folder.glob("a.0*"))), 5)
        times = [json.loads(line)["launch_ns"] for line in self.output().split("\n") if '"kernel_event"' in line]
        self.assertEqual(times, [1_010_000 + 10_000 * i for i in range(600)])

    def test_keep_goes_on(self):
        log = write_log(self.folder / "a.ndjson", "--events", 5)
        tail = self.start_tail("--keep", log)
        self.wait_for(lambda: "reduce_" in self.output())
        time.sleep(0.5)
        self.assertIsNone(tail.poll())
        with open(log, "a") as file:
            file.write(next(line for line in log.read_text().split("\n") if '"kernel_event"' in line) + "\n")
        self.wait_for(lambda: self.output().count("reduce_") == 6)
        tail.send_signal(signal.SIGINT)
        self.assertEqual(tail.wait(10), -signal.SIGINT)

    def test_killed_program_is_noticed(self):
        gone = subprocess.Popen(["true"])
        gone.wait()
        log = write_log(self.folder / "a.ndjson", "--no-end", "--pid", gone.pid)
        tail = self.start_tail(log)
        self.assertEqual(tail.wait(20), 0)
        self.assertIn("was killed", self.errors())

    def test_living_program_is_waited_for(self):
        log = write_log(self.folder / "a.ndjson", "--no-end", "--pid", os.getpid())
        tail = self.start_tail(log)
        time.sleep(3)
        self.assertIsNone(tail.poll())
        tail.kill()
        tail.wait()

    def test_folder_means_its_newest_log(self):
        write_log(self.folder / "old.ndjson", "--events", 1)
        os.utime(self.folder / "old.ndjson", (1, 1))
        write_log(self.folder / "new.ndjson", "--events", 7)
        done = tool("tail", "--no-follow", self.folder)
        self.assertEqual(done.stdout.count("reduce_"), 7)

    def test_process_id(self):
        log = write_log(self.folder / "a.ndjson", "--events", 4)
        with open(log) as held:
            done = tool("tail", "--no-follow", os.getpid())
            self.assertEqual(done.stdout.count("reduce_"), 4, (done.stderr, held.name))
        self.assertEqual(tool("tail", "--no-follow", "4999999").returncode, 1)

    def test_missing_without_follow(self):
        done = tool("tail", "--no-follow", self.folder / "missing.ndjson")
        self.assertEqual(done.returncode, 1)
        self.assertIn("No such file", done.stderr)

    def test_keeps_up(self):
        # 100,000 lines a second for three seconds; the last line is to be shown soon after it was written.
        log = self.folder / "a.ndjson"
        tail = self.start_tail("--json", "-n", "all", log)
        self.wait_for(lambda: "waiting for" in self.errors())
        writer = self.writer(log, "--events", 300_000, "--batch", 1000, "--pause-us", 10_000)
        self.assertEqual(writer.wait(120), 0)
        self.assertEqual(tail.wait(5), 0)
        self.assertEqual(self.output().count('"kernel_event"'), 300_000)

    def test_reader_that_goes_away(self):
        log = write_log(self.folder / "a.ndjson", "--events", 20000)
        with subprocess.Popen([TOOL, "tail", "-n", "all", str(log)], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env=environment()) as tail:
            tail.stdout.read(100)
            tail.stdout.close()
            self.assertEqual(tail.wait(20), -signal.SIGPIPE)


if __name__ == "__main__":
    unittest.main(verbosity=2)
