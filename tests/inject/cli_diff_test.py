"""diff: facts, verdicts, what it refuses, exit codes and the forms that CI systems read."""
import json
import os
import subprocess
import unittest
import xml.etree.ElementTree as xml

from cli_support import TOOL, FolderTest, environment, tool, write_log
from made_logs import Log, golden, run
from sarif_shape import check_sarif


class Diff(FolderTest):
    def side(self, name, ns=50_000, count=3, first=0, **facts):
        """Recordings in turns with those of another side that begins half a step later."""
        for i in range(count):
            run(self.folder / name / f"{i}.ndjson", begin=first + 2 * i, ns=ns, seed=name, **facts)
        return self.folder / name

    def diff(self, *words, code=0):
        done = tool("diff", "--json", *words)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def one(self, facts):
        (kernel,) = facts["kernels"]
        return kernel

    def test_same_slower_and_faster(self):
        a, same = self.side("a"), self.side("same", first=1)
        slow, fast = self.side("slow", ns=60_000, first=1), self.side("fast", ns=40_000, first=1)
        self.assertEqual(self.one(self.diff(a, same))["verdict"], "SAME")
        kernel = self.one(self.diff(a, slow, code=1))
        self.assertEqual((kernel["verdict"], kernel["outcome"], kernel["failed_by"]), ("SLOWER", "fail", "slower"))
        self.assertAlmostEqual(kernel["median"]["ratio"], 1.2, delta=0.03)
        self.assertAlmostEqual(kernel["median"]["p"], 0.1)
        self.assertLess(kernel["median"]["interval"]["low"], kernel["median"]["ratio"])
        self.assertEqual(len(kernel["median"]["recordings_after_ns"]), 3)
        self.assertEqual(self.one(self.diff(a, fast))["verdict"], "FASTER")
        self.assertEqual(self.one(self.diff(a, slow, "--fail-on", "none"))["outcome"], "pass")
        self.assertEqual(self.one(self.diff(a, slow, "--min-effect", "30"))["verdict"], "SAME")
        self.assertEqual(self.one(self.diff(a, slow, "--alpha", "0.05", code=3))["reason"],
                         "too few recordings for this alpha")
        logs = sorted(slow.glob("*"))
        facts = self.diff(*sorted(a.glob("*")), "--vs", logs[0], "--vs", *logs[1:], code=1)
        self.assertEqual((len(facts["before"]), len(facts["after"])), (3, 3))
        self.assertTrue(facts["in_turns"])

    def test_a_longer_tail_is_slower(self):
        for name, tail in (("a", 50_000), ("b", 200_000)):
            for i in range(3):
                log = Log(begin=2 * i + (name == "b"), pid=i + 1)
                for j in range(100):
                    log.kernel(tail if j % 10 == 0 else 50_000)
                log.write(self.folder / name / f"{i}.ndjson")
        kernel = self.one(self.diff(self.folder / "a", self.folder / "b", code=1))
        self.assertEqual((kernel["median"]["verdict"], kernel["p95"]["verdict"]), ("SAME", "SLOWER"))
        self.assertIn("p95", tool("diff", self.folder / "a", self.folder / "b", "--format", "junit").stdout)
        self.assertEqual(self.one(self.diff(self.folder / "a", self.folder / "b", "--judge", "median"))["verdict"], "SAME")

    def test_fewer_than_three_recordings_are_unsure_and_facts_are_told(self):
        a, b = self.side("a", count=2), self.side("b", ns=90_000, count=2, first=1, regs=64, occupancy=0.5,
                                                  limiter="registers", spill=16, shared=1024)
        facts = self.diff(a, b, code=3)
        kernel = self.one(facts)
        self.assertEqual((kernel["verdict"], kernel["reason"]), ("UNSURE", "fewer than three recordings"))
        changes = {c["fact"]: (c["before"], c["after"], c["worse"]) for c in kernel["changes"]}
        self.assertEqual(changes, {"registers": ("32", "64", True), "shared": ("0+0", "1024+0", True),
                                   "spill": ("0", "16", True), "occupancy": ("100.0%", "50.0%", True),
                                   "limiter": ("warps", "registers", True)})
        self.diff(a, b, "--fail-on", "occupancy", code=1)
        self.diff(a, b, "--fail-on", "launches", code=0)
        self.assertIsNone(self.one(self.diff(a, b, "--facts", code=1))["verdict"])
        self.diff(b, a, "--facts", code=0)  # all for the better
        self.assertEqual(self.diff(a, a, "--facts")["outcome"], "pass")

    def test_added_removed_and_launched_otherwise(self):
        def write(name, begin, kernels):
            log = Log(begin=begin, pid=begin + 1)
            for kernel in kernels:
                log.kernel(10_000, **kernel)
            return log.write(self.folder / name)
        a = write("a.ndjson", 0, [{"name": "_Z3oldv"}, {"name": "_Z4movev", "block": "(256,1,1)"}] * 5 +
                  [{"name": "_ZN42_GLOBAL__N__0123abcd_6_foo_cu_456789ab_1234kernEv"}])
        b = write("b.ndjson", 1, [{"name": "_Z3newv"}, {"name": "_Z4movev", "block": "(128,1,1)", "grid": "(2048,1,1)"}] * 10 +
                  [{"name": "_ZN42_GLOBAL__N__9876fedc_6_foo_cu_ba987654_1234kernEv"}])
        facts = self.diff(a, b, "--facts", "--fail-on", "added", code=1)
        kernels = {k["name"]: k for k in facts["kernels"]}
        self.assertEqual({n: k["state"] for n, k in kernels.items()},
                         {"old()": "removed", "new()": "added", "move()": "both", "(anonymous namespace)::kern()": "both"})
        changes = {c["fact"]: (c["before"], c["after"], c["worse"]) for c in kernels["move()"]["changes"]}
        self.assertEqual(changes, {"launches": ("5", "10", True), "block": ("(256,1,1)", "(128,1,1)", False),
                                   "grid": ("1024", "2048", False)})
        self.diff(a, b, "--facts", "--fail-on", "removed,launches", code=1)

    def test_times_of_other_machines_are_refused(self):
        a = self.side("a")
        for name, other in (("device", {"device": "NVIDIA H200"}), ("driver", {"driver": 12080}),
                            ("clocks", {"clock_khz": 1_000_000}), ("time_source", {"by_events": True})):
            b = self.side(name, ns=80_000, first=1, **other)
            facts = self.diff(a, b, code=3)
            self.assertTrue(facts["refused"])
            self.assertEqual(self.one(facts)["reason"], f"the sides differ in {name}")
            self.assertEqual([d["what"] for d in facts["differences"] if d["refuses_times"]], [name])
            self.assertEqual(self.one(self.diff(a, b, "--force", code=1))["verdict"], "SLOWER")
        facts = self.diff(a, self.side("host", first=1, host="node2"))
        self.assertEqual([d["what"] for d in facts["differences"]], ["host"])

    def test_where_times_of_summaries_come_from(self):
        for side, capture in (("a", "cupti"), ("b", "interpose")):
            log = Log()
            log.lines[0].update(mode="blackbox", capture=capture)
            log.add(golden("kernel_summary"), session=True, count=40, timed=4, total_ns=200_000, min_ns=50_000, max_ns=50_000)
            log.write(self.folder / side / "log.ndjson")
        facts = self.diff(self.folder / "a", self.folder / "b", code=3)
        (source,) = [d for d in facts["differences"] if d["what"] == "time_source"]
        self.assertEqual((source["before"], source["after"], source["refuses_times"]), (["CUPTI"], ["events"], True))

    def test_drift_over_the_recordings_is_not_a_difference(self):
        for i in range(6):  # warmer from run to run
            run(self.folder / "ab"[i // 3] / f"{i}.ndjson", begin=2 * i, ns=50_000 * 1.03 ** i, noise=0.001)
        kernel = self.one(self.diff(self.folder / "a", self.folder / "b", code=3))
        self.assertEqual(kernel["reason"], "a drift over the recordings explains it")
        self.assertIn("record in turns", tool("diff", self.folder / "a", self.folder / "b").stdout)

    def test_ranks_of_one_run_are_one_recording(self):
        for begin in (0, 10, 20):
            for rank in range(4):
                run(self.folder / "a" / f"{begin}.{rank}.ndjson", begin=begin, rank={"RANK": str(rank)}, host=f"node{rank}")
        facts = self.diff(self.folder / "a", self.folder / "a")
        self.assertEqual([len(r["paths"]) for r in facts["before"]], [4, 4, 4])
        self.assertEqual(self.one(facts)["before"]["launches"], {"min": 160, "max": 160})
        self.assertEqual(len(self.diff(self.folder / "a", self.folder / "a", "--each-log")["before"]), 12)

    def test_kernels_with_little_time_leave_nothing_unsure(self):
        for name in ("a", "b"):
            for i in range(3):
                log = Log(begin=2 * i + (name == "b"), pid=i + 1)
                for j in range(40):
                    log.kernel(100_000)
                    log.kernel(100 * (1 + (i + (name == "b")) % 3), name="_Z4tinyv")
                log.write(self.folder / name / f"{i}.ndjson")
        facts = self.diff(self.folder / "a", self.folder / "b")
        self.assertEqual({k["name"].split("(")[0]: k["counted"] for k in facts["kernels"]}, {"reduce_0": True, "tiny": False})
        self.diff(self.folder / "a", self.folder / "b", "--min-share", "0", code=3)

    def test_logs_without_times(self):
        a = write_log(self.folder / "a.ndjson", "--events", 100, "--lost", 3)
        facts = self.diff(a, a, code=3)
        self.assertFalse(facts["has_times"])
        self.assertTrue(any("--timing all" in note for note in facts["notes"]))
        self.assertTrue(any("3 events" in note for note in facts["notes"]))
        self.diff(a, a, "--facts")

    def test_rotated_and_compressed(self):
        a = write_log(self.folder / "a.ndjson", "--events", 5000, "--segment", 65536, "--compress")
        facts = self.diff(a, a, "--facts")
        self.assertEqual({k["before"]["launches"]["min"] for k in facts["kernels"]}, {2500})

    def test_formats(self):
        a, b = self.side("a"), self.side("b", ns=60_000, first=1, regs=40)
        run(self.folder / "b" / "x.ndjson", begin=50, name="_Z1gI3AndILb1EEEvT_", ns=1000)
        text = tool("diff", a, b)
        self.assertIn("SLOWER", text.stdout)
        self.assertTrue(text.stdout.endswith("1 SLOWER, facts of 1 changed, 1 added\n"), text.stdout)
        self.assertEqual(tool("diff", a, b).stdout, text.stdout)
        self.assertLessEqual(max(map(len, tool("diff", "--width", "110", a, b).stdout.splitlines()[4:8])), 110)
        markdown = tool("diff", a, b, "--format", "markdown").stdout
        self.assertRegex(markdown, r"\| SLOWER \| \d\d\.\d us \| \d\d\.\d us \| \+")
        self.assertIn("g&lt;And&lt;true", markdown)
        out = self.folder / "out"
        done = tool("diff", a, b, "--format", "junit", "-o", out)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        suite = xml.parse(out).getroot()
        self.assertEqual((suite.tag, suite.get("tests"), suite.get("failures"), suite.get("skipped")),
                         ("testsuites", "2", "1", "0"))
        cases = suite.findall("testsuite/testcase")
        self.assertEqual(len({c.get("name") for c in cases}), 2)
        (failure,) = [c.find("failure") for c in cases if c.find("failure") is not None]
        self.assertIn("slower by", failure.get("message"))
        sarif = json.loads(tool("diff", a, b, "--format", "sarif").stdout)
        (result,) = check_sarif(self, sarif)
        self.assertEqual((result["ruleId"], result["level"]), ("kernel-time", "error"))
        self.assertIn("b/0.ndjson", result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"])
        (unsure,) = check_sarif(self, json.loads(tool("diff", a / "0.ndjson", b / "0.ndjson", "--format", "sarif").stdout))
        self.assertEqual((unsure["kind"], unsure["level"]), ("review", "none"))

    def test_usage(self):
        a = self.side("a", count=1)
        for words in (("diff", a), ("diff", a, a, a), ("diff", a, a, "--fail-on", "sloth"), ("diff", a, a, "--json", "--format", "junit"),
                      ("diff", a, a, "--fail-on", "none,slower"), ("diff", a, a, "--min-effect", "-1")):
            done = tool(*words)
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), (words, done.stderr))
        self.assertEqual(tool("diff", a, self.folder / "no.ndjson").returncode, 1)
        empty = self.folder / "empty.ndjson"
        empty.write_text("")
        done = tool("diff", a, empty)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertIn("nothing can be read of the side after", done.stderr)
        self.assertEqual(tool("diff", a, a, "-o", self.folder / "no" / "file").returncode, 1)
        with open("/dev/full", "w") as full:
            done = subprocess.run([TOOL, "diff", str(a), str(a)], stdout=full, stderr=subprocess.PIPE, env=environment())
        self.assertEqual(done.returncode, 1)

    def test_colour(self):
        a = self.side("a")
        self.assertIn("\033[", tool("diff", a, a, "--color", "always").stdout)
        self.assertNotIn("\033[", tool("diff", a, a).stdout)
        out = self.folder / "out"
        tool("diff", a, a, "--color", "always", "-o", out)
        self.assertNotIn("\033[", out.read_text())


if __name__ == "__main__":
    unittest.main(verbosity=2)
