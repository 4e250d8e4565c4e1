"""Tests of the GPU checks themselves, without a GPU: the comparisons on made-up inputs, good and bad; the launch
counter on a driver made for the purpose and, where they are built, on the simulated device.

Environment, each optional: GF_COUNTER, GF_SIM (folder), GF_LIB, GF_PROGRAMS and GF_BENCH (folders)."""
import copy
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
import forms_compare  # noqa: E402
import gpu_check  # noqa: E402
import ncu_compare  # noqa: E402
import normalize_log  # noqa: E402
import occupancy_compare  # noqa: E402
import runner  # noqa: E402
import timeline_compare  # noqa: E402


def built(variable, *parts):
    folder = os.environ.get(variable)
    path = os.path.join(folder, *parts) if folder else ""
    return path if path and os.path.exists(path) else None


def sweep_line(**changes):
    line = {"launch": 0, "name": "_Z1kv", "status": 0, "regs": 16, "static": 16384, "local": 0, "dynamic": 0,
            "block": [256, 1, 1], "cluster": 0, "carveout": -1, "carveout_at_launch": False, "barriers": 0,
            "driver_blocks": 8, "driver_status": 0, "driver_clusters": -1, "cluster_status": 0, "header_blocks": 8,
            "limits": {"warps": 8, "blocks": 32, "registers": 16, "shared_mem": 13}, "family": ""}
    line.update(changes)
    return line


def sweep_event(**changes):
    event = {"type": "kernel_event", "name": "_Z1kv", "num_regs": 16, "static_shared_bytes": 16384,
             "dyn_shared_bytes": 0, "local_bytes_per_thread": 0, "block": "(256,1,1)", "max_active_blocks": 8,
             "occupancy": 1.0, "reg_occupancy": 1.0, "smem_occupancy": 1.0, "warp_occupancy": 1.0,
             "block_occupancy": 1.0, "limiting_resource": "warps", "limiting_resources": ["warps"],
             "occupancy_source": "driver", "cluster": None, "status": 0}
    event.update(changes)
    return event


class OccupancyCompare(unittest.TestCase):
    def compare(self, line, event):
        return occupancy_compare.compare([line], [event], 132, 64)

    def test_equal(self):
        failures, facts = self.compare(sweep_line(), sweep_event())
        self.assertEqual(failures, [])
        self.assertEqual((facts["compared"], facts["equal"]), (1, 1))

    def test_each_wrong_field_is_found(self):
        for field, wrong in (("max_active_blocks", 7), ("num_regs", 17), ("static_shared_bytes", 0), ("name", "_Z1jv"),
                             ("dyn_shared_bytes", 4), ("block", "(1,1,1)"), ("occupancy", 0.5), ("smem_occupancy", 0.9),
                             ("limiting_resource", "blocks"), ("limiting_resources", ["warps", "blocks"]),
                             ("occupancy_source", "model"), ("cluster", "(2,1,1)"), ("local_bytes_per_thread", 8)):
            failures, facts = self.compare(sweep_line(), sweep_event(**{field: wrong}))
            self.assertEqual(len(failures), 1, field)
            self.assertIn(field, failures[0])
            self.assertEqual(facts["equal"], 0)

    def test_barriers_only_where_the_driver_says_so(self):
        line = sweep_line(barriers=16, driver_blocks=4, block=[64, 1, 1], static=0, family="barriers",
                          limits={"warps": 32, "blocks": 32, "registers": 64, "shared_mem": 228})
        event = sweep_event(block="(64,1,1)", static_shared_bytes=0, max_active_blocks=4, occupancy=0.125,
                            limiting_resource="barriers", limiting_resources=["barriers"])
        self.assertEqual(self.compare(line, event)[0], [])
        failures, _ = self.compare(line, dict(event, limiting_resources=["warps"], limiting_resource="warps"))
        self.assertTrue(any("only barriers binds" in f for f in failures), failures)
        # 23 is not 64 // k: a disagreement, which is the model's limiter and no barrier
        want = occupancy_compare.expected(dict(line, driver_blocks=23), 132, 64)
        self.assertNotIn("barriers", want["limits"])

    def test_cluster_rounds_up(self):
        line = sweep_line(cluster=16, driver_clusters=8, driver_blocks=1,
                          limits={"warps": 8, "blocks": 32, "registers": 16, "shared_mem": 1})
        want = occupancy_compare.expected(line, 132, 64)
        self.assertEqual(want["limits"]["cluster"], 1)
        self.assertEqual(want["limiters"], ["shared_mem", "cluster"])
        self.assertEqual(occupancy_compare.expected(dict(line, driver_clusters=0), 132, 64)["limiters"], ["cluster"])

    def test_missing_event(self):
        failures, _ = occupancy_compare.compare([sweep_line()], [], 132, 64)
        self.assertEqual(len(failures), 1)


