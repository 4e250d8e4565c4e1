"""run: the program's exit code, signals, streams and environment are its own; what it launches on the simulated device
is in the log and in the summary. doctor: what it finds there."""
import fcntl
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import stat
import subprocess
import sys
import termios
import time
import unittest

from cli_support import BUILD, SOURCE, TOOL, FolderTest, environment, tool

# A test run started in the background ignores some signals, and its children would inherit that.
for ignored in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
    if signal.getsignal(ignored) == signal.SIG_IGN:
        signal.signal(ignored, signal.SIG_DFL)

SIM = BUILD / "sim"
PLAYER = SIM / "gpuflight-play"
PLANS = SOURCE / "tests" / "plans"


def on_sim(plan="article_sm86.json", **changes):
    return environment(LD_LIBRARY_PATH=SIM, GPUFLIGHT_CUPTI=SIM / "libcupti.so.13", GPUFLIGHT_SIM_PLAN=PLANS / plan,
                       **changes)


class RunTest(FolderTest):
    def run_tool(self, *words, **keywords):
        return tool("run", *words, cwd=self.folder, **keywords)

    def python(self, code, *options, **keywords):
        return self.run_tool(*options, "--", sys.executable, "-c", code, **keywords)


class ExitCodes(RunTest):
    def test_kept(self):
        for code in (0, 1, 2, 3, 125, 255):
            self.assertEqual(self.run_tool("--", "sh", "-c", f"exit {code}").returncode, code)

    def test_signals_are_128_and_more(self):
        for number in (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT):
            done = self.python(f"import os; os.kill(os.getpid(), {int(number)})")
            self.assertEqual(done.returncode, 128 + number)
            self.assertIn(f"signal {int(number)} ", done.stderr)

    def test_what_cannot_be_run(self):
        plain = self.folder / "plain"
        plain.write_text("#!/bin/sh\n")
        missing_interpreter = self.folder / "script"
        missing_interpreter.write_text("#!/no/such/interpreter\n")
        missing_interpreter.chmod(0o755)
        for program, code in (("no-such-program-here", 127), ("./nowhere", 127), ("./plain", 126), (".", 126),
                              ("", 127), ("./script", 127), ("./plain/x", 127)):
            done = self.run_tool("--", program)
            self.assertEqual(done.returncode, code, (program, done.stderr))
            self.assertEqual(done.stderr.count("\n"), 1)
            self.assertIn("cannot run", done.stderr)

    def test_path_is_searched(self):
        (self.folder / "bin").mkdir()
        mine = self.folder / "bin" / "mine"
        mine.write_text("#!/bin/sh\necho $0\n")
        mine.chmod(0o755)
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        self.assertEqual(self.run_tool("--", "mine", env=environment(PATH=path)).stdout.strip(), str(mine))
        nothing = self.folder / "nothing"  # no "#!": the shell's, as execvp has it
        nothing.write_text("echo from sh\n")
        nothing.chmod(0o755)
        self.assertEqual(self.run_tool("--", "./nothing").stdout, "from sh\n")

    def test_library_not_found_is_125(self):
        done = self.run_tool("--", "true", env=environment(GPUFLIGHT_LIB="/nowhere/libgpuflight.so"))
        self.assertEqual(done.returncode, 125)


class Streams(RunTest):
    def test_untouched(self):
        done = self.run_tool("--", "sh", "-c", "cat; echo err >&2", input="in\n")
        self.assertEqual(done.stdout, "in\n")
        self.assertTrue(done.stderr.startswith("err\n"))

    def test_quiet(self):
        self.assertEqual(self.run_tool("--quiet", "--", "true").stderr, "")
        self.assertEqual(self.run_tool("--", "true", env=environment(GPUFLIGHT_QUIET="1")).stderr, "")
        self.assertIn("nothing was recorded", self.run_tool("--", "true").stderr)
        self.assertIn("nothing was recorded", self.run_tool("--no-quiet", "--", "true",
                                                            env=environment(GPUFLIGHT_QUIET="1")).stderr)

    def test_words_of_the_program_are_its_own(self):
        done = self.run_tool("--quiet", "echo", "--quiet", "-n", "--", "--help")
        self.assertEqual(done.stdout, "--quiet -n -- --help\n")
        self.assertEqual(self.run_tool("--", "echo", "--mode", "x").stdout, "--mode x\n")

    def test_nothing_is_left_behind(self):
        self.run_tool("--", "true", env=environment(TMPDIR=self.folder, XDG_RUNTIME_DIR=None))
        self.assertEqual(list(self.folder.iterdir()), [])

    def test_without_a_temporary_folder(self):
        # /proc takes no files from anybody; /tmp is left, so the run has its summary all the same
        done = self.run_tool("--", "sh", "-c", "exit 4", env=environment(TMPDIR="/proc", XDG_RUNTIME_DIR="/proc"))
        self.assertEqual(done.returncode, 4)
        self.assertIn("nothing was recorded", done.stderr)


