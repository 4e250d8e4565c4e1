"""Help, usage errors and exit codes of every verb."""
import json
import os
import pty
import subprocess
import unittest

from cli_support import BUILD, SOURCE, TOOL, FolderTest, environment, tool, write_log

ALL_VERBS = ("run", "tail", "report", "explain", "occupancy", "analyze", "diff", "check", "export", "recover", "doctor",
             "version")
# A build without the CUDA headers has no occupancy model.
LEFT_OUT = () if (BUILD / "src" / "occupancy").exists() else ("explain", "occupancy")
VERBS = tuple(verb for verb in ALL_VERBS if verb not in LEFT_OUT)


class Usage(FolderTest):
    def test_no_verb_lists_all(self):
        done = tool()
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, "")
        for verb in VERBS:
            self.assertIn(f"\n  {verb} ", done.stderr)
        self.assertNotIn("doctor-probe", done.stderr)

    def test_help_goes_to_stdout(self):
        for words in (("--help",), ("-h",), ("help",)):
            done = tool(*words)
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("gpuflight run", done.stdout)

    def test_words_on_stderr_never_change_the_exit_code(self):
        reader, gone = os.pipe()
        os.close(reader)
        self.addCleanup(os.close, gone)
        full = os.open("/dev/full", os.O_WRONLY)
        self.addCleanup(os.close, full)
        cases = [(["nosuch"], 2), (["report"], 2), (["report", "no/such/log"], 1), (["recover", "no.flight"], 1),
                 (["dump", "abc"], 2), (["run", "--", "/no/such/program"], 127), (["run", "--", "sh", "-c", "exit 7"], 7)]
        for words, code in cases:
            for stderr in (gone, full):
                done = subprocess.run([TOOL, *words], stdout=subprocess.PIPE, stderr=stderr, timeout=60, env=environment())
                self.assertEqual((done.returncode, done.stdout), (code, b""), (words, stderr))
            closed = subprocess.run(["sh", "-c", 'exec "$@" 2>&-', "sh", TOOL, *words], stdout=subprocess.PIPE, timeout=60,
                                    env=environment())
            self.assertEqual((closed.returncode, closed.stdout), (code, b""), (words, "closed"))

    def test_output_that_cannot_be_written_is_a_failure(self):
        for words in (["version"], ["--help"], ["doctor", "--json"]):
            with open("/dev/full", "wb") as full:
                done = subprocess.run([TOOL, *words], stdout=full, stderr=subprocess.PIPE, timeout=60, env=environment())
            self.assertEqual((done.returncode, done.stderr), (1, b"gpuflight: cannot write the output\n"), words)

    def test_descriptors_closed_before_the_start_stay_closed_for_the_program(self):
        done = subprocess.run(["sh", "-c", 'exec "$@" <&- 2>&-', "sh", TOOL, "run", "--", "sh", "-c",
                               "for n in 0 1 2; do [ -e /proc/$$/fd/$n ] && echo $n; done; true"],  # no pipe of its own
                              stdout=subprocess.PIPE, timeout=60, env=environment())
        self.assertEqual(done.stdout, b"1\n")

    def test_help_of_each_verb_has_examples(self):
        for verb in VERBS:
            for words in ((verb, "--help"), ("help", verb)):
                done = tool(*words)
                self.assertEqual((done.returncode, done.stderr), (0, ""), words)
                self.assertTrue(done.stdout.startswith(f"Usage: gpuflight {verb} "), done.stdout)
                self.assertIn(f"\nExamples:\n  ", done.stdout)
                self.assertIn(f"gpuflight {verb}", done.stdout.split("Examples:")[1])
                self.assertLessEqual(max(map(len, done.stdout.split("\n"))), 120, verb)

    def test_run_help_has_every_option_of_the_table(self):
        text = tool("run", "--help").stdout
        options = (SOURCE / "docs" / "OPTIONS.md").read_text()
        flags = {word.strip("`,|") for word in options.split() if word.startswith("`--")}
        self.assertGreater(len(flags), 10)
        for flag in flags:
            self.assertIn(flag.split("=")[0], text)
        self.assertNotIn("{on}", text)

    def test_usage_errors_exit_2_with_one_line(self):
        log = write_log(self.folder / "a.ndjson")
        cases = (("frob",), ("rport",), ("report",), ("report", "--frob", log), ("report", "--by", "colour", log),
                 ("report", "--top", "many", log), ("report", "--json", "--csv", log), ("tail",), ("tail", "-n", "x", log),
                 ("tail", "--limiter", "smem", log), ("tail", "--occupancy-below", "2", log),
                 ("tail", "--name", "/(/", log), ("run",), ("run", "--"), ("run", "--frob", "--", "true"),
                 ("run", "--mode", "sideways", "--", "true"), ("run", "--log-max", "lots", "--", "true"),
                 ("doctor", "--frob"), ("doctor", "extra"), ("version", "--frob"))
        for words in cases:
            done = tool(*words)
            self.assertEqual(done.returncode, 2, (words, done.stderr))
            self.assertEqual(done.stdout, "", words)
            self.assertEqual(done.stderr.count("\n"), 1, (words, done.stderr))
            self.assertIn("--help", done.stderr)

    def test_nearest(self):
        self.assertIn("did you mean 'report'?", tool("reprot").stderr)
        self.assertIn("did you mean '--top'?", tool("report", "--tpo", "1", "x").stderr)
        self.assertIn("did you mean '--log-max'?", tool("run", "--logmax", "1", "--", "true").stderr)

    def test_output_that_cannot_be_written(self):
        log = write_log(self.folder / "a.ndjson")
        with open("/dev/full", "w") as full:
            done = subprocess.run([TOOL, "report", str(log)], stdout=full, stderr=subprocess.PIPE, env=environment())
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"cannot write", done.stderr)

    def test_version(self):
        done = tool("version", "--json")
        self.assertEqual(done.returncode, 0)
        facts = json.loads(done.stdout)
        self.assertEqual(facts["log_schema"].split(".")[0], "1")
        self.assertEqual(tool("version").stdout.split()[1], facts["tool"])
        self.assertEqual(tool("--version").stdout, tool("version").stdout)


class Colours(FolderTest):
    def on_terminal(self, *words, **changes):
        """What the tool writes when stdout is a terminal."""
        leader, follower = pty.openpty()
        env = environment(TERM="xterm", COLUMNS=100, **changes)
        child = subprocess.Popen([TOOL, *map(str, words)], stdout=follower, stderr=subprocess.DEVNULL, env=env)
        os.close(follower)
        out = b""
        while True:
            try:
                piece = os.read(leader, 65536)
            except OSError:
                break
            if not piece:
                break
            out += piece
        os.close(leader)
        self.assertEqual(child.wait(60), 0)
        return out

    def test_only_on_a_terminal_and_not_with_no_color(self):
        log = write_log(self.folder / "a.ndjson", "--lost", 3)
        for words in (("report", log), ("explain", log), ("tail", "--no-follow", log)):
            if words[0] in LEFT_OUT:
                continue
            self.assertIn(b"\033[", self.on_terminal(*words))
            self.assertNotIn(b"\033[", self.on_terminal(*words, NO_COLOR="1"))
            self.assertNotIn(b"\033[", self.on_terminal(*words, "--color", "never"))
            self.assertNotIn("\033[", tool(*words).stdout)
            self.assertIn("\033[", tool(*words, "--color", "always").stdout)
            self.assertNotIn(b"\033[", self.on_terminal(*words, "--color", "auto", TERM_PROGRAM="x", NO_COLOR="yes"))


if __name__ == "__main__":
    unittest.main(verbosity=2)