NCU = '''==PROF== Connected to process 1
{"launch":0}
"ID","Process ID","Kernel Name","launch__occupancy_limit_registers","launch__occupancy_limit_shared_mem",\
"launch__occupancy_limit_warps","launch__occupancy_limit_blocks","launch__occupancy_limit_barriers",\
"sm__maximum_warps_per_active_cycle_pct"
"","","","block","block","block","block","block","%"
"0","1","_Z1kv","16","8","8","32","32","100.00"
'''


class NcuCompare(unittest.TestCase):
    EVENT = {"name": "_Z1kv", "occupancy": 1.0,
             "limit_blocks": {"registers": 16, "shared_mem": 13, "warps": 8, "blocks": 32, "barriers": None}}

    def test_reads_and_accepts_what_does_not_bind(self):
        kernels = ncu_compare.read_raw_page(NCU)
        self.assertEqual(kernels[0]["limits"]["registers"], 16)
        failures, facts = ncu_compare.compare(kernels, [self.EVENT])
        self.assertEqual(failures, [])
        self.assertEqual((facts["rows_compared"], facts["rows_equal"], facts["shared_not_binding_differs"]), (4, 3, 1))

    def test_finds_differences(self):
        kernels = ncu_compare.read_raw_page(NCU)
        for name, wrong in (("registers", 15), ("warps", 9), ("blocks", 31), ("shared_mem", 5)):
            event = copy.deepcopy(self.EVENT)
            event["limit_blocks"][name] = wrong
            self.assertEqual(len(ncu_compare.compare(kernels, [event])[0]), 1, name)
        self.assertEqual(len(ncu_compare.compare(kernels, [dict(self.EVENT, occupancy=0.875)])[0]), 1)
        bound = ncu_compare.read_raw_page(NCU.replace('"32","32","100.00"', '"32","4","50.00"'))
        failures, _ = ncu_compare.compare(bound, [dict(self.EVENT, occupancy=0.5)])
        self.assertTrue(any("barrier" in f for f in failures))

    def test_no_table(self):
        self.assertEqual(ncu_compare.read_raw_page("==ERROR== no permission\n"), [])


class FormsCompare(unittest.TestCase):
    LINES = [{"thread": 7},
             {"call": "cuLaunchKernel", "name": "a", "status": 0, "grid": 2, "block": 64, "dynamic": 0, "cluster": 0,
              "cooperative": False, "captured": False, "static": 16},
             {"graph_call": "cuGraphLaunch", "status": 0}, {"absent": "cuLaunch"}, {"done": True}]
    EVENTS = [{"type": "kernel_event", "seq": 1, "thread": 7, "name": "a", "status": 0, "grid": "(2,1,1)",
               "block": "(64,1,1)", "dyn_shared_bytes": 0, "cluster": None, "cooperative": False, "captured": False,
               "static_shared_bytes": 16, "call_ns": 5},
              {"type": "graph_launch_event", "seq": 2, "thread": 7, "status": 0, "graph": 1}]

    def compare(self, events, lines=None):
        log = gpu_check.Log([])
        log.events = events
        return forms_compare.compare(lines or self.LINES, log)

    def test_equal(self):
        failures, facts = self.compare(self.EVENTS)
        self.assertEqual(failures, [])
        self.assertEqual((facts["calls"], facts["equal"], facts["absent"]), (1, 1, ["cuLaunch"]))

    def test_finds_differences(self):
        for field, wrong in (("status", 1), ("name", "b"), ("static_shared_bytes", 32), ("captured", True),
                             ("cluster", "(2,1,1)"), ("call_ns", None)):
            events = copy.deepcopy(self.EVENTS)
            events[0][field] = wrong
            self.assertEqual(len(self.compare(events)[0]), 1, field)
        self.assertEqual(len(self.compare(self.EVENTS[:1])[0]), 1)
        self.assertEqual(len(self.compare(self.EVENTS[1:])[0]), 1)
        self.assertEqual(len(self.compare(self.EVENTS, self.LINES[:-1])[0]), 1)


