#!/usr/bin/env python3
"""How programs die under `gpuflight run`: what its summary says, what is recovered, and that nobody's signal handlers
are touched for it."""
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from kill_rounds import HOST, TOOL, Round, counted, events, recover, seeded
from sim_host import HOSTS, SANITIZE, SLOW, Log, SimTest, environment, main, segments, started

DEATH_HOST = HOSTS / "death_host"
without_sanitizer = unittest.skipIf(SANITIZE, "the sanitizer has signal handlers and exit codes of its own")


def words_of(text):
    return [line.removeprefix("gpuflight: ") for line in text.splitlines() if line.startswith("gpuflight: ")]


class Died:
    def __init__(self, folder, code, stderr):
        self.folder, self.code, self.stderr = folder, code, stderr
        self.said = words_of(stderr)

    def line(self, beginning):
        return next((line for line in self.said if line.startswith(beginning)), None)

    def launches(self):
        """As the summary has them."""
        found = re.search(r"^gpuflight: ([\d,]+) launch", self.stderr, re.M)
        return int(found[1].replace(",", "")) if found else None


class Run(SimTest):
    def command(self, *options, log="log.ndjson"):
        return [str(TOOL), "run", "--log", str(self.dir / log), *options, "--"]

    def environment(self, **variables):
        return environment(preload=False, GPUFLIGHT_SIM_DEVICE="sm_80", **variables)

    def soak(self, *arguments, name="counters"):
        return [str(HOST), "--counters", str(self.dir / name), "--threads", "4", "--rate", "4000",
                *map(str, arguments)]

    def died(self, command, program, timeout=60):
        run = subprocess.run([*command, *map(str, program)], capture_output=True, text=True, env=self.environment(),
                             cwd=self.dir, timeout=timeout * SLOW, check=False)
        self.stdout = run.stdout
        return Died(self.dir, run.returncode, run.stderr)

    def killed(self, command, program, number=signal.SIGKILL, whom="program", launches=800):
        """Started, and ended from outside when it has launched so often. `whom`: the program itself, or run."""
        with started(*command, *program, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd=self.dir,
                     env=self.environment()) as process:
            counters = self.dir / "counters"
            deadline = time.monotonic() + 60 * SLOW
            while not (counters.exists() and counters.stat().st_size >= 128 and counted(counters)[0] >= launches):
                self.assertLess(time.monotonic(), deadline)
                self.assertIsNone(process.poll())
                time.sleep(0.02)
            if whom == "run":
                process.send_signal(number)
            else:
                os.kill(self.pid_of(HOST), number)
            stderr = process.communicate(timeout=60 * SLOW)[1]
            return Died(self.dir, process.returncode, stderr)

    def pid_of(self, program):
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    ours = f"{self.dir}/counters\0".encode() in (entry / "cmdline").read_bytes()
                    if os.readlink(entry / "exe") == os.path.realpath(program) and ours:
                        return int(entry.name)
                except OSError:
                    pass
        raise AssertionError(f"{program} does not run")

    def assert_all_there(self, died, log="log.ndjson", counters="counters", summary=True):
        """Every launch the program counted is in the log or in what run recovered, once, and run told their number."""
        launches, graphs, workers = counted(self.dir / counters)
        log = self.dir / log
        recovered = log.with_suffix(".recovered.ndjson")
        files = [*segments(log), recovered]
        kernels, graph_launches = events(files)
        everything = kernels + graph_launches
        self.assertEqual(len(everything), len(set(everything)))
        self.assertTrue(launches <= len(kernels) <= launches + workers, (launches, len(kernels), died.stderr))
        self.assertTrue(graphs <= len(graph_launches) <= graphs + workers)
        if summary:
            captured = sum(line.count(b'"captured":true') for file in files
                           for line in file.read_bytes().split(b"\n") if b'"type":"kernel_event"' in line)
            self.assertEqual(died.launches(), len(kernels) - captured, died.stderr)
        return Log(recovered)


