"""check: every key of a budget, met and broken, what is unsure, and the forms that CI systems read."""
import json
import pathlib
import re
import tempfile
import unittest
import xml.etree.ElementTree as xml

from cli_support import SOURCE, FolderTest, tool, write_log
from made_logs import Log
from sarif_shape import check_sarif


class Check(FolderTest):
    def budget(self, text):
        path = self.folder / "budget.json"
        path.write_text(text if isinstance(text, str) else json.dumps(text))
        return path

    def log(self, name="a.ndjson", ns=50_000, timed=True, lost=0, pid=1, tail=None, **facts):
        log = Log(pid=pid, begin=pid)
        for i in range(4):
            log.scope("begin", "step")
            log.kernel(tail or ns if i == 3 else ns, scope="step", **facts)
            log.scope("begin", "step/forward")
            log.kernel(10_000, name="_ZN2at4copyILi4EEEvi", scope="step/forward")
            log.scope("end", "step/forward")
            log.copy(1 << 20)
            log.copy(1 << 10, source="pinned")
            log.sync()
            log.scope("end", "step")
        if not timed:
            for line in log.lines:
                if line["type"] == "kernel_event":
                    line.update(start_ns=None, end_ns=None, duration_ns=None, queue_ns=None)
            log.lines[0]["configuration"] = {"timing": "off"}
            log.lines = [line for line in log.lines if line["type"] != "memcpy_event"]
            log.counter -= 8
        return log.write(self.folder / name, lost=lost)

    def check(self, budget, *words, code=0):
        done = tool("check", "--json", *words, "--budget", self.budget(budget))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return json.loads(done.stdout)["findings"]

    def test_every_key_is_held_against_what_the_log_says(self):
        log = self.log(regs=40, occupancy=0.75, limiter="registers", spill=8, shared=1024, dynamic=512)
        found = {  # value, broken by
            "program": {"idle_percent": None, "sync_calls": 4, "pageable_bytes": 4 << 20, "copied_bytes": (4 << 20) + (4 << 10),
                        "launches": 8, "failed_launches": 0, "peak_memory_bytes": 0, "lost_events": 0},
            "kernels": {"p95_us": 50, "median_us": 50, "max_us": 50, "launches": 4, "registers": 40, "shared_bytes": 1536,
                        "spill_bytes": 8, "occupancy_min": 0.75, "limiter": ["registers"]},
            "scopes": {"launches": 8, "launches_per_pass": 2},
        }
        keys = 0
        for section, values in found.items():
            for key, value in values.items():
                keys += 1
                def of(limit):
                    return {section: {key: limit}} if section == "program" else \
                        {section: {"reduce_*" if section == "kernels" else "step": {key: limit}}}
                if key == "idle_percent":
                    (finding,) = self.check(of(100), log)
                    value = finding["value"]
                    self.assertGreater(value, 1)
                    self.check(of(value - 0.01), log, code=1)
                    continue
                exact = value * 1.01 if isinstance(value, int) and key.endswith("_us") else value
                (finding,) = self.check(of(exact), log)
                if key.endswith("_us"):
                    self.assertAlmostEqual(finding["value"], value, delta=0.01 * value)
                else:
                    self.assertEqual(finding["value"], value, key)
                worse = {"occupancy_min": 0.8, "limiter": ["warps", "blocks"]}.get(key) or (value and value * 0.9)
                if not worse:
                    continue
                (finding,) = self.check(of(worse), log, code=1)
                self.assertEqual((finding["outcome"], finding["key"]), ("fail", key))
        documented = (SOURCE / "docs" / "CLI.md").read_text()
        for values in found.values():
            for key in values:
                self.assertTrue(f"`{key}`" in documented, f"{key} is not in docs/CLI.md")
        self.assertEqual(keys, 19)
        self.check({"program": {"lost_events": 0}}, self.log("lost.ndjson", lost=5), code=1)

    def test_names_are_globs_and_comments_are_allowed(self):
        log = self.log()
        text = """// the good run
        { "kernels": {
            "at::copy<*": { "registers": 32 }, /* any block */
            "_Z8reduce*": { "registers": 10 },
            "reduce_0(float const*, float*, int)": { "registers": 9 }
        } }"""
        findings = self.check(text, log, code=1)
        self.assertEqual([(f["name"].split("(")[0], f["outcome"], f["line"]) for f in findings],
                         [("void at::copy<4>", "pass", 3), ("reduce_0", "fail", 4), ("reduce_0", "fail", 5)])
        scopes = self.check({"scopes": {"*": {"launches": 8}, "step/*": {"launches": 3}}}, log, code=1)
        self.assertEqual([(f["subject"], f["value"], f["outcome"]) for f in scopes],
                         [("step", 8, "pass"), ("step/forward", 4, "fail")])

    def test_what_matches_nothing_fails_unless_optional(self):
        log = self.log()
        (finding,) = self.check({"kernels": {"gemm*": {"registers": 1}}}, log, code=1)
        self.assertEqual((finding["reason"], finding["pattern"], finding["key"]), ("matched nothing", "gemm*", None))
        self.check({"kernels": {"gemm*": {"registers": 1, "optional": True}}}, log)
        self.check({"scopes": {"epoch": {"launches": 1}}}, log, code=1)

    def test_what_the_log_does_not_say_is_unsure(self):
        log = self.log(timed=False)
        for key, budget in (("p95_us", {"kernels": {"reduce*": {"p95_us": 60}}}),
                            ("idle_percent", {"program": {"idle_percent": 99}}),
                            ("pageable_bytes", {"program": {"pageable_bytes": 0}})):
            (finding,) = self.check(budget, log, code=3)
            self.assertIn("--timing all", finding["reason"], key)
        sampled = self.log("sampled.ndjson")
        sampled.write_text(sampled.read_text().replace('"timing": "all"', '"timing": "sample:4"'))
        self.check({"program": {"idle_percent": 99}}, sampled, code=3)
        self.check({"kernels": {"reduce*": {"p95_us": 60}}}, sampled)
        lost = self.log("lost.ndjson", lost=2)
        self.check({"program": {"launches": 8}}, lost, code=3)  # there may be more
        self.check({"program": {"launches": 7}}, lost, code=1)  # there are more
        self.check({"kernels": {"reduce*": {"registers": 32}}}, lost)

    def test_several_logs(self):
        logs = [self.log(f"{i}.ndjson", ns=ns, pid=i + 1) for i, ns in enumerate((50_000, 51_000, 90_000))]
        (finding,) = self.check({"kernels": {"reduce*": {"median_us": 60}}}, *logs, code=1)
        self.assertTrue(finding["log"].endswith("2.ndjson"))
        self.assertEqual(finding["logs_with_value"], 3)
        (finding,) = self.check({"kernels": {"reduce*": {"median_us": 60}}}, *logs, "--median")
        self.assertAlmostEqual(finding["value"], 51, delta=0.5)
        self.check({"kernels": {"reduce*": {"median_us": 50.9, "optional": True}}}, self.folder, "--median", code=1)
        rotated = write_log(self.folder / "r" / "r.ndjson", "--events", 5000, "--segment", 65536, "--compress")
        (finding,) = self.check({"program": {"launches": 5000}}, rotated)
        self.assertEqual(finding["value"], 5000)

    def test_a_budget_that_is_wrong_says_where(self):
        log = self.log()
        for text, words in (('{"kernels": {\n"a": {"p59_us": 3}}}', ("line 2", "did you mean 'p95_us'?")),
                            ('{"kernel": {}}', ("did you mean 'kernels'?",)),
                            ('{"program": {"sync": 3}}', ("'sync_calls'",)),
                            ('{"kernels": {"a": {"p95_us": 3}, "a": {"p95_us": 4}}}', ("stands twice",)),
                            ('{"kernels": {"a": {"p95_us": "3"}}}', ("a number",)),
                            ('{"kernels": {"a": {"p95_us": -3}}}', ("0 or more",)),
                            ('{"kernels": {"a": {"limiter": "smem"}}}', ("shared_mem",)),
                            ('{"kernels": {"a": {"occupancy_min": 75}}}', ("0 to 1",)),
                            ('{"kernels": {"a": {}}}', ("no limits",)),
                            ('{}', ("no limits",)), ('[]', ("object",)), ('{"kernels": ', ("line 1",)), ('', ("parse error",))):
            done = tool("check", log, "--budget", self.budget(text))
            self.assertEqual((done.returncode, done.stdout, done.stderr.count("\n")), (2, "", 1), (text, done.stderr))
            for word in words:
                self.assertIn(word, done.stderr)
        self.assertEqual(tool("check", log).returncode, 2)
        self.assertEqual(tool("check", log, "--budget", self.folder / "no.json").returncode, 2)
        self.assertEqual(tool("check", self.folder / "no.ndjson", "--budget", self.budget('{"program": {"launches": 1}}')).returncode, 1)

    def test_formats(self):
        log, budget = self.log(), self.budget('{"program": {"sync_calls": 9},\n"kernels": {"reduce*": {"registers": 16,\n"p95_us": 60},'
                                              '"gone*": {"launches": 1}}}')
        text = tool("check", log, "--budget", budget)
        self.assertEqual(text.returncode, 1)
        self.assertRegex(text.stdout, r"FAIL +registers +<= 16 +32 +reduce_0")
        self.assertNotIn("sync_calls", text.stdout)
        self.assertRegex(tool("check", log, "--all", "--budget", budget).stdout, r"met +sync_calls")
        self.assertTrue(text.stdout.endswith("fail: 2 of 4 limits met, 2 broken\n"), text.stdout)
        self.assertIn("| FAIL | registers |", tool("check", log, "--budget", budget, "--format", "markdown").stdout)
        root = xml.fromstring(tool("check", log, "--budget", budget, "--format", "junit").stdout)
        self.assertEqual((root.get("tests"), root.get("failures")), ("4", "2"))
        self.assertEqual(len(root.findall("testsuite/testcase/failure")), 2)
        out = self.folder / "check.sarif"
        self.assertEqual(tool("check", log, "--budget", budget, "--format", "sarif", "-o", out).stdout, "")
        results = check_sarif(self, json.loads(out.read_text()))
        self.assertEqual([(r["ruleId"], r["locations"][0]["physicalLocation"]["region"]["startLine"]) for r in results],
                         [("budget/kernel/registers", 2), ("budget/nothing-matched", 3)])
        unsure = self.budget('{"kernels": {"reduce*": {"p95_us": 60}}}')
        root = xml.fromstring(tool("check", self.log("u.ndjson", timed=False), "--budget", unsure, "--format", "junit").stdout)
        self.assertEqual((root.get("failures"), root.get("skipped")), ("0", "1"))


class Documentation(unittest.TestCase):
    def test_the_budget_in_the_documents_is_one(self):
        text = (SOURCE / "docs" / "CLI.md").read_text()
        (budget,) = re.findall(r"```jsonc\n(.*?)```", text, re.DOTALL)
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "budget.json"
            path.write_text(budget)
            log = write_log(pathlib.Path(folder) / "a.ndjson", "--steps", 10)
            done = tool("check", log, "--budget", path)
            self.assertIn(done.returncode, (0, 1, 3), done.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