class Timeline(unittest.TestCase):
    """Three launches in one stream, one in another, two replays of a graph of two nodes in a third."""

    COUNTS = {"a": 3, "b": 1, "node": 4}

    @staticmethod
    def kernel(name, seq, stream, correlation, start, end, node=None, launch=None):
        return {"type": "kernel_event", "name": name, "seq": seq, "stream": stream, "correlation": correlation,
                "graph_node": node, "launch_ns": 100 + seq if launch is None else launch, "start_ns": start,
                "end_ns": end}

    def lines(self):
        far = 5_000_000
        return [self.kernel("a", 1, 1, 11, far, far + 1000), self.kernel("a", 2, 1, 12, far + 1000, far + 2000),
                self.kernel("b", 3, 2, 13, far + 500, far + 9000), self.kernel("a", 4, 1, 14, far + 2500, far + 3000),
                self.kernel("node", 90, 3, 15, far + 4000, far + 5000, 1, 200),
                self.kernel("node", 91, 3, 15, far + 5000, far + 6000, 2, 200),
                self.kernel("node", 93, 3, 16, far + 8000, far + 9000, 2, 300),
                self.kernel("node", 92, 3, 16, far + 7000, far + 8000, 1, 300),
                {"type": "session_start", "t0_monotonic_ns": 0}]

    def failures(self, lines, begin=4_900_000, end=5_100_000, part_bytes=300):
        with tempfile.NamedTemporaryFile("w", suffix=".ndjson") as f:
            f.write("".join(json.dumps(line) + "\n" for line in lines))
            f.flush()
            saved, timeline_compare.PART_BYTES = timeline_compare.PART_BYTES, part_bytes
            try:
                log = timeline_compare.TimedLog(f.name, self.COUNTS)
            finally:
                timeline_compare.PART_BYTES = saved
        self.assertEqual(log.bad_lines, 0)
        self.assertEqual(len(log.of("session_start")), 1)
        return (timeline_compare.compare_presence(log, self.COUNTS) +
                timeline_compare.compare_replays(log.named("node"), 2, 2) +
                timeline_compare.compare_times(log.kernels, begin, end)[0] +
                timeline_compare.compare_order(log.kernels)[0])

    def test_equal_however_the_log_is_cut(self):
        for part_bytes in (1, 37, 150, 151, 300, 1 << 20):
            self.assertEqual(self.failures(self.lines(), part_bytes=part_bytes), [], part_bytes)

    def test_a_time_of_its_own_line(self):
        lines = self.lines()
        lines[0].update(start_ns=None, end_ns=None)
        self.assertEqual(len(self.failures(lines)), 1)
        lines.append({"type": "kernel_time", "event": 1, "start_ns": 5_000_000, "end_ns": 5_001_000})
        self.assertEqual(self.failures(lines), [])

    def test_finds_what_is_wrong(self):
        far = 5_000_000
        for which, changes in ((0, {"start_ns": far + 1200, "end_ns": far + 1300}),   # after the next one's start
                               (0, {"end_ns": far + 1500}),                           # into the next one
                               (2, {"end_ns": far + 100}), (2, {"end_ns": None}), (2, {"start_ns": far - 2_000_000}),
                               (2, {"end_ns": far + 2_000_000}), (1, {"correlation": 11}), (1, {"seq": 1}),
                               (5, {"graph_node": 1})):
            lines = self.lines()
            lines[which].update(changes)
            self.assertGreaterEqual(len(self.failures(lines)), 1, (which, changes))
        for which in range(8):
            lines = self.lines()
            self.assertGreaterEqual(len(self.failures(lines[:which] + lines[which + 1:])), 1, which)
            self.assertGreaterEqual(len(self.failures(lines + [lines[which]])), 1, which)
            lines[which]["name"] = "other"
            self.assertGreaterEqual(len(self.failures(lines)), 1, which)

    def test_overlap(self):
        kernels, copies = [[0, 4], [6, 8]], [[1, 2], [3, 7], [6.5, 7.5]]
        self.assertEqual(timeline_compare.union_of(copies), [[1, 2], [3, 7.5]])
        self.assertAlmostEqual(timeline_compare.in_both(kernels, copies), 1 + 1 + 1.5)
        self.assertEqual(timeline_compare.in_both(kernels, [[4, 6], [8, 9]]), 0)

    def test_launched_between(self):
        log = gpu_check.Log([])
        kernel = {"type": "kernel_event", "name": "_Z1kIiEvT_", "seq": 1, "launch_ns": 50, "duration_ns": 7}
        copy_in = {"type": "memcpy_event", "kind": "htod", "bytes": 64, "launch_ns": 51}
        log.events = [{"type": "session_start", "t0_monotonic_ns": 1000}, kernel, dict(kernel, launch_ns=49),
                      dict(kernel, launch_ns=61), dict(kernel, seq=2, duration_ns=None),
                      dict(kernel, seq=3, duration_ns=None, name="plain"),
                      {"type": "kernel_time", "event": 2, "duration_ns": 5}, copy_in, dict(copy_in, launch_ns=61),
                      dict(copy_in, launch_ns=None), {"type": "memset_event", "bytes": 8, "launch_ns": 52}]
        kernels, copies, untimed = timeline_compare.launched_between(log, 1050, 1060, timeline_compare.demangler())
        self.assertEqual(kernels, {"void k<int>(int)": [2, 12], "plain": [1, 0]})
        self.assertEqual((copies, untimed), ({("htod", 64): 1, ("memset", 8): 1}, 1))

    def test_profiler(self):
        trace = {"traceEvents": [
            {"ph": "X", "cat": "kernel", "name": "void k<int>(int)", "dur": 2.5, "args": {}},
            {"ph": "X", "cat": "kernel", "name": "void k<int>(int)", "dur": 1.25, "args": {}},
            {"ph": "X", "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)", "dur": 9, "args": {"bytes": 64}},
            {"ph": "X", "cat": "gpu_memset", "name": "Memset (Device)", "dur": 1, "args": {"bytes": 8}},
            {"ph": "X", "cat": "cpu_op", "name": "aten::add", "dur": 7}, {"ph": "M", "name": "process_name"}]}
        kernels, copies = timeline_compare.profiler_facts(trace)
        self.assertEqual(kernels, {"void k<int>(int)": [2, 3750.0]})
        self.assertEqual(copies, {("htod", 64): 1, ("memset", 8): 1})
        same = {"void k<int>(int)": [2, 1]}
        self.assertEqual(timeline_compare.compare_kernels(same, kernels), [])
        for wrong in ({}, {"void k<int>(int)": [1, 1]}, {**same, "other": [1, 1]}):
            self.assertEqual(len(timeline_compare.compare_kernels(wrong, kernels)), 1, wrong)
        self.assertEqual(timeline_compare.compare_copies(copies, copies), [])
        self.assertEqual(len(timeline_compare.compare_copies({("htod", 32): 1, ("memset", 8): 1}, copies)), 2)


