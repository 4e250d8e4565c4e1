#!/usr/bin/env python3
"""What is left of a program that was killed, crashed or is still running: every launch that it had counted as returned
is in the log or recovered from the flight file.

GPUFLIGHT_TEST_ROUNDS sets how many times a program is killed at random (default 20); tools/soak.sh kill does it 500
times.
"""
import json
import os
import shutil
import signal
import subprocess

from kill_rounds import TOOL, Round, counted, events, random_kill, recover, seeded
from sim_host import GPU_SLOT, SANITIZE, SimTest, main, segments

ROUNDS = int(os.environ.get("GPUFLIGHT_TEST_ROUNDS", 2 if SANITIZE else 20))


class Recover(SimTest):
    def round(self, name, *arguments, **variables):
        round_ = Round(self.dir / name, *arguments, **variables)
        self.addCleanup(round_.close)
        return round_

    def test_killed_at_random(self):
        rng = seeded()
        for i in range(ROUNDS):
            folder = self.dir / f"round{i}"
            random_kill(folder, rng)
            shutil.rmtree(folder)

    def test_ways_to_end_without_a_last_word(self):
        # What the program's parent sees is what it would see without us.
        for how, code in (("_exit", 3), ("abort", -signal.SIGABRT), ("segv", -signal.SIGSEGV),
                          ("exception", -signal.SIGABRT), ("exec", 0)):
            if SANITIZE and how in ("segv", "exception"):
                continue  # the sanitizer has its own handler there
            with self.subTest(how):
                round_ = self.round(how, "--threads", 8, "--rate", 4000, "--end", how, "--end-after-ms", 400)
                self.assertEqual(round_.wait(), code, round_.stderr)
                round_.check()
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
            with self.subTest(number.name):
                round_ = self.round(number.name, "--threads", 8, "--rate", 4000)
                round_.wait_for_launches(500)
                self.assertEqual(round_.end(number), -number)
                round_.check()

    def test_ordered_end_leaves_nothing_to_recover(self):
        for how in ("", "exit"):
            with self.subTest(how or "return"):
                extra = ["--end", how, "--end-after-ms", 300] if how else ["--seconds", 0.5]
                round_ = self.round(how or "return", "--threads", 6, "--rate", 3000, *extra)
                self.assertEqual(round_.wait(), 3 if how else 0)
                # With exit() the other threads launch on behind the last line of the recording, which is over then.
                ledger = round_.check("clean", lost=None if how else 0)
                if how == "":
                    self.assertEqual(ledger["recovered"], 0)
                    self.assertEqual(sorted(p.name for p in round_.folder.glob("*.recovered*")), [])

    def test_running_process_is_read_and_not_disturbed(self):
        round_ = self.round("live", "--threads", 8, "--rate", 500 if SANITIZE else 5000)
        round_.wait_for_launches(2000)
        for _ in range(5):
            before = counted(round_.counters)
            code, said = recover(round_.flight, "--dry-run")
            self.assertEqual((code, said["verdict"], said["process"]), (0, "running", "running"))
            self.assertTrue(said["ledger"]["balanced"], said["ledger"])
            self.assertEqual(said["ledger"]["lost"], 0, said["ledger"])
            self.assertEqual(said["flight_troubles"], {})
            known = sum(said["ledger"][key] for key in ("in_log", "recovered", "in_motion"))
            self.assertGreaterEqual(known, before[0] + before[1])
        self.assertEqual([p.name for p in round_.folder.glob("*.recovered*")], [], "a dry run writes nothing")
        os.kill(round_.process.pid, signal.SIGSTOP)  # hangs, but is there
        self.assertEqual(recover(round_.flight, "--dry-run")[1]["verdict"], "running")
        os.kill(round_.process.pid, signal.SIGCONT)
        self.assertEqual(round_.end(signal.SIGKILL), -signal.SIGKILL)
        round_.check()

    def test_output_is_private_exclusive_and_can_be_a_pipe(self):
        round_ = self.round("out", "--threads", 4, "--rate", 3000)
        round_.wait_for_launches(500)
        round_.end(signal.SIGKILL)
        log_before, flight_before = round_.log.read_bytes(), round_.flight.read_bytes()
        victim = self.dir / "victim"
        victim.write_text("mine")
        (round_.folder / "log.recovered.ndjson").symlink_to(victim)
        os.umask(0)
        said = recover(round_.flight)[1]
        os.umask(0o022)
        self.assertEqual(victim.read_text(), "mine")
        written = round_.folder / "log.recovered.2.ndjson"
        self.assertEqual(said["written_to"], str(written))
        self.assertEqual(written.stat().st_mode & 0o777, 0o600)
        run = subprocess.run([str(TOOL), "recover", "--output", "-", str(round_.flight)], capture_output=True,
                             check=False)
        self.assertEqual(run.returncode, 4)
        self.assertEqual(run.stdout.splitlines()[-1], written.read_bytes().splitlines()[-1])
        self.assertIn(b"verdict: stopped, cause unknown", run.stderr)
        taken = subprocess.run([str(TOOL), "recover", "--output", str(victim), str(round_.flight)],
                               capture_output=True, check=False)
        self.assertEqual((taken.returncode, victim.read_text()), (1, "mine"), taken.stderr)
        self.assertEqual(log_before, round_.log.read_bytes(), "the log is left alone")
        self.assertEqual(flight_before, round_.flight.read_bytes())
        # The verbs that read logs take what was recovered as any other log, and the flight file itself as both.
        captured = sum(json.loads(line)["captured"] for file in (round_.log, written)
                       for line in file.read_bytes().splitlines() if line.startswith(b'{"type":"kernel_event"'))
        kernels, graphs = events([*segments(round_.log), written])
        for logs in ((round_.log, written), (round_.flight,)):
            report = subprocess.run([str(TOOL), "report", "--json", *map(str, logs)], capture_output=True, check=True)
            facts = json.loads(report.stdout)
            launches = sum(group["launches"] for group in facts["groups"])
            self.assertEqual(facts["totals"]["launches"], len(kernels) - captured, logs)
            self.assertEqual(launches, len(kernels) - captured + facts["totals"]["gpu_kernels"], logs)
        tail = subprocess.run([str(TOOL), "tail", "--json", "-n", "all", str(round_.flight)], capture_output=True,
                              check=True, timeout=60)
        kinds = (b'{"type":"kernel_event"', b'{"type":"graph_launch_event"')
        shown = [line for line in tail.stdout.splitlines()
                 if line.startswith(kinds) and json.loads(line)["seq"] >> 40 != GPU_SLOT]
        self.assertEqual(len(shown), len(kernels) + len(graphs))

    def test_recovered_while_it_ran_and_again_later(self):
        # The same events may be in several recovered files, and in the log by now: a folder is one recording.
        for attempt in range(10):  # killed just after the recorder wrote, there is nothing for the second to find
            round_ = self.round(f"twice{attempt}", "--threads", 4, "--rate", 4000, GPUFLIGHT_FLUSH_MS="200")
            round_.wait_for_launches(1500)
            os.kill(round_.process.pid, signal.SIGSTOP)  # or a slow reader may find all it saw in the log by then
            first = recover(round_.flight)[1]
            os.kill(round_.process.pid, signal.SIGCONT)
            round_.wait_for_launches(counted(round_.counters)[0] + 1500)
            round_.end(signal.SIGKILL)
            last = recover(round_.flight)[1]
            if first["written_to"] and last["written_to"]:
                break
        self.assertGreater(first["ledger"]["recovered"], 0, first)
        self.assertEqual(last["written_to"], str(round_.folder / "log.recovered.2.ndjson"))
        self.assertEqual(recover(round_.flight)[1]["written_to"], None, "nothing new")
        files = [*segments(round_.log), *sorted(round_.folder.glob("log.recovered*"))]
        everything = {seq for kind in events(files) for seq in kind}
        report = subprocess.run([str(TOOL), "report", "--json", str(round_.folder)], capture_output=True, check=True)
        facts = json.loads(report.stdout)
        self.assertEqual(len(facts["logs"]), 1)
        log = facts["logs"][0]
        self.assertEqual(log["launches"] + log["captured"] + log["graph_launches"], len(everything))
        one_by_one = subprocess.run([str(TOOL), "report", "--json", *map(str, files)], capture_output=True, check=True)
        self.assertEqual(json.loads(one_by_one.stdout)["totals"], facts["totals"])
        # One that has the name but is of another recording is a log of its own.
        (round_.folder / "log.recovered.3.ndjson").write_bytes(
            round_.log.read_bytes().replace(b'"t0_unix_ns":', b'"t0_unix_ns":1', 1))
        report = subprocess.run([str(TOOL), "report", "--json", str(round_.folder)], capture_output=True, check=True)
        self.assertEqual(len(json.loads(report.stdout)["logs"]), 2)

    def test_context_that_died_is_a_cuda_error(self):
        self.play("errors", expect=0)
        code, said = recover(self.dir / "log.flight")
        self.assertEqual((code, said["verdict"]), (3, "cuda_error"))
        self.assertEqual(said["cuda_error"]["status"], 700)
        self.assertEqual(said["cuda_error"]["launches"], 4)
        self.assertTrue(said["ended_in_order"])

    def test_what_cannot_be_read_is_said_in_one_line(self):
        (self.dir / "text.flight").write_text("no flight file")
        for name, words in (("text.flight", "not a flight file"), ("none.flight", "No such file")):
            run = subprocess.run([str(TOOL), "recover", str(self.dir / name)], capture_output=True, check=False,
                                 text=True)
            self.assertEqual((run.returncode, run.stdout), (1, ""))
            self.assertIn(words, run.stderr)
            self.assertEqual(len(run.stderr.splitlines()), 1)
        run = subprocess.run([str(TOOL), "recover"], capture_output=True, check=False)
        self.assertEqual(run.returncode, 2)


if __name__ == "__main__":
    main()
