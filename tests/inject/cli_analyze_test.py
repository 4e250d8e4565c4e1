"""analyze: options, exit codes, text and JSON, costs that can be told from the timeline, several logs, hostile ones."""
import json
import os
import subprocess
import sys
import unittest

from cli_support import SOURCE, TOOL, FolderTest, environment, tool, write_log

sys.path.insert(0, str(SOURCE / "tests" / "analyze"))
import pairs  # noqa: E402
from timeline import FOLLOW_NS, SM_COUNT, Timeline  # noqa: E402


class Analyze(FolderTest):
    def findings(self, *words):
        done = tool("analyze", "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)["findings"]

    def bad(self, rule):
        return pairs.write(rule, True, self.folder)[0]

    def good(self, rule):
        return pairs.write(rule, False, self.folder)[0]

    def test_quiet_log(self):
        done = tool("analyze", self.good("sync_in_loop"))
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"\nnothing found \(\d+ rules\)\n$")
        self.assertEqual(done.stderr, "")

    def test_text_has_what_json_has(self):
        log = self.bad("sync_in_loop")
        finding = self.findings(log)[0]
        text = tool("analyze", "--width", 400, log).stdout
        self.assertIn("cuStreamSynchronize is every 3rd call of thread 4711, 100 times", text)
        self.assertIn(finding["remedy"], text)
        self.assertIn(finding["source"], text)
        self.assertIn("after step(float*, int)", finding["message"])
        for event in finding["evidence"]:
            self.assertIn(f"{event['file']}:{event['line']} (seq {event['seq']}", text)
        self.assertIn(f"and {finding['evidence_total'] - 5} more", text)

    def test_cost_of_synchronisations_is_the_idle_time_they_leave(self):
        t = Timeline()
        s, k = t.stream(), t.kernel("step")
        for _ in range(50):
            t.launch(k, pairs.FULL, s, 100_000)
            t.sync(s)                         # comes back 5 us after the end
            t.wait(20_000)                    # launched 20 us later, starts 4 us after that
        found = self.findings(t.write(self.folder / "a.ndjson"))
        self.assertEqual([f["rule"] for f in found], ["sync_in_loop"])
        self.assertEqual(found[0]["cost_ns"], 49 * 29_000)
        self.assertEqual(found[0]["facts"]["period"], 2)
        self.assertEqual(found[0]["severity"], "critical")
        self.assertIn("cuda_api_sync", found[0]["explains"])

    def test_bound_of_the_overlap_model(self):
        found = self.findings(self.bad("missed_overlap"))[0]
        facts = found["facts"]
        pieces = facts["pieces"]
        parts = [facts["in"], facts["kernels"], facts["out"]]
        serial, longest = sum(parts), max(parts)
        self.assertEqual(facts["serial"], serial)
        self.assertAlmostEqual(facts["ideal"], serial / pieces + (pieces - 1) / pieces * longest, delta=2)
        self.assertEqual(pieces, facts["chunks"] * facts["rounds"])
        self.assertAlmostEqual(found["cost_ns"], serial - facts["ideal"] - (pieces - facts["rounds"]) * 10_000, delta=2)

    def test_idle_time_is_split(self):
        log = self.bad("idle_time")
        device = json.loads(tool("analyze", "--json", log).stdout)["logs"][0]["devices"][0]
        idle = device["host_wait_ns"] + device["kernel_wait_ns"] + device["other_idle_ns"]
        self.assertEqual(idle, device["span_ns"] - device["busy_ns"])
        reported = json.loads(tool("report", "--json", log).stdout)["device_times"][0]
        self.assertEqual(idle, reported["idle_ns"])
        self.assertEqual(device["busy_ns"], reported["busy_ns"])
        self.assertGreater(device["host_wait_ns"], 0.9 * idle)

    def test_tail_of_a_grid(self):
        t = Timeline()
        s, k = t.stream(), t.kernel("tail")
        for _ in range(10):
            t.launch(k, 8 * SM_COUNT * 3 // 2, s, 100_000)  # one wave and a half: a quarter of two waves stays empty
        found = self.findings(t.write(self.folder / "a.ndjson"))
        self.assertEqual([f["rule"] for f in found], ["partial_wave"])
        self.assertEqual(found[0]["cost_ns"], 10 * 25_000)
        self.assertEqual((found[0]["facts"]["waves"], found[0]["facts"]["empty"]), (1.5, 0.5))

    def test_memory_peak_names_the_allocation(self):
        log = self.bad("memory_peak")
        found = self.findings(log)[0]
        self.assertEqual(found["facts"]["peak"], 15_000_000_000)
        line = json.loads(log.read_text().splitlines()[found["evidence"][0]["line"] - 1])
        self.assertEqual(line["total_bytes"], 15_000_000_000)

    def test_thresholds(self):
        log = self.good("gpu_gaps")
        self.assertEqual(self.findings(log), [])
        t = Timeline()
        s, k = t.stream(), t.kernel("step")
        for _ in range(20):
            t.launch(k, pairs.FULL, s, 30_000_000)
        t.now = max(t.ends.values()) + 20_000_000
        t.launch(k, pairs.FULL, s, 30_000_000)
        log = t.write(self.folder / "gap.ndjson")
        self.assertEqual(self.findings(log), [])
        found = self.findings("--set", "gpu_gaps.gap_ms=15", log)
        self.assertEqual([f["rule"] for f in found], ["gpu_gaps"])
        self.assertEqual(found[0]["cost_ns"], 20_000_000 + 4_000)
        self.assertEqual(self.findings("--set", "gpu_gaps.gap_ms=25", log), [])

    def test_rules_on_and_off(self):
        log = self.bad("graph_candidate")
        self.assertEqual([f["rule"] for f in self.findings("--skip", "graph_candidate", log)], ["launch_bound"])
        self.assertEqual([f["rule"] for f in self.findings("--rules", "launch_bound,spills", log)], ["launch_bound"])
        self.assertEqual(self.findings("--rules", "spills", log), [])

    def test_exit_codes(self):
        bad, good = self.bad("cuda_api_sync"), self.good("cuda_api_sync")  # a warning
        for severity, log, code in (("info", bad, 1), ("warning", bad, 1), ("critical", bad, 0), ("never", bad, 0),
                                    ("info", good, 0)):
            self.assertEqual(tool("analyze", "--fail-on", severity, log).returncode, code, (severity, log))
        self.assertEqual(tool("analyze", bad).returncode, 0)

    def test_usage_errors(self):
        log = self.good("spills")
        for words, says in ((("--rules", "gpu_gap", log), "did you mean 'gpu_gaps'"),
                            (("--skip", "nonsense", log), "--list-rules"),
                            (("--set", "gpu_gaps=3", log), "RULE.THRESHOLD=VALUE"),
                            (("--set", "gpu_gaps.gap=3", log), "gpu_gaps has gap_ms"),
                            (("--set", "gpu_gaps.gap_ms=much", log), "must be a number"),
                            (("--set", "gpu_gaps.gap_ms=-1", log), "must be a number"),
                            (("--rules", "spills", "--skip", "spills", log), "no rule is left"),
                            (("--fail-on", "never again", log), "--fail-on"),
                            ((), "LOG")):
            done = tool("analyze", *words)
            self.assertEqual(done.returncode, 2, words)
            self.assertEqual(done.stdout, "")
            self.assertIn(says, done.stderr)

    def test_list_of_rules(self):
        text = tool("analyze", "--list-rules").stdout
        listed = json.loads(tool("analyze", "--list-rules", "--json").stdout)["rules"]
        headings = [line for line in text.splitlines() if line and line[0] != " "]
        self.assertEqual([rule["name"] for rule in listed], headings)
        for rule in listed:
            self.assertTrue(rule["what"] and rule["source"], rule)
            for threshold in rule["thresholds"]:
                self.assertIn(f"{rule['name']}.{threshold['name']}={threshold['default']:g}", text)
        for name in ("cuda_memcpy_async", "cuda_memcpy_sync", "cuda_memset_sync", "cuda_api_sync", "gpu_gaps",
                     "gpu_time_util"):
            self.assertIn(name, [rule["name"] for rule in listed])

    def test_documented(self):
        documented = (SOURCE / "docs" / "CLI.md").read_text()
        for rule in json.loads(tool("analyze", "--list-rules", "--json").stdout)["rules"]:
            self.assertTrue(f"| `{rule['name']}` |" in documented, f"docs/CLI.md lacks {rule['name']}")

    def test_output_is_stable(self):
        logs = pairs.write("imbalance", True, self.folder)
        self.assertEqual(tool("analyze", *logs).stdout, tool("analyze", *logs).stdout)
        self.assertEqual(tool("analyze", self.folder).stdout, tool("analyze", *logs).stdout)

    def test_ranks_on_one_clock(self):
        logs = pairs.write("imbalance", True, self.folder)
        facts = json.loads(tool("analyze", "--json", *logs).stdout)
        self.assertEqual([log["offset_ns"] for log in facts["logs"]], [0, 40_000_000])
        found = facts["findings"][0]
        self.assertEqual((found["log"], found["facts"]["straggler"], found["facts"]["times"]), (1, "rank 1", 40))
        # Rank 1 comes 400 us later to each: half of that on average.
        self.assertAlmostEqual(found["cost_ns"], 40 * 200_000, delta=1000)
        text = tool("analyze", *logs).stdout
        self.assertRegex(text, r"(?m)^ +0 .*\+0 ns  rank 0$")
        self.assertRegex(text, r"(?m)^ +0 .*\+40\.0 ms  rank 1$")

    def test_devices_of_one_process(self):
        t = Timeline()
        k = t.kernel("step")
        streams = [t.stream(device=device) for device in range(2)]
        for _ in range(20):
            for device, stream in enumerate(streams):
                t.launch(k, pairs.FULL, stream, 1_000_000 + 1_000_000 * device)
        found = self.findings(t.write(self.folder / "a.ndjson"))
        self.assertEqual([(f["rule"], f["device"]) for f in found], [("imbalance", 1)])
        self.assertEqual(found[0]["cost_ns"], (20 * 2_000_000 - 20 * 1_000_000) // 2)

    def test_log_without_gpu_times(self):
        log = write_log(self.folder / "a.ndjson", "--events", 500)
        done = tool("analyze", log)
        self.assertEqual(done.returncode, 0)
        self.assertIn("without GPU times", done.stdout)

    def test_samples_only(self):
        """Of a log in which only some kernels have times no idle time can be told, but what is of each kernel can."""
        lines = [json.loads(line) for line in self.bad("idle_time").read_text().splitlines()]
        for i, line in enumerate(lines):
            if line["type"] == "kernel_event":
                line["local_bytes_per_thread"] = 480
                if i % 4 != 0:
                    line.update(start_ns=None, end_ns=None, duration_ns=None, queue_ns=None)
        log = self.folder / "sampled.ndjson"
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")
        self.assertEqual([f["rule"] for f in self.findings(log)], ["spills"])
        self.assertIn("45 of 60 kernels of pairs.4711 have no GPU times", tool("analyze", log).stdout)
        device = json.loads(tool("analyze", "--json", log).stdout)["logs"][0]["devices"][0]
        self.assertEqual(device["unknown_ns"], device["span_ns"] - device["busy_ns"])

    def test_times_off_for_a_while(self):
        """A stretch whose kernels have no times is not taken for idle."""
        t = Timeline()
        s, k = t.stream(), t.kernel("step")
        for _ in range(60):
            t.launch(k, pairs.FULL, s, 30_000_000)
        log = t.write(self.folder / "off.ndjson")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kernels = [line for line in lines if line["type"] == "kernel_event"]
        for i, line in enumerate(kernels):  # launched one by one, the one before having ended
            line["launch_ns"] = line["start_ns"] - 4000 if i else line["launch_ns"]
        for line in kernels[20:23]:
            line.update(start_ns=None, end_ns=None, duration_ns=None, queue_ns=None)
        log.write_text("\n".join(map(json.dumps, lines)) + "\n")
        self.assertEqual(self.findings("--set", "gpu_gaps.gap_ms=50", log), [])

    def test_segments_and_stdin(self):
        whole = self.bad("sync_in_loop")
        text = whole.read_text()
        found = json.loads(subprocess.run([TOOL, "analyze", "--json", "-"], input=text, capture_output=True, text=True,
                                          env=environment(), timeout=60).stdout)["findings"]
        self.assertEqual([f["rule"] for f in found], ["sync_in_loop"])
        self.assertEqual({e["file"] for f in found for e in f["evidence"]}, {"-"})
        lines = text.splitlines(keepends=True)
        (self.folder / "cut.0001.ndjson").write_text("".join(lines[:100]))
        (self.folder / "cut.ndjson").write_text(lines[0] + "".join(lines[100:]))
        cut = self.findings(self.folder / "cut.ndjson")
        self.assertEqual([(f["rule"], f["cost_ns"]) for f in cut], [(f["rule"], f["cost_ns"]) for f in found])
        files = {os.path.basename(e["file"]) for f in cut for e in f["evidence"]}
        self.assertTrue(files <= {"cut.ndjson", "cut.0001.ndjson"}, files)

    def test_order_of_lines_does_not_matter(self):
        """Lines of different threads come out of order (docs/FORMAT.md): the same is found."""
        whole = self.bad("default_stream_barrier")
        lines = whole.read_text().splitlines(keepends=True)
        head = [line for line in lines if '"type":"kernel_event"' not in line]
        kernels = [line for line in lines if '"type":"kernel_event"' in line]
        (self.folder / "mixed.ndjson").write_text("".join(head + kernels[::-1]))
        found = [[(f["rule"], f["cost_ns"], f["facts"]) for f in self.findings(log)]
                 for log in (whole, self.folder / "mixed.ndjson")]
        self.assertEqual(found[0], found[1])

    def test_hostile_values(self):
        log = self.bad("missed_overlap")
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for i, line in enumerate(lines):
            for key in ("start_ns", "end_ns", "launch_ns", "call_ns", "bytes", "stream", "device"):
                if key in line and (i + len(key)) % 3 == 0 and line["type"] not in ("session_start", "device_info"):
                    times = (2**63 - 1, -2**53, 2**53)
                    line[key] = times[i % 3] if key.endswith("_ns") else 2**53 if key == "bytes" else 2**31 - 1
        (self.folder / "hostile.ndjson").write_text("\n".join(map(json.dumps, lines)) + "\n")
        self.assertIn(tool("analyze", self.folder / "hostile.ndjson").returncode, (0, 1))

    def test_names_and_width(self):
        t = Timeline()
        s = t.stream()
        k = t.kernel("a_name_that_is_far_longer_than_any_line_of_a_terminal_will_ever_be_and_goes_on_for_quite_a_while",
                     local=480)
        for _ in range(20):
            t.launch(k, pairs.FULL, s, 1_000_000)
        log = t.write(self.folder / "a.ndjson")
        narrow = tool("analyze", "--width", 80, "--rules", "spills", log).stdout
        for line in narrow.splitlines():
            self.assertTrue(len(line) <= 80 or str(self.folder) in line, line)
        wide = tool("analyze", "--full-names", "--width", 300, "--rules", "spills", log).stdout
        self.assertIn("quite_a_while(float*, int)", wide)

    def test_colour(self):
        log = self.bad("spills")
        self.assertNotIn("\033", tool("analyze", log).stdout)
        self.assertIn("\033[", tool("analyze", "--color", "always", log).stdout)


if __name__ == "__main__":
    unittest.main(verbosity=2)