class Ledger(unittest.TestCase):
    END = {"type": "session_end", "seen": 10, "written": 7, "summarised": 2, "pending": 1, "lost": 0}

    def failures(self, **changes):
        log = gpu_check.Log([])
        log.paths = ["one"]
        log.events = [{"type": "session_start"}, dict(self.END, **changes)]
        check = gpu_check.Check("ledger")
        gpu_check.check_sound(check, log, "log")
        return check.failures

    def test_balances(self):
        self.assertEqual(self.failures(), [])
        self.assertEqual(len(self.failures(seen=11)), 1)
        self.assertEqual(len(self.failures(lost=3, seen=13)), 1)
        self.assertEqual(len(self.failures(lost={"pool_empty": 3}, seen=13)), 1)

    def test_counts(self):
        log = gpu_check.Log([])
        log.events = [{"type": "kernel_event", "status": 0}, {"type": "kernel_event", "status": 1, "captured": True},
                      {"type": "graph_launch_event"}]
        good = {"kernels": 2, "kernels_captured": 1, "kernels_failed": 1, "graphs": 1}
        for changes, wanted in (({}, 0), ({"kernels": 3}, 1), ({"kernels_captured": 0}, 1), ({"graphs": 2}, 1)):
            check = gpu_check.Check("counts")
            gpu_check.check_counts(check, log, {**good, **changes}, "log")
            self.assertEqual(len(check.failures), wanted, changes)


class Normalize(unittest.TestCase):
    def test_drops_what_differs_and_keeps_what_must_not(self):
        one = {"type": "kernel_event", "seq": 1, "thread": 5, "name": "k", "launch_ns": 3, "status": 0,
               "occupancy": 1.0}
        same = dict(one, seq=9, thread=6, launch_ns=44)
        self.assertEqual(normalize_log.normalize([one]), normalize_log.normalize([same]))
        self.assertNotEqual(normalize_log.normalize([one]), normalize_log.normalize([dict(one, occupancy=0.5)]))
        self.assertNotEqual(normalize_log.normalize([one]), normalize_log.normalize([one, dict(same, seq=2)]))


