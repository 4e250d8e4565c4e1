"""HolisticTraceAnalysis, which reads PyTorch's traces, must read ours, and find what `gpuflight report` finds.
tools/setup.sh installs it; without it the test says so and is skipped (exit code 77)."""
import json
import logging
import os
import random
import sys
import unittest

from cli_support import SOURCE, FolderTest, tool, write_log

PYTHON = SOURCE / ".deps" / "hta" / "bin" / "python"

try:
    logging.disable(logging.WARNING)
    from hta.trace_analysis import TraceAnalysis
except ImportError:
    TraceAnalysis = None


class Hta(FolderTest):
    def compare(self, log):
        trace = self.folder / "trace.json.gz"
        self.assertEqual(tool("export", log, "-o", trace).returncode, 0)
        report = json.loads(tool("report", "--json", log).stdout)
        (device,) = report["device_times"]
        kernels = {group["name"]: group["gpu"] for group in report["groups"]}
        analysis = TraceAnalysis(trace_files={0: str(trace)})

        (times,) = analysis.get_temporal_breakdown(visualize=False).to_dict("records")
        self.assertEqual(times["kernel_time(us)"] * 1000, device["span_ns"])
        self.assertEqual(times["idle_time(us)"] * 1000, device["idle_ns"])
        self.assertEqual(times["compute_time(us)"] * 1000, device["kernel_busy_ns"])
        self.assertEqual(times["non_compute_time(us)"] * 1000, device["busy_ns"] - device["kernel_busy_ns"])

        kinds, names = analysis.get_gpu_kernel_breakdown(visualize=False, include_memory_kernels=True, num_kernels=10_000,
                                                         duration_ratio=1.0)
        found = {row["name"]: row for row in names.to_dict("records") if row["kernel_type"] == "COMPUTATION"}
        self.assertEqual(set(found), set(kernels))
        for name, gpu in kernels.items():
            row = found[name]
            self.assertEqual([row["sum (us)"], row["max (us)"], row["min (us)"]],
                             [gpu["total_ns"] / 1000, gpu["max_ns"] / 1000, gpu["min_ns"] / 1000], name)
            self.assertAlmostEqual(row["mean (us)"], gpu["mean_ns"] / 1000, 6, name)
            if gpu["count"] > 1:  # HTA's is that of a sample
                of_sample = gpu["stddev_ns"] / 1000 * (gpu["count"] / (gpu["count"] - 1)) ** 0.5
                self.assertAlmostEqual(row["stddev"], of_sample, 3, name)
        copies = sum(row["sum (us)"] for row in names.to_dict("records") if row["kernel_type"] == "MEMORY")
        self.assertEqual(copies * 1000, device["copy_total_ns"])
        both = {row["kernel_type"]: row["sum"] for row in kinds.to_dict("records")}
        self.assertEqual(both.get("COMPUTATION overlapping MEMORY", 0) * 1000, device["copy_beside_kernel_ns"])
        return analysis

    def test_steps(self):
        analysis = self.compare(write_log(self.folder / "a.ndjson", "--steps", 100))
        idle = analysis.get_idle_time_breakdown(visualize=False)[0]
        self.assertEqual(set(idle["stream"]), {1, 2})
        queue = analysis.get_queue_length_summary()
        self.assertEqual(queue.shape[0], 2)
        rates = analysis.get_memory_bw_summary()
        self.assertEqual({name for _, name in rates.index}, {"Memcpy HtoD", "Memcpy DtoH", "Memset"})

    # Kernels and copies of any length anywhere in eight streams. In whole us, since HTA rounds times to these.
    def test_random(self):
        choose = random.Random(4)
        seed = write_log(self.folder / "seed.ndjson", "--steps", 1)
        lines = [json.loads(line) for line in seed.read_text().splitlines()]
        kernel = next(line for line in lines if line["type"] == "kernel_event")
        copy = next(line for line in lines if line["type"] == "memcpy_event")
        head = [line for line in lines if line["type"] in ("session_start", "device_info")]
        work, free = [], [0] * 8
        for i in range(3000):
            stream = choose.randrange(8)
            start = free[stream] + choose.choice((0, 1, 5, 400))
            free[stream] = end = start + choose.choice((1, 3, 20, 90, 1000))
            line = {**(copy if choose.random() < 0.3 else kernel), "stream": stream + 1, "seq": (1 << 40) + i,
                    "correlation": i + 1, "launch_ns": max(start - 7, 0) * 1000, "start_ns": start * 1000,
                    "end_ns": end * 1000, "duration_ns": (end - start) * 1000, "queue_ns": 7000}
            if line["type"] == "kernel_event":
                name = f"kernel_{choose.randrange(20)}"
                line["name"] = f"_Z{len(name)}{name}v"
            work.append(line)
        work.sort(key=lambda line: line["start_ns"] + choose.randrange(50_000))  # as lines come: nearly in order
        log = self.folder / "random.ndjson"
        log.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in head + work))
        self.compare(log)


if __name__ == "__main__":
    if TraceAnalysis is None:
        if PYTHON.exists() and not os.path.samefile(sys.prefix, PYTHON.parent.parent):
            os.execv(PYTHON, [str(PYTHON), *sys.argv])
        print(f"skipped: HolisticTraceAnalysis is not in {PYTHON.parent.parent}; tools/setup.sh installs it where pip can")
        sys.exit(77)
    unittest.main(verbosity=2, warnings="ignore")  # HTA and its pandas have some