class Environment(RunTest):
    SHOW = "import os, json; print(json.dumps(dict(os.environ)))"

    def variables(self, *options, **changes):
        done = self.python(self.SHOW, *options, env=environment(**changes))
        return json.loads(done.stdout), done.stderr

    def test_preload_and_injection(self):
        found, _ = self.variables()
        library = found["CUDA_INJECTION64_PATH"]
        self.assertTrue(library.endswith(("libgpuflight.so", ".so.0.1.0")), library)
        self.assertEqual(found["LD_PRELOAD"], f"{library}:{os.path.dirname(library)}/libgpuflight_hooks.so")
        found, _ = self.variables("--capture", "cupti")
        self.assertEqual(found["LD_PRELOAD"], library)
        found, _ = self.variables(GPUFLIGHT_CAPTURE="cupti")
        self.assertEqual(found["LD_PRELOAD"], library)

    def test_preload_of_others_is_kept(self):
        found, _ = self.variables(LD_PRELOAD="libm.so.6")
        self.assertEqual(found["LD_PRELOAD"].split(":")[2:], ["libm.so.6"])
        again, _ = self.variables(LD_PRELOAD=found["LD_PRELOAD"])
        self.assertEqual(again["LD_PRELOAD"], found["LD_PRELOAD"])

    def test_injection_of_others_is_kept_and_said(self):
        found, errors = self.variables("--capture", "cupti", CUDA_INJECTION64_PATH="/opt/other.so")
        self.assertEqual(found["CUDA_INJECTION64_PATH"], "/opt/other.so")
        self.assertIn("another tool's '/opt/other.so'", errors)
        found, errors = self.variables(CUDA_INJECTION64_PATH="/opt/other.so")
        self.assertEqual(found["CUDA_INJECTION64_PATH"], "/opt/other.so")
        self.assertNotIn("another tool's", errors)  # the hooks start the recorder

    def test_flags_become_variables(self):
        found, _ = self.variables("--log", "x/%p.ndjson", "--no-details", "--log-max=64M", "--mode", "blackbox")
        self.assertEqual(found["GPUFLIGHT_LOG"], "x/%p.ndjson")
        self.assertEqual(found["GPUFLIGHT_DETAILS"], "off")
        self.assertEqual(found["GPUFLIGHT_LOG_MAX"], "64M")
        self.assertEqual(found["GPUFLIGHT_MODE"], "blackbox")
        self.assertNotIn("GPUFLIGHT_POOL", found)

    def test_flags_win_over_variables(self):
        found, _ = self.variables("--details", GPUFLIGHT_DETAILS="off")
        self.assertEqual(found["GPUFLIGHT_DETAILS"], "on")

    def test_print_env_is_for_the_shell(self):
        done = tool("run", "--print-env", "--log", "it's.ndjson")
        self.assertEqual(done.returncode, 0)
        shown = subprocess.run(["sh", "-c", f"{done.stdout}\nprintf '%s' \"$GPUFLIGHT_LOG\""], capture_output=True)
        self.assertEqual(shown.stdout, b"it's.ndjson")
        self.assertIn("LD_PRELOAD=", done.stdout)

    def test_manifest_is_private_and_goes(self):
        code = ("import os; p=os.environ['GPUFLIGHT_RUN_MANIFEST'];"
                "print(p, oct(os.stat(p).st_mode & 0o777))")
        path, mode = self.python(code).stdout.split()
        self.assertEqual(mode, "0o600")
        self.assertFalse(os.path.exists(path))

    def test_static_program_is_said(self):
        static = BUILD / "tests" / "unit" / "cli_program_static"
        done = self.run_tool("--", static)
        self.assertEqual(done.returncode, 0)
        self.assertIn("statically linked", done.stderr)

    def test_asan_program_gets_the_injection_only(self):
        asan = BUILD / "tests" / "unit" / "cli_program_asan"
        done = self.run_tool("--", asan)
        self.assertEqual(done.returncode, 0, done.stderr)  # with the preload it would refuse to start
        self.assertIn("AddressSanitizer", done.stderr)

    def test_setuid_program_is_said(self):
        if os.getuid() != 0:
            self.skipTest("only root can make one that belongs to someone else")
        copy = self.folder / "elevated"
        copy.write_bytes(pathlib.Path("/bin/true").read_bytes())
        os.chown(copy, 12345, 12345)
        copy.chmod(0o4755)
        self.assertTrue(copy.stat().st_mode & stat.S_ISUID)
        self.assertIn("more rights", self.run_tool("--", copy).stderr)