class Runner(unittest.TestCase):
    """The runner on checks that pass, fail, crash and hang."""

    CHECKS = {"10_good.py": "# limit_s: 20\n# parallel: 1\nimport gpu_check as g\n"
                            "with g.Check() as c:\n  c.key = 'all well'\n",
              "20_bad.py": "# limit_s: 20\nimport gpu_check as g\nwith g.Check() as c:\n  c.expect(1 == 2, 'not so')\n",
              "30_crash.py": "# limit_s: 20\nimport os\nos.abort()\n",
              "40_hang.sh": "# limit_s: 2\nsleep 60 & wait\n",
              "50_raise.py": "# limit_s: 20\nimport gpu_check as g\nwith g.Check() as c:\n  {}['x']\n",
              "60_skip.py": "# limit_s: 20\nimport gpu_check as g\nwith g.Check() as c:\n  raise g.Skip('not here')\n"}

    def test_one_never_stops_the_others(self):
        with tempfile.TemporaryDirectory() as folder:
            checks = []
            for name, text in self.CHECKS.items():
                path = os.path.join(folder, name)
                with open(path, "w") as f:
                    f.write(text)
                checks.append(runner.CheckFile(path))
            results = {r["check"]: r for r in runner.run_all(checks, os.path.join(folder, "scratch"), 60)}
            status = {name: r["status"] for name, r in results.items()}
            self.assertEqual(status, {"good": "pass", "bad": "fail", "crash": "fail", "hang": "fail", "raise": "fail",
                                      "skip": "skip"})
            self.assertIn("limit", results["hang"]["key"])
            self.assertIn("not so", results["bad"]["key"])
            text = runner.table(list(results.values())) + runner.markdown({"date": "d", "cores": 1, "kernel": "k",
                                                                           "python": "p"}, list(results.values()), "c")
            self.assertIn("all well", text)
            archive = os.path.join(folder, "logs.tar.gz")
            runner.pack_logs(os.path.join(folder, "scratch"), archive)
            self.assertGreater(os.path.getsize(archive), 100)

    def test_checks_here_have_limits_within_the_total(self):
        checks = runner.discover("")
        self.assertGreater(len(checks), 8)
        for check in checks:
            self.assertLessEqual(check.limit_s, 180, check.name)


FAKE_DRIVER = r"""
#include <stdint.h>
#include <string.h>
static int capturing;
int cuLaunchKernel(void* f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h, void* s,
                   void** p, void** x) { return f == 0 ? 1 : 0; }
int cuLaunchKernel_ptsz(void* f, unsigned a, unsigned b, unsigned c, unsigned d, unsigned e, unsigned g, unsigned h,
                        void* s, void** p, void** x) { return 0; }
int cuLaunchKernelEx(const void* c, void* f, void** p, void** x) { return 0; }
int cuGraphLaunch(void* g, void* s) { return 0; }
int cuStreamBeginCapture_v2(void* s, int m) { capturing = 1; return 0; }
int cuStreamEndCapture(void* s, void** g) { capturing = 0; return 0; }
int cuStreamIsCapturing(void* s, int* status) { *status = capturing; return 0; }
int cuStreamIsCapturing_ptsz(void* s, int* status) { *status = capturing; return 0; }
int cuGetProcAddress_v2(const char* n, void** p, int v, uint64_t f, int* found);
int cuGetProcAddress(const char* n, void** p, int v, uint64_t f) { return cuGetProcAddress_v2(n, p, v, f, 0); }
int cuGetProcAddress_v2(const char* n, void** p, int v, uint64_t f, int* found) {
  *p = !strcmp(n, "cuLaunchKernel") ? (f & 2 ? (void*)cuLaunchKernel_ptsz : (void*)cuLaunchKernel)
     : !strcmp(n, "cuLaunchKernelEx") ? (void*)cuLaunchKernelEx
     : !strcmp(n, "cuStreamBeginCapture") ? (void*)cuStreamBeginCapture_v2
     : !strcmp(n, "cuGetProcAddress") ? (v >= 12000 ? (void*)cuGetProcAddress_v2 : (void*)cuGetProcAddress) : 0;
  return *p ? 0 : 500;
}
"""

HOST = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
typedef int (*launch_t)(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**,
                        void**);
