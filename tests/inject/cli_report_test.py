"""report on whole, torn, empty, hostile and many logs."""
import csv
import io
import json
import os
import pathlib
import subprocess
import unittest

from cli_support import TOOL, FolderTest, environment, tool, write_log


class Report(FolderTest):
    def report(self, *words):
        done = tool("report", "--json", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_counts(self):
        log = write_log(self.folder / "a.4711.ndjson", "--events", 1000, "--kernels", 2, "--failed-every", 100)
        facts = self.report(log)
        self.assertEqual(facts["totals"]["launches"], 1000)
        self.assertEqual(facts["totals"]["failed"], 10)
        self.assertEqual([g["launches"] for g in facts["groups"]], [500, 500])
        naive = next(g for g in facts["groups"] if g["limiting_resource"] == "shared_mem")
        self.assertEqual(naive["occupancy"], 0.833333)
        self.assertEqual(naive["max_active_blocks"], {"min": 5, "max": 5})
        self.assertEqual(naive["name"], "reduce_0(float const*, float*, int)")
        self.assertEqual(facts["logs"][0]["end_reason"], "exit")

    def test_text_and_csv_say_the_same(self):
        log = write_log(self.folder / "a.ndjson", "--events", 30, "--kernels", 3)
        rows = list(csv.DictReader(io.StringIO(tool("report", "--csv", log).stdout)))
        groups = self.report(log)["groups"]
        self.assertEqual([int(r["launches"]) for r in rows], [g["launches"] for g in groups])
        self.assertEqual([r["label"] for r in rows], [g["label"] for g in groups])
        text = tool("report", log).stdout
        self.assertIn("reduce_1", text)
        self.assertIn("16384+0", text)
        self.assertIn("30 of 3 kernels", text)

    def test_rotated_and_compressed(self):
        log = write_log(self.folder / "a.4711.ndjson", "--events", 5000, "--segment", 65536, "--compress")
        self.assertTrue(list(self.folder.glob("*.zst")))
        self.assertEqual(self.report(log)["totals"]["launches"], 5000)
        self.assertEqual(self.report(self.folder)["totals"]["launches"], 5000)  # segments are no logs of their own
        self.assertEqual(len(self.report(self.folder)["logs"]), 1)

    def test_several_logs_are_merged(self):
        one = write_log(self.folder / "a.1.ndjson", "--events", 10, "--pid", 1)
        two = write_log(self.folder / "a.2.ndjson", "--events", 20, "--pid", 2)
        facts = self.report(one, two)
        self.assertEqual(facts["totals"]["launches"], 30)
        self.assertEqual(len(facts["groups"]), 2)
        self.assertEqual([log["pid"] for log in facts["logs"]], [1, 2])
        self.assertEqual(len(self.report("--by", "stream", self.folder)["groups"]), 2)
        for by in ("config", "thread", "device", "scope"):
            self.assertEqual(sum(g["launches"] for g in self.report("--by", by, self.folder)["groups"]), 30)

    def test_losses_are_the_last_line(self):
        log = write_log(self.folder / "a.ndjson", "--lost", 7)
        self.assertEqual(tool("report", log).stdout.split("\n")[-2], 
                         "events seen 17 = written 10 + summarised 0 + pending 0 + lost 7 (pool_empty 7)")
        self.assertEqual(self.report(log)["logs"][0]["ledger"]["lost_total"], 7)
        self.assertNotIn("lost", tool("report", write_log(self.folder / "b.ndjson")).stdout)

    def test_a_log_without_end(self):
        log = write_log(self.folder / "a.ndjson", "--no-end")
        self.assertIn("has no end", tool("report", log).stdout)
        self.assertFalse(self.report(log)["logs"][0]["ended"])

    def test_torn_at_every_place(self):
        log = write_log(self.folder / "a.ndjson", "--events", 3, "--no-end")
        whole = log.read_bytes()
        torn = self.folder / "torn.ndjson"
        for cut in range(0, len(whole), 101):
            torn.write_bytes(whole[:cut])
            facts = self.report(torn)
            # A cut right before a line end leaves a whole object, which counts.
            complete = sum(b'"kernel_event"' in line for line in whole[:cut].split(b"\n")[:-1])
            self.assertIn(facts["totals"]["launches"], (complete, complete + 1))
            read = facts["logs"][0]["read"]
            if not whole[:cut].endswith(b"\n") and cut > 0:
                self.assertLessEqual(read["broken_lines"], 1)

    def test_broken_lines_are_counted_and_said(self):
        log = write_log(self.folder / "a.ndjson", "--events", 4)
        lines = log.read_bytes().split(b"\n")
        lines[5:5] = [b"{nonsense", b'{"type":"from_the_future","x":1}', b"[1,2]", b"\xff\xfe\x00"]
        log.write_bytes(b"\n".join(lines))
        facts = self.report(log)
        self.assertEqual(facts["totals"]["launches"], 4)
        self.assertGreaterEqual(facts["logs"][0]["read"]["broken_lines"], 3)
        self.assertIn("could not be read", tool("report", log).stdout)

    def test_empty_missing_folder_and_unreadable(self):
        empty = self.folder / "empty.ndjson"
        empty.write_bytes(b"")
        self.assertIn("no kernel launches", tool("report", empty).stdout)
        missing = tool("report", self.folder / "missing.ndjson")
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("missing.ndjson': No such file", missing.stderr)
        bare = self.folder / "bare"
        bare.mkdir()
        self.assertEqual(tool("report", bare).returncode, 1)

    def test_a_huge_line_and_binary_rubbish(self):
        log = write_log(self.folder / "a.ndjson", "--events", 2)
        with open(log, "ab") as file:
            file.write(b'{"type":"kernel_event","name":"' + b"x" * (32 << 20) + b'"}\n')
            file.write(os.urandom(1 << 20))
        facts = self.report(log)
        self.assertEqual(facts["totals"]["launches"], 2)
        self.assertGreater(facts["logs"][0]["read"]["broken_lines"], 0)

    def test_damaged_zst(self):
        log = write_log(self.folder / "a.ndjson", "--events", 3000, "--segment", 65536, "--compress")
        segment = sorted(self.folder.glob("*.zst"))[0]
        data = bytearray(segment.read_bytes())
        segment.write_bytes(data[: len(data) // 2])
        facts = self.report(log)
        self.assertLess(facts["totals"]["launches"], 3000)
        self.assertGreater(facts["logs"][0]["read"]["broken_lines"], 0)

    def test_standard_input(self):
        log = write_log(self.folder / "a.ndjson", "--events", 12)
        with open(log, "rb") as file:
            done = subprocess.run([TOOL, "report", "--json", "-"], stdin=file, capture_output=True, env=environment())
        self.assertEqual(json.loads(done.stdout)["totals"]["launches"], 12)

    def test_locale_changes_nothing(self):
        log = write_log(self.folder / "a.ndjson", "--events", 1500)
        plain = tool("report", log).stdout
        for locale in ("de_DE.UTF-8", "C", "xx_XX"):
            self.assertEqual(tool("report", log, env=environment(LC_ALL=locale)).stdout, plain)

    def test_memory_does_not_grow_with_the_log(self):
        def peak(events):
            log = write_log(self.folder / f"m{events}.ndjson", "--events", events, "--kernels", 5)
            before = os.times().children_user
            child = subprocess.Popen([TOOL, "report", "--json", str(log)], stdout=subprocess.DEVNULL, env=environment())
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(child.returncode, 0)
            self.assertGreaterEqual(os.times().children_user, before)
            return usage.ru_maxrss
        self.assertLess(peak(200_000), peak(2_000) + 20_000)  # KiB; the larger log has some 180 MB


if __name__ == "__main__":
    unittest.main(verbosity=2)