@without_sanitizer
class Summary(Run):
    def ends_by(self, how, code, words, number=None):
        died = self.died(self.command(), self.soak("--end", how, "--end-after-ms", 400))
        self.assertEqual(died.code, code, died.stderr)
        self.assertIn(words, died.said[0])
        recovered = self.assert_all_there(died)
        (exit_event,) = recovered["exit_event"]
        self.assertEqual((exit_event["signal"], exit_event["exit_code"]),
                         (number, None) if number else (None, code))
        self.assertFalse(exit_event["oom_kill"])
        flight = self.dir / "log.flight"
        self.assertEqual(died.said[-1], "next: gpuflight recover log.flight")
        self.assertRegex(died.stderr, r"process \d+ \(soak_host\) did not end its recording; "
                                      r"[\d,]+ events that had not reached its log are in log.recovered.ndjson")
        self.assertRegex(died.stderr, r"(?m)^gpuflight:   stream \d+.*: last (graph \d+|.*t[io]ck.*\(\d+,1,1\) x \(64,1,1\)) at \+")
        # And who looks later is told the same.
        later, said = recover(flight)
        self.assertEqual((later, said["verdict"]), (4, "stopped"))
        self.assertEqual((said["exit"]["signal"], said["exit"]["exit_code"]),
                         (exit_event["signal"], exit_event["exit_code"]))
        self.assertEqual(said["recovered_path"], str(self.dir / "log.recovered.ndjson"))
        self.assertIsNone(said["written_to"], "once is enough")
        self.assertFalse((self.dir / "log.recovered.2.ndjson").exists())
        self.assertIn(words.removeprefix("the program ").removeprefix("was "), said["verdict_text"])
        return died

    def test_segmentation_fault(self):
        self.ends_by("segv", 139, "the program was ended by signal 11 (SIGSEGV: Segmentation fault)", 11)

    def test_abort(self):
        self.ends_by("abort", 134, "the program was ended by signal 6 (SIGABRT: Aborted)", 6)

    def test_uncaught_exception(self):
        died = self.ends_by("exception", 134, "the program was ended by signal 6 (SIGABRT: Aborted)", 6)
        self.assertIn("terminate called", died.stderr)  # the program's own last words

    def test_exit_without_handlers(self):
        self.ends_by("_exit", 3, "the program exited with code 3")

    def test_exec_of_something_else(self):
        self.ends_by("exec", 0, "the program exited with code 0")

    def test_killed(self):
        died = self.killed(self.command(), self.soak())
        self.assertEqual(died.code, 137)
        self.assertIn("ended by signal 9 (SIGKILL: Killed), not the kernel's OOM killer", died.said[0])
        self.assert_all_there(died)

    def test_signal_to_run_is_passed_on_and_told(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            with self.subTest(number.name):
                for file in self.dir.iterdir():
                    file.unlink()
                died = self.killed(self.command(), self.soak(), number, whom="run")
                self.assertEqual(died.code, 128 + number)
                self.assertIn(f"signal {int(number)} ({number.name}", died.said[0])
                self.assertIn("sent to gpuflight run", died.said[0])
                self.assertEqual(self.assert_all_there(died)["exit_event"][0]["signal_from"], "run")

    def test_signal_to_the_program_itself(self):
        died = self.killed(self.command(), self.soak(), signal.SIGTERM)
        self.assertEqual(died.code, 143)
        self.assertNotIn("sent to gpuflight run", died.stderr)
        self.assertIsNone(self.assert_all_there(died)["exit_event"][0]["signal_from"])

    def test_grandchild_behind_a_shell(self):
        program = " ".join(self.soak())
        died = self.killed(self.command(), ["bash", "-c", f"{program}; exit $?"])
        self.assertEqual(died.code, 137)
        self.assertEqual(died.said[0], "the program exited with code 137, as a shell does when SIGKILL ended what it ran")
        # How the grandchild ended only its parent knows.
        self.assertEqual(self.assert_all_there(died)["exit_event"], [])
        self.assertIn("verdict: stopped, cause unknown", died.stderr)
        (self.dir / "counters").unlink()
        died = self.killed(self.command(log="b.ndjson"), ["bash", "-c", f"exec {program}"])
        self.assertEqual(died.code, 137)
        self.assertEqual(self.assert_all_there(died, "b.ndjson")["exit_event"][0]["signal"], 9)

    def test_several_processes_and_one_is_killed(self):
        one = " ".join(self.soak())
        two = " ".join(self.soak("--seconds", 1, name="second"))
        died = self.killed(self.command(log="%p.ndjson"), ["bash", "-c", f"{two} & {one}; wait; exit 4"])
        self.assertEqual(died.code, 4)
        self.assertIn("in 2 processes", died.stderr)
        (recovered,) = self.dir.glob("*.recovered.ndjson")
        logs = sorted(self.dir.glob("[0-9]*[0-9].ndjson"))
        self.assertEqual(len(logs), 2)
        kernels, _ = events([*logs, recovered])
        wanted = counted(self.dir / "counters")[0] + counted(self.dir / "second")[0]
        self.assertTrue(wanted <= len(kernels) <= wanted + 16, (wanted, len(kernels)))
        self.assertEqual(died.stderr.count("did not end its recording"), 1)
        self.assertEqual(died.stderr.count("verdict: "), 1)
        flight = recovered.name.replace(".recovered.ndjson", ".flight")
        self.assertIn(f"next: gpuflight recover {flight}", died.stderr)

    def test_exec_chain_of_recorded_programs(self):
        host = HOSTS / "process_host"
        died = self.died(self.command(log="%p.ndjson"), [host, "exec", *self.soak("--end", "segv", "--end-after-ms", 300)])
        self.assertEqual(died.code, 139)
        self.assertEqual(died.stderr.count("did not end its recording"), 2)
        self.assertIn("has replaced itself by another program (exec)", died.stderr)
        exits = [event for file in self.dir.glob("*.recovered.ndjson") for event in Log(file)["exit_event"]]
        self.assertEqual([event["signal"] for event in exits], [11], "only of the program that was there at the end")

    def test_one_that_is_left_behind(self):
        # A daemon that the program has started is neither dead nor disturbed.
        program = " ".join(self.soak())
        wait = f"while ! [ -s {self.dir}/left.ndjson ]; do sleep 0.05; done; sleep 0.3"
        began = time.monotonic()
        died = self.died(self.command(log="left.ndjson"), ["bash", "-c", f"{program} > /dev/null 2>&1 & {wait}; exit 0"])
        self.addCleanup(lambda: os.kill(self.pid_of(HOST), signal.SIGKILL))
        self.assertEqual(died.code, 0)
        self.assertRegex(died.stderr, r"process \d+ (\(soak_host\) )?still runs and is recorded")
        self.assertNotIn("did not end", died.stderr)
        self.assertEqual(list(self.dir.glob("*.recovered*")), [])
        self.assertTrue(died.line("next: gpuflight report"))
        self.assertEqual(recover(self.dir / "left.flight", "--dry-run")[1]["verdict"], "running")
        self.assertLess(time.monotonic() - began, 30 * SLOW)

    def test_children_that_end_with_the_program_are_waited_for(self):
        # The shell is gone at once; its child closes its log a little later.
        late = " ".join(self.soak("--seconds", 1.2))
        wait = f"while ! [ -s {self.dir}/log.ndjson ]; do sleep 0.05; done; sleep 0.9"
        died = self.died(self.command(), ["bash", "-c", f"{late} > /dev/null 2>&1 & {wait}; kill -TERM $$"])
        self.assertEqual(died.code, 143)
        self.assertNotIn("still runs", died.stderr)
        self.assertNotIn("did not end its recording", died.stderr)
        self.assertEqual(self.log().end["reason"], "exit")

    def test_nothing_is_said_when_quiet_but_it_is_recovered(self):
        died = self.died(self.command("--quiet"), self.soak("--end", "segv", "--end-after-ms", 300))
        self.assertEqual((died.code, died.stderr), (139, ""))
        self.assert_all_there(died, summary=False)

    def test_without_a_flight_file(self):
        died = self.died(self.command("--flight", "memory"), self.soak("--end", "segv", "--end-after-ms", 300))
        self.assertEqual(died.code, 139)
        self.assertIn("it had no flight file", died.stderr)
        self.assertTrue(died.line("next: gpuflight report"))

    def test_exit_code_of_a_recording_that_ended_in_order(self):
        died = self.died(self.command(), self.soak("--end", "exit", "--end-after-ms", 300))
        self.assertEqual(died.code, 3)
        self.assertEqual(died.said[0], "the program exited with code 3")
        self.assertTrue(died.line("next: gpuflight report"))
        self.assertEqual(list(self.dir.glob("*.recovered*")), [])

    def test_a_folder_that_takes_no_more_files(self):
        # What cannot be written is said; the summary and the exit code are there all the same.
        (self.dir / "log.recovered.ndjson").mkdir()
        for i in range(2, 6):
            (self.dir / f"log.recovered.{i}.ndjson").symlink_to("/nowhere")
        died = self.died(self.command(), self.soak("--end", "segv", "--end-after-ms", 300))
        self.assertEqual(died.code, 139)
        self.assertTrue((self.dir / "log.recovered.6.ndjson").exists())
        self.assertFalse(os.path.exists("/nowhere"))

    def test_black_box_is_dumped(self):
        died = self.killed(self.command("--mode", "blackbox", "--dump-events", "300"), self.soak(), launches=12000)
        self.assertEqual(died.code, 137)
        log = self.dir / "log.ndjson"
        self.assertEqual(events([log]), ([], []), "in black-box mode the log has summaries only")
        recovered = self.dir / "log.recovered.ndjson"
        kernels, graphs = events([recovered])
        _, said = recover(self.dir / "log.flight", "--dry-run")
        ledger = said["ledger"]
        # What no summary tells of is all there; of what the summaries have, the last 300.
        self.assertEqual(len(kernels) + len(graphs), ledger["recovered"] + said["history"])
        self.assertEqual(said["history"], 300)
        self.assertTrue(ledger["balanced"], ledger)
        times = [json.loads(line)["launch_ns"] for line in recovered.read_bytes().splitlines() if b"launch_ns" in line]
        self.assertEqual(times, sorted(times))
        launches, _, workers = counted(self.dir / "counters")
        self.assertTrue(abs(died.launches() - launches) <= 3 * workers, (died.launches(), launches, died.stderr))
        self.assertRegex(died.stderr, r"and the last 300 that it has in summaries only are in log.recovered.ndjson")
        # recover writes as many as it is asked for.
        more = self.dir / "more.ndjson"
        recover(self.dir / "log.flight", "--events", "1000", "--output", str(more))
        kernels, graphs = events([more])
        self.assertEqual(len(kernels) + len(graphs), ledger["recovered"] + 1000)

    def test_black_box_killed_at_random(self):
        rng = seeded()
        for i in range(4):
            folder = self.dir / f"round{i}"
            round_ = Round(folder, "--threads", rng.randint(2, 12), "--rate", rng.choice([1000, 8000, 20000]),
                           GPUFLIGHT_MODE="blackbox", GPUFLIGHT_POOL=rng.choice(["1M", "32M"]))
            self.addCleanup(round_.close)
            round_.wait_for_launches(1)
            time.sleep(rng.random() * 2.5)
            self.assertEqual(round_.end(signal.SIGKILL), -signal.SIGKILL)
            launches, graphs, workers = counted(round_.counters)
            _, said = recover(round_.flight)
            ledger = said["ledger"]
            self.assertTrue(ledger["balanced"], ledger)
            causes = ledger["lost_by_cause"]
            self.assertEqual(ledger["lost"], causes["unfinished"], ledger)
            self.assertTrue(launches + graphs <= ledger["seen"] <= launches + graphs + 2 * workers, (launches, graphs, said))
            report = subprocess.run([str(TOOL), "report", "--json", str(round_.flight)], capture_output=True, check=True)
            total = json.loads(report.stdout)["totals"]
            known = total["launches"] + total["captured"]
            # In a folder the log and what was recovered are one recording.
            folder_report = subprocess.run([str(TOOL), "report", "--json", str(folder)], capture_output=True, check=True)
            facts = json.loads(folder_report.stdout)
            self.assertEqual((facts["totals"]["launches"], len(facts["logs"])), (total["launches"], 1))
            # Of launches under way while a summary was made, which of the two tells is not known to the last one.
            self.assertTrue(abs(known - launches) <= 2 * workers, (known, launches, ledger))

    def test_a_cuda_error_and_its_culprit(self):
        plan = self.plan_file("errors")
        run = subprocess.run([*self.command(), str(HOSTS.parent / "sim" / "gpuflight-play"), str(plan)], text=True,
                             capture_output=True, env=environment(preload=False, GPUFLIGHT_SIM_PLAN=plan), cwd=self.dir,
                             timeout=60, check=False)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertRegex(run.stderr, r"(?m)^gpuflight: error: CUDA_ERROR_ILLEGAL_ADDRESS \(700, .*\) returned by "
                                     r"cu\w+ in thread \d+; likely cause: \S+ \(\d+,1,1\)")


@without_sanitizer
class Ledger(Run):
    """seen = written + summarised + pending + lost is the last line wherever something is missing, and nowhere else."""

    LINE = re.compile(r"events seen ([\d,]+) = written ([\d,]+) \+ summarised ([\d,]+) \+ pending ([\d,]+) \+ "
                      r"lost ([\d,]+) \(pool_empty ([\d,]+)[^)]*\)")

    def numbers(self, line):
        match = self.LINE.search(line)
        self.assertIsNotNone(match, line)
        seen, written, summarised, pending, lost, _ = (int(text.replace(",", "")) for text in match.groups())
        self.assertEqual(seen, written + summarised + pending + lost)
        self.assertGreater(lost, 0)
        return seen, written, summarised, pending, lost

    def tool(self, *words):
        return subprocess.run([str(TOOL), *map(str, words)], capture_output=True, text=True, cwd=self.dir, timeout=120,
                              check=False)

    def lossy(self, *arguments):
        return self.died(self.command("--pool", "1M", "--flush-ms", "200", "--no-details"),
                         self.soak("--rate", 0, "--threads", 8, *arguments), timeout=120)

    def test_of_a_recording_that_ended_in_order(self):
        died = self.lossy("--seconds", 0.5)
        self.assertEqual(died.code, 0, died.stderr)
        numbers = self.numbers(died.said[-1])
        end = self.log().end
        self.assertEqual(numbers, tuple(end[key] for key in ("seen", "written", "summarised", "pending", "lost")))
        self.assertEqual(self.numbers(self.tool("report", "log.ndjson").stdout.splitlines()[-1]), numbers)
        self.assertEqual(self.numbers(self.tool("tail", "--no-follow", "log.ndjson").stderr.splitlines()[-1]), numbers)
        facts = json.loads(self.tool("report", "--json", "log.ndjson").stdout)["logs"][0]["ledger"]
        self.assertEqual((facts["seen"], facts["written"], facts["summarised"], facts["pending"],
                          facts["lost_total"]), numbers)
        last = self.tool("recover", "log.flight").stdout.splitlines()[-1]
        self.assertRegex(last, rf"^events seen {numbers[0]:,} = .* \+ lost {numbers[4]:,} \(pool_empty")

    def test_of_one_that_was_cut_short(self):
        died = self.lossy("--end", "segv", "--end-after-ms", 500)
        self.assertEqual(died.code, 139)
        numbers = self.numbers(died.said[-1])
        ledger = recover(self.dir / "log.flight")[1]["ledger"]
        self.assertEqual(numbers, (ledger["seen"], ledger["in_log"] + ledger["recovered"] + ledger["rotated_away"],
                                   ledger["summarised"], ledger["in_motion"], ledger["lost"]))
        for words in (("tail", "log.flight"), ("tail", "--name", "tock", "log.flight")):
            self.assertEqual(self.numbers(self.tool(*words).stderr.splitlines()[-1]), numbers)
        self.assertEqual(self.numbers(self.tool("report", "log.flight").stdout.splitlines()[-1]), numbers)
        self.assertIn(f"lost {numbers[4]:,} (", self.tool("recover", "log.flight").stdout.splitlines()[-1])

    def test_where_nothing_is_missing_there_is_none(self):
        died = self.died(self.command(), self.soak("--seconds", 0.3))
        self.assertEqual((died.code, len(died.said)), (0, 3), died.stderr)
        for words in (("report", "log.ndjson"), ("tail", "--no-follow", "log.ndjson")):
            self.assertNotIn("events seen", "".join((self.tool(*words).stdout, self.tool(*words).stderr)))


class OutOfMemory(Run):
    """In a control group of its own with little memory."""

    def group(self):
        if os.geteuid() != 0:
            self.skipTest("only root can make control groups")
        for root, controller in (("/sys/fs/cgroup", "memory.max"), ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")):
            own = self.own_group(controller == "memory.max")
            folder = pathlib.Path(root + own) / f"gpuflight-test-{os.getpid()}"
            try:
                folder.mkdir()
            except OSError:
                continue
            self.addCleanup(self.remove, folder)
            if (folder / controller).exists():
                try:
                    (folder / controller).write_text(str(96 << 20))
                    swap = folder / ("memory.swap.max" if controller == "memory.max" else "memory.memsw.limit_in_bytes")
                    if swap.exists():
                        swap.write_text("0" if controller == "memory.max" else str(96 << 20))
                    return folder
                except OSError:
                    continue
        self.skipTest("no control group with a memory limit can be made here")

    @staticmethod
    def own_group(version_2):
        for line in pathlib.Path("/proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers == "" if version_2 else "memory" in controllers.split(","):
                return path.rstrip("/")
        return ""

    @staticmethod
    def remove(folder):
        for _ in range(50):
            try:
                return folder.rmdir()
            except OSError:
                time.sleep(0.1)

    @without_sanitizer
    def test_oom_kill_is_told(self):
        group = self.group()
        enter = ["sh", "-c", f"echo $$ > {group}/cgroup.procs && exec \"$@\"", "sh"]
        died = self.died([*enter, *self.command()], [DEATH_HOST, "eat", 4096])
        self.assertEqual(died.code, 137, died.stderr)
        self.assertIn("ended by signal 9 (SIGKILL: Killed), the kernel's OOM killer", died.said[0])
        recovered = Log(self.dir / "log.recovered.ndjson")
        self.assertIs(recovered["exit_event"][0]["oom_kill"], True)
        self.assertIn("OOM killer", recover(self.dir / "log.flight")[1]["verdict_text"])
        self.assertGreater(died.launches(), 500)
        # In the same group, somebody's kill is not taken for it.
        died = self.killed([*enter, *self.command(log="b.ndjson")], self.soak(), launches=200)
        self.assertEqual(died.code, 137, died.stderr)
        self.assertIs(Log(self.dir / "b.recovered.ndjson")["exit_event"][0]["oom_kill"], False)


class Handlers(SimTest):
    @without_sanitizer
    def test_the_hosts_own_and_no_other(self):
        bare = self.run_host(DEATH_HOST, "handlers", preload=False, expect=-signal.SIGSEGV)
        recorded = self.run_host(DEATH_HOST, "handlers", expect=-signal.SIGSEGV)
        self.assertEqual(recorded.stdout.decode(), bare.stdout.decode())
        self.assertEqual(recorded.stderr, bare.stderr)
        text = recorded.stdout.decode()
        self.assertNotIn("SOMEBODY", text)
        self.assertEqual(text.splitlines()[-4:], ["term second", "term first", "segv second", "segv first"])
        self.assertEqual(re.search("at first:.*", text)[0].replace("alternate stack 0", "").strip(), "at first:")
        said = recover(self.dir / "log.flight")[1]
        self.assertEqual((said["verdict"], said["ledger"]["seen"]), ("stopped", 300))
        self.assertEqual(len(events([self.dir / "log.ndjson", self.dir / "log.recovered.ndjson"])[0]), 300)

    def test_exit_from_a_handler_ends_in_order(self):
        self.run_host(DEATH_HOST, "exit-in-handler", expect=7)
        self.assertEqual(self.assert_balanced(self.log())["seen"], 100)
        self.assertEqual(self.log().end["reason"], "exit")


if __name__ == "__main__":
    main()