typedef int (*ex_t)(const void*, void*, void**, void**);
typedef int (*address_t)(const char*, void**, int, uint64_t, int*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
#define GO(f, k) f(k, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0)
static void* many(void* launch) { for (int i = 0; i < 10000; ++i) GO(((launch_t)launch), (void*)1); return 0; }
int main(void) {
  int wrong = 0;
  void* driver = dlopen("libcuda.so.1", RTLD_LAZY);
  GO(cuLaunchKernel, (void*)1);                                  /* linked directly */
  launch_t looked_up = (launch_t)dlsym(driver, "cuLaunchKernel");  /* by dlsym */
  GO(looked_up, (void*)1);
  wrong += GO(looked_up, 0) != 1;                                /* a refusal comes through unchanged */
  address_t address = (address_t)dlsym(driver, "cuGetProcAddress_v2");
  void *launch = 0, *per_thread = 0, *ex = 0, *begin = 0, *again = 0, *unknown = (void*)5;
  address("cuLaunchKernel", &launch, 13000, 0, 0);               /* by the driver's own look-up */
  GO(((launch_t)launch), (void*)1);
  address("cuGetProcAddress", &again, 13000, 0, 0);              /* which can be looked up itself */
  ((address_t)again)("cuLaunchKernel", &per_thread, 13000, 2, 0);
  GO(((launch_t)per_thread), (void*)1);
  address("cuLaunchKernelEx", &ex, 13000, 0, 0);
  char config[64] = {0};
  ((ex_t)ex)(config, (void*)1, 0, 0);
  wrong += address("cuNothing", &unknown, 13000, 0, 0) != 500;
  address("cuStreamBeginCapture", &begin, 13000, 0, 0);
  ((int (*)(void*, int))begin)(0, 0);
  GO(looked_up, (void*)1);                                       /* captured */
  ((int (*)(void*, void**))dlsym(driver, "cuStreamEndCapture"))(0, 0);
  ((int (*)(void*, void*))dlsym(driver, "cuGraphLaunch"))(0, 0);
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], 0, many, (void*)looked_up);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], 0);
  wrong += dlsym(RTLD_DEFAULT, "no_such_symbol") != 0 || dlerror() == 0;
  wrong += dlsym(RTLD_NEXT, "malloc") == 0;
  printf("%d\n", wrong);
  return wrong;
}
"""


class LaunchCounter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.counter = os.environ.get("GF_COUNTER")
        if not cls.counter or not os.path.exists(cls.counter):
            cls.counter = os.path.join(cls.folder, "liblaunch_counter.so")
            subprocess.run(["cc", "-std=gnu11", "-O2", "-fPIC", "-shared", "-fvisibility=hidden", "-Wl,-Bsymbolic",
                            os.path.join(HERE, "launch_counter.c"), "-o", cls.counter], check=True)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def test_every_way_to_the_driver_is_counted(self):
        for name, text in (("driver.c", FAKE_DRIVER), ("host.c", HOST)):
            with open(os.path.join(self.folder, name), "w") as f:
                f.write(text)
        driver = os.path.join(self.folder, "libcuda.so.1")
        subprocess.run(["cc", "-fPIC", "-shared", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic", "-w",
                        os.path.join(self.folder, "driver.c"), "-o", driver], check=True)
        host = os.path.join(self.folder, "host")
        subprocess.run(["cc", os.path.join(self.folder, "host.c"), driver, "-o", host, "-ldl", "-lpthread"], check=True)
        out = os.path.join(self.folder, "count.%p.json")
        environment = {**os.environ, "LD_LIBRARY_PATH": self.folder, "LD_PRELOAD": self.counter,
                       "LAUNCH_COUNTER_OUT": out}
        done = subprocess.run([host], env=environment, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        paths = [f for f in os.listdir(self.folder) if f.startswith("count.")]
        self.assertEqual(len(paths), 1, paths)
        with open(os.path.join(self.folder, paths[0])) as f:
            counts = json.load(f)
        self.assertEqual(counts["forms"]["cuLaunchKernel"],
                         {"calls": 40005, "launches": 40005, "failed": 1, "captured": 1})
        self.assertEqual(counts["forms"]["cuLaunchKernel_ptsz"]["launches"], 1)
        self.assertEqual(counts["forms"]["cuLaunchKernelEx"]["launches"], 1)
        self.assertEqual((counts["kernels"], counts["graphs"]), (40007, 1))
        # A process that never asks for a driver function leaves nothing behind.
        os.unlink(os.path.join(self.folder, paths[0]))
        subprocess.run(["/bin/true"], env=environment, check=True)
        self.assertEqual([f for f in os.listdir(self.folder) if f.startswith("count.")], [])


class OnTheSimulatedDevice(unittest.TestCase):
    """The driver-API programs of the GPU checks, recorded and counted, on the simulated driver."""

    maxDiff = None

    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)
        if not built("GF_SIM", "libcuda.so.1"):
            self.skipTest("the simulated device is not built")
        if not (os.environ.get("GF_LIB") and os.path.exists(os.environ["GF_LIB"])):
            self.skipTest("libgpuflight.so is not built")
        saved = dict(os.environ)
        self.addCleanup(lambda: (os.environ.clear(), os.environ.update(saved)))
        os.environ["GF_WORK"] = self.folder
        self.simulated = {"LD_LIBRARY_PATH": os.environ["GF_SIM"], "GPUFLIGHT_SIM_DEVICE": "h200",
                          "GPUFLIGHT_CUPTI": os.path.join(os.environ["GF_SIM"], "libcupti.so.13")}

    def run_forms(self, start, label):
        forms = built("GF_PROGRAMS", "forms")
        if not forms or not os.path.exists(os.environ.get("GF_COUNTER", "")):
            self.skipTest("forms or the counter is not built")
        started = start(label, [forms, "--simulated", "--rounds", "50"], extra=self.simulated, limit_s=60).wait()
        self.assertEqual(started.code, 0, started.err)
        log, counts = gpu_check.read_logs(label), gpu_check.read_counts(label)
        failures, facts = forms_compare.compare(gpu_check.json_lines(started.out), log)
        self.assertEqual(failures, [])
        self.assertGreater(facts["calls"], 100)
        check = gpu_check.Check(label)
        gpu_check.check_sound(check, log, label)
        gpu_check.check_counts(check, log, counts, label)
        self.assertEqual(check.failures, [])

    def test_forms_preloaded(self):
        self.run_forms(gpu_check.start_preloaded, "preloaded")

    def test_forms_injected(self):
        self.run_forms(gpu_check.start_injected, "injected")

    def test_launch_cost(self):
        cost = built("GF_BENCH", "launch_cost")
        if not cost:
            self.skipTest("launch_cost is not built")
        for threads in (1, 4):
            environment = {**gpu_check.clean_environment(), **self.simulated}
            done = gpu_check.Run(f"cost{threads}", [
                cost, "--simulated", "--lib", os.environ["GF_LIB"], "--cupti", built("GF_SIM", "libcupti.so.13"),
                "--log", os.path.join(self.folder, "cost.%p.ndjson"), "--rounds", "6", "--launches", "2000",
                "--threads", str(threads)], environment, limit_s=90).wait()
            self.assertEqual(done.code, 0, done.err)
            one = gpu_check.json_lines(done.out, "gpuflight_ns")[0]
            self.assertEqual(one["lost"], 0)
            self.assertGreaterEqual(one["seen"], one["recorded_launches"])
            self.assertLess(one["seen"], one["recorded_launches"] * 1.01)
            self.assertGreater(one["empty_callbacks_seen"], one["recorded_launches"])

    def recorded(self, name, *arguments):
        """What the program said and its one log, with GPU times."""
        path = built("GF_PROGRAMS", name)
        if not path:
            self.skipTest(f"{name} is not built")
        started = gpu_check.start_preloaded(name, [path, "--simulated", *arguments], count=False, limit_s=60, extra={
            **self.simulated, "GPUFLIGHT_TIMING": "all", "GPUFLIGHT_EXIT_TIMEOUT_MS": "20000"}).wait()
        self.assertEqual(started.code, 0, started.err)
        paths = gpu_check.log_paths(name)
        self.assertEqual(len(paths), 1)
        return gpu_check.json_lines(started.out)[0], paths[0]

    def test_timeline(self):
        said, path = self.recorded("timeline_host", "--launches", "6400", "--replays", "60", "--spins", "3")
        log = timeline_compare.TimedLog(path, said["counts"])
        self.assertEqual(sum(said["counts"].values()), 6400 + 6000 + 3)
        self.assertEqual(timeline_compare.compare_presence(log, said["counts"]), [])
        self.assertEqual(timeline_compare.compare_replays(log.named("timeline_node"), 60, 100), [])
        t0 = log.of("session_start")[0]["t0_monotonic_ns"]
        failures, _ = timeline_compare.compare_times(log.kernels, said["begin_ns"] - t0, said["end_ns"] - t0)
        self.assertEqual(failures, [])
        failures, facts = timeline_compare.compare_order(log.kernels)
        self.assertEqual((failures, facts["streams"]), ([], 34))
        spins = sum(k.end_ns - k.start_ns for k in log.named("timeline_spin"))
        self.assertEqual(spins, 3 * 5_000_000)
        self.assertGreaterEqual(said["spin_event_ms"], 15.0)

    def test_overlap(self):
        said, path = self.recorded("overlap_host", "--chunks", "3", "--megabytes", "1", "--kernel-us", "20000")
        log = gpu_check.Log([path])
        copies = [(e["kind"], e["source"], e["destination"]) for e in log.of("memcpy_event")
                  if e["bytes"] == said["copy_bytes"]]
        self.assertEqual(copies.count(("htod", "pinned", "device")), 3)
        self.assertEqual(copies.count(("dtoh", "device", "pinned")), 3)
        self.assertEqual([len(said[k]) for k in ("copies_in_ms", "kernels_ms", "copies_out_ms")], [3, 3, 3])
        for begin, end in said["kernels_ms"]:
            self.assertGreaterEqual(end - begin, 19.9)

    def test_live(self):
        said, path = self.recorded("live_host", "--fast", "20", "--slow", "3", "--spin-seconds", "1", "--shorts", "500")
        log = timeline_compare.TimedLog(path, said["counts"])
        self.assertEqual(timeline_compare.compare_presence(log, said["counts"]), [])
        self.assertEqual(len(timeline_compare.timed(log.kernels)), sum(said["counts"].values()))

    def test_graph_contents(self):
        said, path = self.recorded("graph_contents", "--rounds", "3")
        log = gpu_check.Log([path])
        kernels = {}
        for line in log.of("graph_kernel"):
            row = kernels.setdefault(line["contents"], {})
            row[f"{line['name']} {line['grid']} {line['block']}"] = line["count"]
        launches = sorted(log.graph_launches(), key=lambda e: e["launch_ns"])
        wanted = [run["kernels"] for run in said["runs"] for _ in range(run["times"])]
        self.assertEqual([kernels[e["contents"]] for e in launches], wanted)

    def test_event_times(self):
        path = built("GF_BENCH", "event_times_cost")
        if not path or not os.path.exists(os.path.join(os.path.dirname(gpu_check.library()), "libgpuflight_hooks.so")):
            self.skipTest("event_times_cost or the hooks are not built")
        started = gpu_check.start_interposed("event_times", [path, "--simulated", "--launches", "30", "--rounds", "2",
                                                             "--batch", "400"], count=False, limit_s=60,
                                             extra={**self.simulated, "GPUFLIGHT_EVENT_TIMES": "10"}).wait()
        self.assertEqual(started.code, 0, started.err)
        log = gpu_check.read_logs("event_times")
        for one in gpu_check.json_lines(started.out, "kernel"):
            timed = [e for e in log.kernels() if e["name"] == one["kernel"] and e["duration_ns"] is not None]
            self.assertEqual(len(timed), 3, one)
            for event in timed:
                self.assertGreaterEqual(event["duration_ns"] + 100, one["length_ns"])
                self.assertLessEqual(event["duration_ns"] - event["error_ns"] - 100, one["length_ns"])
        effect, = gpu_check.json_lines(started.out, "empty_percent")
        self.assertEqual(effect["rounds"], 2)
        # Only into the one stream: half of the batches, and each of its own tenth.
        empty = [e for e in log.kernels() if e["name"] == "empty"]
        streams = {e["stream"] for e in empty if e["duration_ns"] is not None}
        self.assertEqual((len(streams), len({e["stream"] for e in empty})), (1, 2))

    def test_timing_cost(self):
        path = built("GF_BENCH", "timing_cost")
        if not path:
            self.skipTest("timing_cost is not built")
        for mode in ("bare", "callback", "activity", "both"):
            done = gpu_check.Run("timing_" + mode, [
                path, "--simulated", "--mode", mode, "--cupti", built("GF_SIM", "libcupti.so.13"), "--batches", "3",
                "--whole", "1000", "--replays", "10"], {**gpu_check.clean_environment(), **self.simulated},
                limit_s=60).wait()
            self.assertEqual(done.code, 0, done.err)
            one = gpu_check.json_lines(done.out, "replay_ns")[0]
            self.assertEqual((one["callbacks"] > 0, one["activity_bytes"] > 0),
                             (mode in ("callback", "both"), mode in ("activity", "both")))


if __name__ == "__main__":
    unittest.main(verbosity=1)
