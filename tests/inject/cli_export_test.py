"""export: the trace of a log whose every event is known (cli_timeline.cpp), and what must hold of any."""
import collections
import gzip
import json
import os
import subprocess
import unittest

from cli_support import TOOL, FolderTest, environment, tool, write_log

HOST = 4711


def exported(*words):
    done = tool("export", *words)
    if done.returncode != 0:
        raise RuntimeError(done.stderr)
    return json.loads(done.stdout)


def at(event, phase, category, name=None):
    return event["ph"] == phase and event.get("cat") == category and name in (None, event["name"])


class Export(FolderTest):
    def steps(self, count=10, *options):
        return write_log(self.folder / "a.ndjson", "--steps", count, *options)

    def test_every_piece_of_work_is_a_slice_of_its_stream(self):
        events = exported(self.steps())["traceEvents"]
        work = [e for e in events if e["ph"] == "X" and e["cat"] in ("kernel", "gpu_memcpy", "gpu_memset")]
        self.assertEqual(collections.Counter(e["cat"] for e in work), {"kernel": 22, "gpu_memcpy": 20, "gpu_memset": 10})
        kernel = next(e for e in work if e["name"] == "reduce_0(float const*, float*, int)" and e["ts"] == 320)
        self.assertEqual((kernel["pid"], kernel["tid"], kernel["dur"]), (0, 1, 40))
        arguments = kernel["args"]
        self.assertEqual({k: arguments[k] for k in ("device", "stream", "context", "correlation", "grid", "block",
                                                    "registers per thread", "est. achieved occupancy %", "scope")},
                         {"device": 0, "stream": 1, "context": 1, "correlation": 3 * 8 + 2, "grid": [16384, 1, 1],
                          "block": [256, 1, 1], "registers per thread": 16, "est. achieved occupancy %": 50,
                          "scope": "step/forward"})
        copy = next(e for e in work if e["name"] == "Memcpy HtoD (Pinned -> Device)")
        self.assertEqual((copy["tid"], copy["args"]["bytes"], copy["args"]["stream"]), (2, 1 << 20, 2))
        self.assertAlmostEqual(copy["args"]["memory bandwidth (GB/s)"], (1 << 20) / 30e3)
        self.assertIn("Memset (Device)", {e["name"] for e in work})
        node = next(e for e in work if e["name"] == "node(float*)")
        self.assertEqual((node["args"]["graph"], node["args"]["graph node id"]), (5, 17))

    def test_calls_and_scopes_are_slices_of_their_thread(self):
        events = exported(self.steps())["traceEvents"]
        calls = [e for e in events if e["ph"] == "X" and e["cat"] == "cuda_driver"]
        self.assertEqual({(e["pid"], e["tid"]) for e in calls}, {(HOST, 99)})
        self.assertEqual(collections.Counter(e["name"] for e in calls), {
            "cuLaunchKernel": 20, "copy HtoD async": 10, "copy DtoH": 10, "fill async": 10, "cuMemAlloc": 10,
            "cuMemFree": 10, "cuEventRecord": 10, "cuStreamWaitEvent": 10, "cuCtxSynchronize": 10, "cuGraphLaunch": 1})
        for event in calls:
            self.assertNotIn("stream", event["args"])  # HTA takes what has one for work of the GPU
        sync = next(e for e in calls if e["name"] == "cuCtxSynchronize")
        self.assertEqual((sync["ts"], sync["dur"]), (72, 6))
        scopes = [e for e in events if at(e, "X", "user_annotation")]
        self.assertEqual([(e["name"], e["ts"], e["dur"], e["args"]["path"]) for e in scopes[:2]],
                         [("forward", 3, 7, "step/forward"), ("step", 0, 98, "step")])
        self.assertEqual(len(scopes), 20)

    def test_arrows_join_a_call_and_its_work(self):
        events = exported(self.steps())["traceEvents"]
        slices = [e for e in events if e["ph"] == "X"]
        starts = {e["id"]: e for e in events if at(e, "s", "ac2g")}
        ends = {e["id"]: e for e in events if at(e, "f", "ac2g")}
        self.assertEqual(len(starts), 22 + 20 + 10)  # kernels, copies, fills: no id twice
        self.assertEqual(starts.keys(), ends.keys())
        def around(event):
            return [s for s in slices if (s["pid"], s["tid"]) == (event["pid"], event["tid"])
                    and s["ts"] <= event["ts"] <= s["ts"] + s["dur"]]
        for number, start in starts.items():
            end = ends[number]
            self.assertEqual(end["bp"], "e")
            work = [s for s in around(end) if s["ts"] == end["ts"] and "queue (us)" in s["args"]]
            self.assertEqual(len(work), 1, end)
            calls = [s for s in around(start) if s["ts"] == start["ts"]
                     and s["args"].get("correlation") == work[0]["args"]["correlation"]]
            self.assertEqual(len(calls), 1, start)
        edges = [e for e in events if at(e, "s", "stream_edge") or at(e, "f", "stream_edge")]
        self.assertEqual([(e["ph"], e["ts"]) for e in edges[:4]], [("s", 1), ("f", 2), ("s", 101), ("f", 102)])

    def test_counters_of_occupancy_and_memory(self):
        events = exported(self.steps(20))["traceEvents"]
        counters = collections.defaultdict(list)
        for event in events:
            if event["ph"] == "C":
                counters[event["name"]].append((event["ts"], *event["args"].values()))
        self.assertEqual(set(counters), {"occupancy, stream 1", "occupancy, stream 2", "memory, device"})
        self.assertEqual(counters["occupancy, stream 1"][:4], [(20, 50), (60, 0), (120, 50), (160, 0)])
        self.assertEqual(counters["memory, device"][:2], [(0.5, 3 << 20), (97.9, 2 << 20)])
        log = self.folder / "a.ndjson"
        for option, gone in (("--no-counters", "C"), ("--no-flows", "s")):
            self.assertNotIn(gone, {e["ph"] for e in exported(option, log)["traceEvents"]})

    def test_names_and_order_of_processes_and_tracks(self):
        trace = exported(self.steps())
        names = {(e["name"], e["pid"], e["tid"]): e["args"] for e in trace["traceEvents"] if e["ph"] == "M"}
        self.assertEqual(names["process_name", HOST, 0], {"name": "trainer 4711"})
        self.assertEqual(names["process_name", 0, 0], {"name": "GPU 0"})
        self.assertEqual(names["thread_name", HOST, 99], {"name": "thread 99"})
        self.assertEqual(names["thread_name", 0, 1], {"name": "stream 1 (default)"})
        self.assertEqual(names["thread_name", 0, 2], {"name": "stream 2"})
        self.assertEqual(trace["deviceProperties"][0]["numSms"], 82)

    def test_no_two_slices_of_a_track_overlap_by_halves(self):
        # Nodes of a graph that ran side by side, as one stream: each must be drawn, none over the border of another.
        log = self.steps(1)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kernel = next(line for line in lines if line["type"] == "kernel_event")
        for i in range(30):
            start = 1_000_000 + 1000 * (i * 7 % 30)
            lines.append({**kernel, "seq": (8191 << 40) + i, "graph": 5, "graph_node": i, "call_ns": None,
                          "start_ns": start, "end_ns": start + 4500, "duration_ns": 4500})
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        tracks = collections.defaultdict(list)
        for event in exported(log)["traceEvents"]:
            if event["ph"] == "X":
                tracks[event["pid"], event["tid"]].append((event["ts"], -event["dur"]))
        self.assertGreater(len([track for track in tracks if track[0] == 0]), 3)
        for track, slices in tracks.items():
            open_until = []
            for ts, negative in sorted(slices):
                while open_until and open_until[-1] <= ts + 1e-6:
                    open_until.pop()
                if open_until:
                    self.assertLessEqual(ts - negative, open_until[-1] + 1e-6, (track, ts))
                open_until.append(ts - negative)

    def test_what_has_no_time_or_no_launch(self):
        log = self.steps(1)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kernel = next(line for line in lines if line["type"] == "kernel_event")
        kernel.update(start_ns=None, end_ns=None, duration_ns=None, queue_ns=None)
        lines += [{**kernel, "seq": (8191 << 40), "unlaunched": True, "thread": None, "correlation": None, "call_ns": None,
                   "status": None, "launch_ns": 200_000, "start_ns": 200_000, "end_ns": 201_500, "duration_ns": 1500},
                  {"type": "kernel_time", "name": kernel["name"], "config": 1, "device": 0, "context": 1, "stream": 1,
                   "seq": 77, "event": kernel["seq"], "launch_ns": 4_000, "start_ns": 300_000, "end_ns": 400_001,
                   "duration_ns": 100_001},
                  {"type": "error_event", "seq": 78, "time_ns": 500_000, "code": 700, "name": "CUDA_ERROR_X",
                   "call": "cuCtxSynchronize", "thread": 99, "context": 1, "confidence": "none", "culprit": None,
                   "in_flight": []}]
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        events = exported(log)["traceEvents"]
        kernels = [(e["ts"], e["dur"]) for e in events if at(e, "X", "kernel", "reduce_0(float const*, float*, int)")]
        self.assertEqual(kernels, [(200, 1.5), (300, 100.001)])
        self.assertEqual(sum(at(e, "X", "cuda_driver", "cuLaunchKernel") for e in events), 2)
        self.assertEqual(sum(at(e, "s", "ac2g") for e in events), 4)  # the other kernel, copies, fill
        self.assertEqual([e["ts"] for e in events if e["ph"] == "i"], [500])

    def test_a_launch_whose_time_was_not_read_says_so(self):
        log = self.steps(1)
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        kernel = next(line for line in lines if line["type"] == "kernel_event")
        for i, error in enumerate((12_400, None)):
            lines.append({**kernel, "seq": kernel["seq"] + 1000 + i, "correlation": None, "call_ns": None, "start_ns": None,
                          "end_ns": None, "duration_ns": None, "queue_ns": None, "launch_error_ns": error})
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
        args = [e["args"] for e in exported(log)["traceEvents"] if e["name"] == "cuLaunchKernel"]
        self.assertEqual([a["begins at most so much sooner or later (us)"] for a in args if
                          "begins at most so much sooner or later (us)" in a], [12.4])
        self.assertEqual([a["begins"] for a in args if "begins" in a], ["here or later"])

    def test_scopes_that_do_not_nest_and_that_never_end(self):
        log = self.steps(1)
        scope = {"type": "scope_event", "thread": 99}
        lines = [{**scope, "phase": "begin", "scope": "range", "seq": 1 << 41, "time_ns": 200_000},
                 {**scope, "phase": "begin", "scope": "range/inner", "seq": 2 << 41, "time_ns": 210_000},
                 {**scope, "phase": "end", "scope": "range", "seq": 3 << 41, "time_ns": 220_000},
                 {**scope, "phase": "mark", "scope": "here", "seq": 4 << 41, "time_ns": 230_000},
                 {**scope, "phase": "end", "scope": "never begun", "seq": 5 << 41, "time_ns": 240_000}]
        with open(log, "a") as file:
            file.write("".join(json.dumps(line) + "\n" for line in lines))
        events = exported(log)["traceEvents"]
        self.assertEqual([(e["ph"], e["ts"]) for e in events if e.get("cat") == "user_annotation" and e["name"] == "range"],
                         [("b", 200), ("e", 220)])
        (inner,) = (e for e in events if e["name"] in ("inner", "range/inner"))
        self.assertEqual((inner["ph"], inner["ts"], inner["dur"]), ("X", 210, 30))
        self.assertEqual([e["name"] for e in events if e["ph"] == "i"], ["here"])

    def test_compressed_to_a_file_and_to_standard_output_the_same(self):
        log = self.steps(50)
        plain, packed = self.folder / "a.json", self.folder / "a.json.gz"
        done = tool("export", log, "-o", packed)
        self.assertEqual((done.returncode, done.stdout), (0, ""), done.stderr)
        self.assertRegex(done.stderr, r"^gpuflight: [0-9,]+ events in .*a.json.gz\n$")
        self.assertEqual(tool("export", "--format", "chrome", log, "-o", plain).returncode, 0)
        self.assertEqual(plain.read_bytes(), gzip.decompress(packed.read_bytes()))
        self.assertEqual(plain.read_text(), tool("export", log).stdout)
        self.assertLess(packed.stat().st_size, plain.stat().st_size / 5)
        with open(log, "rb") as file:
            done = subprocess.run([TOOL, "export", "-"], stdin=file, capture_output=True, env=environment())
        self.assertEqual(done.stdout, plain.read_bytes())

    def test_several_processes_on_one_axis(self):
        one = write_log(self.folder / "a.ndjson", "--steps", 2, "--pid", 100)
        two = write_log(self.folder / "b.ndjson", "--steps", 2, "--pid", 7)
        text = two.read_text()
        later = 1_767_225_600_000_000_000 + 5_000_000
        two.write_text(text.replace('"t0_unix_ns":1767225600000000000', f'"t0_unix_ns":{later}'))
        trace = exported(one, two)
        events = trace["traceEvents"]
        firsts = collections.defaultdict(lambda: 1e18)
        for event in events:
            if at(event, "X", "kernel"):
                firsts[event["pid"]] = min(firsts[event["pid"]], event["ts"])
        self.assertEqual(sorted(firsts.values()), [20, 5020])
        hosts = {e["pid"] for e in events if at(e, "X", "cuda_driver")}
        self.assertEqual(len(hosts), 2)
        self.assertFalse(hosts & set(firsts))
        flows = [e["id"] for e in events if e["ph"] == "s"]
        self.assertEqual(len(flows), len(set(flows)))

    def test_a_rank_is_said_where_hta_looks_for_it(self):
        log = self.steps(1)
        log.write_text(log.read_text().replace('"rank":{}', '"rank":{"RANK":"3","WORLD_SIZE":"8"}'))
        self.assertRegex(tool("export", log).stdout, r'\n"distributedInfo": {"rank": 3}')
        self.assertEqual(exported(log)["distributedInfo"], {"rank": 3})

    def test_names_with_anything_in_them(self):
        log = self.steps(1)
        log.write_bytes(log.read_bytes().replace(b"_Z8reduce_0PKfPfi", b'\\u0000\\"\\u001b[1m\xc3\xa4</script>'))
        names = {e["name"] for e in exported(log)["traceEvents"] if at(e, "X", "kernel")}
        self.assertEqual(len(names), 2)

    def test_failures(self):
        log = self.steps(1)
        self.assertEqual(tool("export", log, "-o", self.folder / "no" / "x.json").returncode, 1)
        self.assertEqual(tool("export", "--format", "nosuch", log).returncode, 2)
        missing = tool("export", self.folder / "missing.ndjson", "-o", self.folder / "x.json")
        self.assertEqual((missing.returncode, (self.folder / "x.json").exists()), (1, False))
        (self.folder / "empty.ndjson").touch()
        empty = tool("export", self.folder / "empty.ndjson", "-o", self.folder / "x.json.gz")
        self.assertEqual((empty.returncode, (self.folder / "x.json.gz").exists()), (1, False))
        for device in ("/dev/full",):
            done = tool("export", log, "-o", device)
            self.assertEqual(done.returncode, 1)
            self.assertIn("cannot write '/dev/full'", done.stderr)
        with open(log, "ab") as file:
            file.write(b"{broken\n")
        done = tool("export", log)
        self.assertIn("1 lines could not be read", done.stderr)
        self.assertTrue(json.loads(done.stdout)["traceEvents"])

    def test_a_log_without_times_has_its_calls(self):
        events = exported(write_log(self.folder / "old.ndjson", "--events", 50))["traceEvents"]
        self.assertEqual(collections.Counter(e["ph"] for e in events if e["ph"] != "M"), {"X": 50})

    def test_memory_does_not_grow_with_the_log(self):
        def peak(steps):
            log = write_log(self.folder / "m.ndjson", "--steps", steps)
            child = subprocess.Popen([TOOL, "export", str(log), "-o", "/dev/null"], stderr=subprocess.DEVNULL,
                                     env=environment())
            _, status, usage = os.wait4(child.pid, 0)
            child.returncode = os.waitstatus_to_exitcode(status)
            self.assertEqual(child.returncode, 0)
            log.unlink()
            return usage.ru_maxrss
        self.assertLess(peak(30_000), peak(300) + 8_000)  # KiB; the larger log has some 150 MB


if __name__ == "__main__":
    unittest.main(verbosity=2)