class Signals(RunTest):
    TRAP = """
import os, signal, sys, time
def caught(number, frame):
    os.write(1, b"%d\\n" % number)
    if number == signal.SIGTERM: sys.exit(7)
for n in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH):
    signal.signal(n, caught)
os.write(1, b"ready\\n")
while True: time.sleep(0.05)
"""

    def test_forwarded_once_each(self):
        child = subprocess.Popen([TOOL, "run", "--", sys.executable, "-c", self.TRAP], stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.DEVNULL, env=environment(), cwd=self.folder)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "ready\n")
        numbers = (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGWINCH)
        for number in numbers:
            child.send_signal(number)
            self.assertEqual(child.stdout.readline(), f"{int(number)}\n")
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.stdout.read(), f"{int(signal.SIGTERM)}\n")
        self.assertEqual(child.wait(10), 7)
        child.stdout.close()

    def test_default_action_ends_both(self):
        child = subprocess.Popen([TOOL, "run", "--", "sleep", "60"], stderr=subprocess.PIPE, text=True,
                                 env=environment(), cwd=self.folder)
        self.addCleanup(child.kill)
        time.sleep(0.5)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(10), 128 + signal.SIGTERM)
        child.stderr.close()

    def test_inherited_ignores_stay(self):
        # as under nohup
        code = "import signal; print(signal.getsignal(signal.SIGHUP) == signal.SIG_IGN)"
        done = subprocess.run(["sh", "-c", f'trap "" HUP; exec "{TOOL}" run --quiet -- "{sys.executable}" -c "{code}"'],
                              capture_output=True, text=True, env=environment(), cwd=self.folder)
        self.assertEqual(done.stdout, "True\n")

    def test_inherited_ignored_children_do_not_lose_the_exit_code(self):
        done = subprocess.run([sys.executable, "-c", "import signal, os, sys; "
                               "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])",
                               TOOL, "run", "--", "sh", "-c", "exit 9"], env=environment(), cwd=self.folder,
                              stderr=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 9)

    def test_signals_are_not_blocked_in_the_program(self):
        done = self.python("import signal; print(signal.pthread_sigmask(signal.SIG_BLOCK, []))", "--quiet")
        self.assertEqual(done.stdout, "set()\n")

    def test_ctrl_c_reaches_the_program_once(self):
        leader, follower = pty.openpty()
        code = self.TRAP.replace("signal.SIGTERM: sys.exit(7)", "signal.SIGQUIT: sys.exit(5)")
        pid = os.fork()
        if pid == 0:
            os.setsid()
            fcntl.ioctl(follower, termios.TIOCSCTTY, 0)
            modes = termios.tcgetattr(follower)
            modes[3] &= ~termios.ECHO
            termios.tcsetattr(follower, termios.TCSANOW, modes)
            for fd in (0, 1, 2):
                os.dup2(follower, fd)
            os.chdir(self.folder)
            os.execve(TOOL, [TOOL, "run", "--quiet", "--", sys.executable, "-c", code], environment())
        os.close(follower)
        self.addCleanup(os.close, leader)  # hangs up: whatever still runs ends
        seen = b""

        def read_until(word):
            nonlocal seen
            end = time.monotonic() + 20
            while word not in seen and time.monotonic() < end:
                if not select.select([leader], [], [], 0.2)[0]:
                    continue
                try:
                    seen += os.read(leader, 4096)
                except OSError:
                    break
            self.assertIn(word, seen)
        read_until(b"ready\r\n")
        seen = b""
        os.write(leader, b"\x03")
        read_until(b"2\r\n")
        time.sleep(0.5)  # a second one would be on its way
        os.write(leader, b"\x1c")
        read_until(b"3\r\n")
        _, status = os.waitpid(pid, 0)
        self.assertEqual(os.waitstatus_to_exitcode(status), 5)
        self.assertEqual(seen, b"2\r\n3\r\n")

    def test_stopped_with_the_program_and_goes_on_with_it(self):
        # In a group of its own: in an orphaned one, as where the tests were started without a terminal's session, the
        # kernel drops the stops of a terminal.
        child = subprocess.Popen([TOOL, "run", "--", sys.executable, "-c", self.TRAP], stdout=subprocess.PIPE, text=True,
                                 stderr=subprocess.DEVNULL, env=environment(), cwd=self.folder, process_group=0)
        self.addCleanup(child.kill)
        self.assertEqual(child.stdout.readline(), "ready\n")
        child.send_signal(signal.SIGTSTP)
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        self.assertTrue(os.WIFSTOPPED(status))
        child.send_signal(signal.SIGCONT)
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(10), 7)
        child.stdout.close()

    def test_a_program_frozen_alone_does_not_take_us_along(self):
        child = subprocess.Popen([TOOL, "run", "--", "sh", "-c", "echo $$; kill -STOP $$; exit 6"],
                                 stdout=subprocess.PIPE, text=True, stderr=subprocess.DEVNULL, env=environment(),
                                 cwd=self.folder)
        self.addCleanup(child.kill)
        pid = int(child.stdout.readline())
        time.sleep(0.5)
        os.kill(pid, signal.SIGCONT)
        self.assertEqual(child.wait(10), 6)
        child.stdout.close()


