"""report on whole, torn, empty, hostile and many logs."""
import csv
import gzip
import io
import json
import os
import pathlib
import struct
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
        for by in ("config", "thread", "device", "scope", "graph"):
            self.assertEqual(sum(g["launches"] for g in self.report("--by", by, self.folder)["groups"]), 30)

    def test_times(self):
        # What must come out stands at the head of cli_timeline.cpp.
        facts = self.report(write_log(self.folder / "a.ndjson", "--steps", 100))
        self.assertEqual(facts["logs"][0]["missing_events"], 0)
        self.assertEqual(facts["share_of"], "gpu_time")
        groups = {g["name"].split("(")[0]: g for g in facts["groups"]}
        gpu = groups["reduce_0"]["gpu"]
        self.assertEqual((gpu["count"], gpu["total_ns"], gpu["min_ns"], gpu["max_ns"], gpu["stddev_ns"]),
                         (100, 4_000_000, 40_000, 40_000, 0))
        self.assertEqual((gpu["median_ns"], gpu["p95_ns"]), (40_000, 40_000))
        self.assertEqual(groups["reduce_1"]["queue"]["mean_ns"], 44_000)
        self.assertAlmostEqual(groups["node"]["time_share"], 40 / 6040)
        (device,) = facts["device_times"]
        self.assertEqual({k: device[k] for k in ("busy_ns", "idle_ns", "kernel_busy_ns", "copy_busy_ns",
                                                 "copy_beside_kernel_ns", "kernels_side_by_side_ns", "uncertain_ns")},
                         {"busy_ns": 8_040_000, "idle_ns": 1_956_000, "kernel_busy_ns": 5_040_000,
                          "copy_busy_ns": 4_200_000, "copy_beside_kernel_ns": 1_200_000,
                          "kernels_side_by_side_ns": 1_000_000, "uncertain_ns": 0})
        copies = {c["kind"]: c for c in facts["copies"]}
        self.assertEqual(copies["htod"]["bytes"], 100 << 20)
        self.assertEqual((copies["htod"]["async"], copies["htod"]["source"]), (True, "pinned"))
        self.assertEqual(copies["htod"]["bytes_per_second"], round((1 << 20) / 30e-6))
        self.assertEqual((facts["fills"][0]["count"], facts["fills"][0]["bytes"]), (100, 100 * 4096))
        calls = {c["call"]: c for c in facts["calls"]}
        self.assertEqual(calls["cuCtxSynchronize"]["host"]["total_ns"], 600_000)
        self.assertEqual((calls["cuMemFree"]["kind"], calls["cuMemFree"]["may_wait"]), ("free", True))
        (memory,) = facts["memory"]
        self.assertEqual((memory["peak_bytes"], memory["live_bytes"], memory["allocs"]), (3 << 20, 2 << 20, 100))
        (graph,) = facts["graphs"]
        self.assertEqual((graph["graph"], graph["launches"], graph["kernels"], graph["kernel_total_ns"]),
                         (5, 10, 20, 40_000))

    def test_times_by(self):
        log = write_log(self.folder / "a.ndjson", "--steps", 50)
        def totals(by):
            return {g["label"]: (g["launches"], g["gpu"]["total_ns"]) for g in self.report("--by", by, log)["groups"]}
        self.assertEqual(totals("scope"), {"step/forward": (100, 3_000_000), "step": (10, 20_000)})
        self.assertEqual(totals("graph"), {"(no graph)": (100, 3_000_000), "graph 5 of process 4711": (10, 20_000)})
        self.assertEqual(totals("stream"), {"stream 1 (default) of process 4711": (60, 2_020_000),
                                            "stream 2 of process 4711": (50, 1_000_000)})
        self.assertEqual(totals("thread"), {"thread 99 of process 4711": (110, 3_020_000)})
        self.assertEqual([v for v in totals("device").values()], [(110, 3_020_000)])
        self.assertEqual(self.report("--sort", "queue", log)["groups"][0]["name"], "node(float*)")
        self.assertEqual(self.report("--sort", "mean", log)["groups"][0]["name"], "reduce_0(float const*, float*, int)")

    def test_times_in_text_and_csv(self):
        log = write_log(self.folder / "a.ndjson", "--steps", 100)
        text = tool("report", log).stdout
        for line in (" time    total  count     mean   median      p95      max  std dev    queue     occ  limiter    kernel",
                     "66.2%  4.00 ms    100  40.0 us  40.0 us  40.0 us  40.0 us     0 ns  16.0 us   50.0%  registers  reduce_0",
                     "80.4%  8.04 ms  1.96 ms  5.04 ms  4.20 ms  1.20 ms (29% of copies)               1.00 ms  device 0",
                     "3.00 ms    100  100 MiB  30.0 us  30.0 us  30.0 us  35.0 GB/s     0 ns  htod pinned > device, async",
                     "   600 us    100  6.00 us  6.00 us  6.00 us  yes       cuCtxSynchronize",
                     "3 MiB  2 MiB    100 MiB     100    100  device 0: device"):
            self.assertIn(line + "\n", text)
        self.assertLessEqual(max(map(len, text.split("\n"))), 120)
        wide = tool("report", "--width", 200, log).stdout
        self.assertIn("regs  shared st+dyn  block", wide)
        row = next(csv.DictReader(io.StringIO(tool("report", "--csv", log).stdout)))
        self.assertEqual([row[k] for k in ("gpu_count", "gpu_total_ns", "gpu_median_ns", "gpu_stddev_ns", "queue_mean_ns")],
                         ["100", "4000000", "40000", "0", "16000"])

    def test_times_that_are_missing_or_late(self):
        log = write_log(self.folder / "a.ndjson", "--steps", 100)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kernels = [line for line in lines if line["type"] == "kernel_event"]
        for line in kernels[:3]:
            late = {k: line[k] for k in ("name", "config", "device", "context", "stream", "launch_ns", "start_ns",
                                         "end_ns", "duration_ns")}
            if line is not kernels[2]:
                lines.append({"type": "kernel_time", "seq": 99, "event": line["seq"], **late})
            line.update(start_ns=None, end_ns=None, duration_ns=None, queue_ns=None)
        lines.append({"type": "kernel_pending", "name": kernels[2]["name"], "config": 1, "device": 0, "context": 1,
                      "stream": 1, "seq": 100, "event": kernels[2]["seq"], "launch_ns": 104_000,
                      "time_ns": 6_000_000_000, "pending_ns": 5_999_896_000, "behind": 17})
        log.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        facts = self.report(log)
        self.assertEqual([facts["logs"][0][k] for k in ("timed_kernels", "untimed_kernels", "late_times",
                                                        "unplaced_times")], [217, 1, 2, 0])
        self.assertEqual(facts["totals"]["gpu"]["count"], 219)
        self.assertEqual(facts["share_of"], "gpu_time")
        # Without the third kernel: what a fill or another kernel does not cover of it.
        self.assertEqual(facts["device_times"][0]["busy_ns"], 8_040_000 - 20_000)
        text = tool("report", log).stdout
        self.assertIn("note: 1 of 220 kernels have no GPU time; totals and busy times are without them\n", text)
        self.assertIn("note: reduce_0, launched after 104 us, had not ended 6.00 s later; 17 launches wait behind it\n",
                      text)

    def test_samples_stand_for_all_with_their_error(self):
        log = write_log(self.folder / "a.ndjson", "--steps", 200)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kernels = [line for line in lines if line["type"] == "kernel_event" and line["graph"] is None]
        lines = [line for line in lines if line["type"] != "kernel_event" or line["graph"] is None]
        for start in (line for line in lines if line["type"] == "session_start"):
            start["configuration"].update(timing="off", event_times="10")
        names = sorted({k["name"] for k in kernels})
        for name in names:
            for i, line in enumerate([k for k in kernels if k["name"] == name], 1):
                line.update(start_ns=None, end_ns=None, duration_ns=None, queue_ns=None)
                if i % 10 == 2:
                    line.update(duration_ns=50_000 + 1_000 * (i // 10 % 3), time_source="events", error_ns=2_000)
        log.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
        facts = self.report(log)
        self.assertEqual((facts["share_of"], facts["logs"][0]["event_times"]), ("estimated_gpu_time", "10"))
        self.assertEqual(facts["logs"][0]["event_timed"], sum(k["duration_ns"] is not None for k in kernels))
        for group in facts["groups"]:
            times = [k["duration_ns"] for k in kernels if k["name"] == group["label"] and k["duration_ns"] is not None]
            estimate, launches, timed = group["gpu_estimate"], group["launches"], len(times)
            self.assertEqual((estimate["timed"], estimate["of"], estimate["by_events"]), (timed, launches, timed))
            mean = sum(times) / timed
            variance = sum((t - mean) ** 2 for t in times) / (timed - 1)
            error = launches * (variance / timed * (1 - timed / launches)) ** 0.5
            self.assertAlmostEqual(estimate["total_ns"], mean * launches, delta=1)
            self.assertAlmostEqual(estimate["standard_error_ns"], error, delta=1)
            self.assertAlmostEqual(estimate["too_long_by_at_most_ns"], 2_000 * launches, delta=1)
            self.assertAlmostEqual(estimate["high_ns"], mean * launches + 1.96 * error, delta=2)
            self.assertAlmostEqual(estimate["low_ns"], mean * launches - 1.96 * error - 2_000 * launches, delta=2)
        # When they ran is not known: no device is busy by them.
        self.assertEqual([d["kernels"] for d in facts["device_times"]], [0])
        text = tool("report", log).stdout
        self.assertRegex(text, r"~time +~?total +error +count +timed +mean")
        self.assertIn("those of samples (event_times=10)", text)
        self.assertIn("when the GPU was busy is not known", text)
        self.assertEqual(tool("analyze", log).returncode, 0)
        self.assertEqual(tool("explain", log).returncode, 0)
        trace = self.folder / "a.json"
        self.assertEqual(tool("export", log, "-o", trace).returncode, 0)
        events = json.loads(trace.read_text())["traceEvents"]
        self.assertEqual([e for e in events if e.get("cat") == "kernel"], [])
        known = [e["args"]["kernel ran at most (us)"] for e in events if "kernel ran at most (us)" in e.get("args", {})]
        self.assertEqual(len(known), facts["logs"][0]["event_timed"])

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
            if b"\n" not in whole[:cut + 1]:
                self.assertEqual(tool("report", torn).returncode, 1)
                continue
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
        done = tool("report", empty)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (1, "", f"gpuflight: '{empty}' is empty\n"))
        missing = tool("report", self.folder / "missing.ndjson")
        self.assertEqual((missing.returncode, missing.stdout), (1, ""))
        self.assertIn("missing.ndjson': No such file", missing.stderr)
        bare = self.folder / "bare"
        bare.mkdir()
        self.assertEqual(tool("report", bare).returncode, 1)

    def test_what_is_no_log(self):
        texts = {"passwd": b"root:x:0:0:root:/root:/bin/bash\n", "random.ndjson": os.urandom(4096),
                 "array.ndjson": b"[1,2]\n", "other.ndjson": b'{"level":"info"}\n',
                 "packed.gz": gzip.compress(b"x" * 999),
                 "broken.ndjson.zst": b"\x28\xb5\x2f\xfd\x00rest", "broken.flight": b"GPUFLT0\n" + bytes(100)}
        for name, text in texts.items():
            with self.subTest(name):
                file = self.folder / name
                file.write_bytes(text)
                for form in ([], ["--json"]):
                    done = tool("report", *form, file)
                    self.assertEqual((done.returncode, done.stdout), (1, ""), done.stderr)
                    self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
                    self.assertIn(name, done.stderr)
                if name in ("passwd", "random.ndjson", "array.ndjson", "other.ndjson", "packed.gz"):
                    self.assertIn("is not a gpuflight log", done.stderr)
        for name in ("empty.ndjson", "empty.flight"):
            (self.folder / name).touch()
            done = tool("report", self.folder / name)
            self.assertEqual((done.returncode, done.stdout), (1, ""))
            self.assertIn(f"{name}' is empty\n", done.stderr)
        # Beside a log it is said, and the log is reported.
        log = write_log(self.folder / "a.ndjson", "--events", 5)
        done = tool("report", "--json", *sorted(self.folder.iterdir()))
        self.assertEqual(done.returncode, 0, done.stderr)
        facts = json.loads(done.stdout)
        self.assertEqual([entry["path"] for entry in facts["logs"]], [str(log)])
        self.assertEqual(facts["totals"]["launches"], 5)
        self.assertEqual(done.stderr.count("\n"), len(texts) + 2, done.stderr)

    def test_an_empty_log_of_a_program_that_runs(self):
        log = self.folder / "a.ndjson"
        log.touch()
        # As far as this goes, the flight file beside it: magic and, at 136, process id and its start (0: not known).
        header = b"GPUFLT0\n" + bytes(128) + struct.pack("<qQ", os.getpid(), 0)
        (self.folder / "a.flight").write_bytes(header.ljust(4096, b"\0"))
        done = tool("report", log)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertEqual(done.stderr, f"gpuflight: '{log}' is empty so far: its program is still running\n")

    def test_what_is_no_file_in_a_folder_is_passed_over(self):
        write_log(self.folder / "a.ndjson", "--events", 5)
        (self.folder / "folder.ndjson").mkdir()
        (self.folder / "a.0001.ndjson").mkdir()
        os.mkfifo(self.folder / "pipe.ndjson")
        os.mkfifo(self.folder / "a.0002.ndjson.zst")
        (self.folder / "gone.ndjson").symlink_to(self.folder / "nowhere")
        done = tool("report", "--json", self.folder, timeout=20)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(json.loads(done.stdout)["totals"]["launches"], 5)
        for name in ("folder", "pipe", "gone", "a.0001"):
            self.assertIn(f"{name}.ndjson' is not a regular file", done.stderr)

    def test_a_recording_counts_once_whatever_of_it_is_named(self):
        log = write_log(self.folder / "a.4711.ndjson", "--events", 5000, "--segment", 65536, "--compress")
        segments = sorted(self.folder.glob("a.4711.0*"))
        self.assertGreater(len(segments), 1)
        link, hard = self.folder / "latest.ndjson", self.folder / "hard.ndjson"
        link.symlink_to(log)
        os.link(log, hard)
        relative = os.path.relpath(log)
        for words in ([log, log], [log, relative], [*segments, log], [log, *segments], [link, log], [log, hard],
                      [self.folder, log], [self.folder, self.folder], sorted(self.folder.iterdir())):
            facts = self.report(*words)
            self.assertEqual((facts["totals"]["launches"], len(facts["logs"])), (5000, 1), words)
        # Without the log its segments are one recording too, of which the end is not there.
        alone = self.report(*segments)
        self.assertEqual(len(alone["logs"]), 1)
        self.assertEqual(alone["totals"]["launches"], sum(self.report(s)["totals"]["launches"] for s in segments))

    def test_copies_are_one_recording(self):
        log = write_log(self.folder / "a.ndjson", "--events", 300, "--failed-every", 10)
        lines = log.read_bytes().splitlines(keepends=True)
        first, last = self.folder / "first.ndjson", self.folder / "last.ndjson"
        first.write_bytes(b"".join(lines[:200]))
        last.write_bytes(b"".join(lines[:3] + lines[100:]))
        for words in ([first, log], [log, first], [first, last], [last, first, log]):
            facts = self.report(*words)
            self.assertEqual((facts["totals"]["launches"], facts["totals"]["failed"], len(facts["logs"])),
                             (300, 30, 1), words)
        other = write_log(self.folder / "b.ndjson", "--events", 7, "--pid", 4712)
        self.assertEqual(self.report(log, other, first)["totals"]["launches"], 307)

    def test_a_log_that_lost_its_beginning(self):
        log = write_log(self.folder / "a.ndjson", "--events", 300)
        self.assertEqual(self.report(log)["logs"][0]["missing_events"], 0)
        self.assertNotIn("says it has", tool("report", log).stdout)
        lines = log.read_bytes().splitlines(keepends=True)
        log.write_bytes(b"".join(lines[:3] + lines[-101:]))
        self.assertEqual(self.report(log)["logs"][0]["missing_events"], 200)
        text = tool("report", log).stdout
        self.assertIn("note: 200 events that the log says it has are not in it\n", text)
        self.assertEqual(text.split("\n")[-2], "events seen 300 = written 300 + summarised 0 + pending 0 + lost 0; "
                                               "of the written not there 200")

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
        def peak(*options):
            log = write_log(self.folder / "m.ndjson", *options)
            before = os.times().children_user
            child = subprocess.Popen([TOOL, "report", "--json", str(log)], stdout=subprocess.DEVNULL, env=environment())
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(child.returncode, 0)
            self.assertGreaterEqual(os.times().children_user, before)
            log.unlink()
            return usage.ru_maxrss
        # KiB; the larger logs have some 180 MB.
        self.assertLess(peak("--events", 200_000, "--kernels", 5), peak("--events", 2_000, "--kernels", 5) + 20_000)
        self.assertLess(peak("--steps", 35_000), peak("--steps", 3_500) + 30_000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