class Simulated(RunTest):
    """The real library, the simulated device."""

    def play(self, *options, plan="article_sm86.json", **keywords):
        return self.run_tool(*options, "--", PLAYER, PLANS / plan, env=on_sim(plan), **keywords)

    def report(self, *words):
        done = tool("report", "--json", *words, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_article(self):
        done = self.play()
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = done.stderr.strip().split("\n")
        self.assertEqual(len(lines), 3, done.stderr)
        self.assertEqual(lines[0], "gpuflight: 2 launches of 2 kernels in 1 process; limited by warps (1), shared_mem (1)")
        log = re.match(r"gpuflight: log (gpuflight/gpuflight-play\.\d+\.ndjson) \(", lines[1]).group(1)
        self.assertEqual(lines[2], f"gpuflight: next: gpuflight report {log}")

        groups = {g["label"]: g for g in self.report(log)["groups"]}
        naive = groups["_Z18block_reduce_naivePKfPfi"]
        self.assertEqual((naive["occupancy"], naive["max_active_blocks"]["min"], naive["limiting_resource"]),
                         (0.833333, 5, "shared_mem"))
        optimized = groups["_Z22block_reduce_optimizedPKfPfi"]
        self.assertEqual((optimized["occupancy"], optimized["limiting_resource"]), (1.0, "warps"))
        self.assertEqual(optimized["dyn_shared_bytes"], {"min": 1024, "max": 1024})

    def test_report_counts_what_the_session_counted(self):
        for plan in ("every_form.json", "errors.json", "handle_reuse.json"):
            with self.subTest(plan):
                folder = self.folder / plan
                self.play("--log", f"{folder}/%p.ndjson", plan=plan)
                facts = self.report(folder)
                end = next(json.loads(line) for line in next(folder.glob("*.ndjson")).read_text().split("\n")
                           if '"session_end"' in line)
                self.assertGreater(end["launches"], 0)
                self.assertEqual(facts["totals"]["launches"], end["launches"])
                self.assertEqual(facts["totals"]["captured"], end["captured"])
                self.assertEqual(facts["totals"]["failed"], end["failed"])
                # the recorder tells apart two kernels of one name from different modules, a report does not
                self.assertLessEqual(facts["totals"]["kernels"], end["kernels"])

    def test_report_counts_once_what_stands_in_several_files(self):
        self.play("--log", "k.ndjson", plan="every_form.json")
        log, flight = self.folder / "k.ndjson", self.folder / "k.flight"

        def counted(*words):
            facts = self.report(*words)
            self.assertEqual(len(facts["logs"]), 1, words)
            return facts["totals"]["launches"], facts["logs"][0]["graph_launches"], facts["logs"][0]["missing_events"]
        whole = counted(log)
        self.assertGreater(min(whole[:2]), 0)
        self.assertEqual(whole[2], 0)
        for words in ((log, flight), (flight, log), (log, log, flight), (flight, flight)):
            self.assertEqual(counted(*words), whole, words)
        # Cut short, with the rest recovered: under all names there are, each event once.
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[: len(lines) // 2]))
        self.assertEqual(tool("recover", flight, cwd=self.folder).returncode, 0)
        recovered = self.folder / "k.recovered.ndjson"
        self.assertTrue(recovered.exists())
        self.assertLess(counted(log), whole)
        for words in ((log, recovered), (log, flight), (log, recovered, flight), sorted(self.folder.glob("k.*")),
                      (recovered, flight), (self.folder, flight)):
            self.assertEqual(counted(*words), whole, words)
        # The same where the end is there.
        log.write_bytes(b"".join(lines[:3] + lines[len(lines) // 2:]))
        self.assertGreater(counted(log)[2], 0)
        self.assertEqual(counted(log, flight), whole)
        log.write_bytes(b"".join(lines[: len(lines) // 2]))
        # Under a name that says nothing, and beside a recording that is another one.
        other = self.folder / "elsewhere.ndjson"
        recovered.rename(other)
        self.assertEqual(counted(other, log), whole)
        self.play("--log", "second.ndjson", plan="every_form.json")
        self.assertEqual(self.report(log, flight, other, "second.ndjson")["totals"]["launches"], 2 * whole[0])

    def test_report_knows_of_graph_launches_whose_lines_are_gone(self):
        self.play("--log", "k.ndjson", plan="every_form.json")
        log = self.folder / "k.ndjson"
        whole = self.report(log)["logs"][0]
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(line for line in lines if b'"graph_launch_event"' not in line))
        cut = self.report(log)["logs"][0]
        self.assertGreater(whole["graph_launches"], 0)
        self.assertEqual(cut["graph_launches"], whole["graph_launches"])
        self.assertEqual(cut["missing_events"], whole["graph_launches"])

    def test_black_box_counts_the_same(self):
        self.play("--mode", "blackbox", "--log", "box.ndjson")
        facts = self.report("box.ndjson")
        self.assertEqual((facts["totals"]["launches"], facts["logs"][0]["missing_events"]), (2, 0))

    def test_several_processes(self):
        done = self.run_tool("--", "sh", "-c", f"{PLAYER} {PLANS}/article_sm86.json & {PLAYER} {PLANS}/article_sm86.json; "
                             "wait; exit 4", env=on_sim())
        self.assertEqual(done.returncode, 4)
        self.assertIn("4 launches of 2 kernels in 2 processes", done.stderr)
        self.assertEqual(self.report("gpuflight")["totals"]["launches"], 4)

    def test_killed_program(self):
        code = (f"import subprocess, os, signal; subprocess.run(['{PLAYER}', '{PLANS}/article_sm86.json']);"
                "os.kill(os.getpid(), signal.SIGKILL)")
        done = self.python(code, env=on_sim())
        self.assertEqual(done.returncode, 137)
        self.assertIn("ended by signal 9", done.stderr)
        self.assertIn("2 launches", done.stderr)

    def test_options_reach_the_recorder(self):
        done = self.play("--no-details", "--log", "sub/%e.ndjson")
        self.assertIn("log sub/gpuflight-play.ndjson", done.stderr)
        facts = self.report("sub/gpuflight-play.ndjson")
        self.assertIsNone(facts["groups"][0]["occupancy"])
        notices = [n["message"] for n in facts["logs"][0]["notices"]]
        self.assertFalse([n for n in notices if "GPUFLIGHT_" in n], "our own variables are no options")

    def test_tail_shows_it(self):
        self.play()
        done = tool("tail", "--no-follow", "--limiter", "shared_mem", "gpuflight", cwd=self.folder)
        self.assertEqual(done.stdout.count("block_reduce_naive"), 1)
        self.assertIn("83.3%", done.stdout)

    def test_a_taken_slot_is_said(self):
        done = self.run_tool("--capture", "cupti", "--", PLAYER, PLANS / "article_sm86.json",
                             env=on_sim(GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("launches are not recorded", done.stderr)
        self.assertIn("0 launches", done.stderr)
        doctor = tool("doctor", "--json", cwd=self.folder,
                      env=on_sim(GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1", GPUFLIGHT_CAPTURE="cupti"))
        self.assertEqual(doctor.returncode, 1)
        prevents = [f for f in json.loads(doctor.stdout)["findings"] if f["health"] == "prevents"]
        self.assertTrue(any("one CUPTI client at a time" in f["remedy"] for f in prevents), prevents)

    def test_a_taken_slot_costs_the_gpu_times_only(self):
        done = self.run_tool("--", PLAYER, PLANS / "article_sm86.json", env=on_sim(GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1"))
        self.assertEqual(done.returncode, 0)
        self.assertIn("2 launches", done.stderr)
        self.assertIn("GPU times are not recorded", done.stderr)
        doctor = tool("doctor", "--json", cwd=self.folder, env=on_sim(GPUFLIGHT_SIM_SUBSCRIBER_TAKEN="1"))
        self.assertEqual(doctor.returncode, 0, doctor.stdout)
        found = {f["check"]: f for f in json.loads(doctor.stdout)["findings"]}
        self.assertEqual(found["recorder"]["health"], "warning")
        self.assertIn("seen by the hooks", found["recorder"]["found"])
        self.assertIn("one CUPTI client at a time", found["notice"]["remedy"])

    def test_hostile_names(self):
        self.play(plan="hostile_names.json")
        text = tool("report", "gpuflight", cwd=self.folder).stdout
        self.assertNotIn("\033", text)
        self.assertLess(max(map(len, text.split("\n"))), 400)

    def test_doctor(self):
        done = tool("doctor", "--json", cwd=self.folder, env=on_sim())
        facts = json.loads(done.stdout)
        found = {f["check"]: f for f in facts["findings"]}
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertTrue(facts["records"])
        self.assertEqual(found["driver"]["health"], "ok")
        self.assertIn(str(SIM / "libcupti.so.13"), found["cupti"]["found"])
        self.assertEqual(found["recorder"]["health"], "ok")
        self.assertEqual(found["hooks"]["health"], "ok")
        hooks = facts["probe"]["hooks"]
        self.assertEqual((hooks["capture"], hooks["capture_reason"]), ("interpose", "asked for"))
        self.assertEqual(hooks["loader"]["interposers"], [])
        self.assertEqual(list(self.folder.iterdir()), [])  # looking leaves nothing behind
        text = tool("doctor", cwd=self.folder, env=on_sim())
        self.assertEqual(text.returncode, 0)
        self.assertIn("recording works here", text.stdout)


    def test_doctor_says_who_else_stands_before_the_loader(self):
        malloc = BUILD / "sim_hosts" / "libinterpose_malloc.so"
        if not malloc.exists():
            self.skipTest("no other interposer is built")
        source = self.folder / "dlsym.c"
        source.write_text("#define _GNU_SOURCE\n#include <dlfcn.h>\nvoid* dlsym(void* h, const char* n) {\n"
                          "return ((void* (*)(void*, const char*))dlvsym(RTLD_NEXT, \"dlsym\", \"" +
                          ("GLIBC_2.17" if os.uname().machine == "aarch64" else "GLIBC_2.2.5") + "\"))(h, n); }\n")
        other = self.folder / "libother.so"
        subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", other, source, "-ldl"], check=True)
        done = tool("doctor", "--json", cwd=self.folder, env=on_sim(LD_PRELOAD=f"{malloc}:{other}"))
        found = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertEqual(found["hooks"]["health"], "ok")
        self.assertIn("libother.so stands before dlsym", found["interposer"]["found"])
        self.assertIn("libinterpose_malloc.so replaces malloc", found["allocator"]["found"])

    def test_doctor_without_hooks(self):
        alone = self.folder / "lib"
        alone.mkdir()
        shutil.copy(BUILD / "lib" / "libgpuflight.so", alone / "libgpuflight.so")
        done = tool("doctor", "--json", cwd=self.folder, env=on_sim(GPUFLIGHT_LIB=alone / "libgpuflight.so"))
        found = {f["check"]: f for f in json.loads(done.stdout)["findings"]}
        self.assertEqual(done.returncode, 0)
        self.assertEqual(found["hooks"]["health"], "warning")
        self.assertIn("install it beside the library", found["hooks"]["remedy"])


class Doctor(RunTest):
    def findings(self, **changes):
        done = tool("doctor", "--json", cwd=self.folder, env=environment(**changes))
        facts = json.loads(done.stdout)
        self.assertEqual(done.returncode, 0 if facts["records"] else 1)
        for finding in facts["findings"]:
            if finding["health"] in ("warning", "prevents"):
                self.assertTrue(finding["remedy"], finding)
        return facts["findings"]

    def health(self, check, **changes):
        return [f["health"] for f in self.findings(**changes) if f["check"] == check]

    def test_no_driver(self):
        self.assertEqual(self.health("driver", GPUFLIGHT_LIBCUDA="/nowhere/libcuda.so.1"), ["prevents"])

    def test_a_driver_that_crashes_or_hangs_is_a_finding(self):
        for name, body, said in (("crash", "*(volatile int*)0 = 0;", "signal 11"), ("hang", "for (;;) pause();", "20 s")):
            source = self.folder / f"{name}.c"
            source.write_text("#include <unistd.h>\nint cuInit(unsigned f) { (void)f; " + body + " return 0; }\n")
            library = self.folder / f"libcuda_{name}.so"
            subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", library, source], check=True)
            begin = time.monotonic()
            found = [f for f in self.findings(GPUFLIGHT_LIBCUDA=library) if f["check"] == "probe"]
            self.assertEqual(found[0]["health"], "prevents")
            self.assertIn(said, found[0]["found"])
            self.assertLess(time.monotonic() - begin, 40)

    def test_stub_trap(self):
        stubs = self.folder / "lib64" / "stubs"
        stubs.mkdir(parents=True)
        (stubs / "libcuda.so").write_bytes(b"")
        self.assertEqual(self.health("stubs", LD_LIBRARY_PATH=stubs), ["warning"])
        subprocess.run(["cc", "-shared", "-o", stubs / "libcuda.so.1", "-x", "c", "/dev/null"], check=True)
        self.assertEqual(self.health("stubs", LD_LIBRARY_PATH=f"{stubs}/"), ["prevents"])
        self.assertEqual(self.health("driver", LD_LIBRARY_PATH=stubs), ["prevents"])

    def test_options_and_other_tools(self):
        self.assertIn("warning", self.health("options", GPUFLIGHT_MOED="stream"))
        self.assertIn("warning", self.health("options", GPUFLIGHT_MODE="sideways"))
        self.assertIn("prevents", self.health("options", GPUFLIGHT_ENABLED="off"))
        self.assertEqual(self.health("injection", CUDA_INJECTION64_PATH="/opt/nsys.so"), ["prevents"])

    def test_log_folder(self):
        self.assertEqual(self.health("log_folder", GPUFLIGHT_LOG="/proc/nowhere/%p.ndjson"), ["prevents"])
        self.assertEqual(self.health("log_folder", GPUFLIGHT_LOG="x/%z.ndjson"), ["prevents"])
        self.assertIn(self.health("log_folder")[0], ("ok", "note"))

    def test_no_library(self):
        self.assertEqual(self.health("library", GPUFLIGHT_LIB="/nowhere/lib.so"), ["prevents"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
