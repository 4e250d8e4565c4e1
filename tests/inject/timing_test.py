#!/usr/bin/env python3
"""GPU times: each piece of work once, with its own times, joined to the call that asked for it; what is missing is null
and counted; the feed is live, and a kernel that does not end holds up nothing for good."""
import collections
import json
import os
import signal
import subprocess
import time

from guided_host import TOOL, GuidedTest
from kill_rounds import recover
from sim_host import PLAYER, SANITIZE, SimTest, environment, main, quick_plan, started

MANY = 500 if SANITIZE else 5000


def plan(ops, threads=1, board="sm_90", **kernels):
    named = {key: {"name": key, **facts} for key, facts in (kernels or {"k": {"duration_us": 5}}).items()}
    return {"device": {"board": board}, "modules": {"m": {"kernels": named}}, "threads": [{"count": threads, "ops": ops}]}


def launch(kernel="k", **keys):
    return {"op": "launch", "kernel": kernel, "grid": 8, "block": 64, **keys}


GRAPH = [{"op": "stream_create", "stream": "s"}, {"op": "capture_begin", "stream": "s"},
         launch("a", stream="s", times=3), launch("b", stream="s"),
         {"op": "capture_end", "stream": "s", "graph": "g"}, {"op": "graph_instantiate", "graph": "g", "exec": "e"},
         {"op": "barrier"}]


# The launch clock reads the processor's counter, CUPTI the system's clock: they agree to some microseconds, less on a
# busy machine.
CLOCKS_NS = 300_000


class Times(GuidedTest):
    def timed(self, log):
        return [e for e in log["kernel_event"] if not e["captured"]]

    def assert_plausible(self, log):
        last = log.end["time_ns"]
        for event in self.timed(log):
            self.assertIsNotNone(event["start_ns"], event)
            self.assertGreater(event["start_ns"], event["launch_ns"] - CLOCKS_NS)
            self.assertEqual(event["duration_ns"], event["end_ns"] - event["start_ns"])
            self.assertLessEqual(event["end_ns"], last + CLOCKS_NS)
            self.assertEqual(event["queue_ns"], event["start_ns"] - event["launch_ns"])
        self.assertEqual(log.end["null_time"], 0)

    def assert_streams_in_order(self, log):
        """Work of one stream does not overlap, and launches of one thread into it run in the order they were made."""
        by_stream = collections.defaultdict(list)
        for event in self.timed(log):
            by_stream[event["stream"]].append(event)
        for events in by_stream.values():
            events.sort(key=lambda e: e["start_ns"])
            for before, after in zip(events, events[1:]):
                self.assertGreaterEqual(after["start_ns"], before["end_ns"])

    def test_each_launch_once_with_its_own_times(self):
        ops = [{"op": "stream_create", "stream": "s"},
               {"op": "repeat", "times": MANY // 10, "ops": [launch("k", stream="s", times=6), launch("l", stream="s"),
                                                              launch("k", times=3)]}, {"op": "sync"}]
        self.play(plan(ops, threads=8, k={"duration_us": 5}, l={"duration_us": 70}))
        log = self.log()
        self.assert_balanced(log)
        self.assert_unique_seq(log)
        self.assertEqual(len(log.kernels), 8 * (MANY // 10) * 10)
        self.assertEqual((log.gpu_kernels, log.end["unlaunched"]), ([], 0))
        self.assert_plausible(log)
        self.assert_streams_in_order(log)
        wanted = {"k": 5000, "l": 70000}
        self.assertEqual({(e["name"], e["duration_ns"]) for e in log.kernels}, set(wanted.items()))
        self.assertEqual(len({e["correlation"] for e in log.kernels}), len(log.kernels))
        # The sum of the session knows the times too, and so does the report.
        (summary,) = [s for s in log["kernel_summary"] if s["name"] == "l"]
        count = 8 * MANY // 10
        self.assertEqual((summary["count"], summary["total_ns"], summary["min_ns"], summary["p50_ns"]),
                         (count, count * 70000, 70000, 70000))
        report = json.loads(subprocess.run([str(TOOL), "report", "--json", str(log.path)], capture_output=True,
                                           check=True).stdout)
        totals = {group["name"]: group["gpu"]["total_ns"] for group in report["groups"]}
        self.assertEqual(totals, {"k": 9 * count * 5000, "l": count * 70000})

    def test_nodes_of_graphs(self):
        self.play(plan([*GRAPH, {"op": "graph_launch", "exec": "e", "stream": "s", "times": 40}, launch("a"), {"op": "sync"}],
                       threads=2, a={"duration_us": 3}, b={"duration_us": 4, "registers": 40}))
        log = self.log()
        self.assert_balanced(log)
        self.assert_unique_seq(log)
        nodes = log.gpu_kernels
        self.assertEqual(collections.Counter(e["name"] for e in nodes), {"a": 2 * 40 * 3, "b": 2 * 40})
        self.assertEqual((log.end["graph_kernels"], log.end["unlaunched"]), (len(nodes), 0))
        launches = {e["correlation"]: e for e in log["graph_launch_event"]}
        self.assertEqual(len(launches), 80)
        of_launch = collections.Counter(e["correlation"] for e in nodes)
        self.assertEqual(set(of_launch.values()), {4})
        self.assertEqual(set(of_launch), set(launches))
        for node in nodes:
            origin = launches[node["correlation"]]
            for key in ("graph", "stream", "thread", "launch_ns", "status"):
                self.assertEqual(node[key], origin[key], key)
            self.assertIsNotNone(node["graph_node"])
            self.assertIsNone(node["call_ns"])
            self.assertNotIn("unlaunched", node)
            # Captured the same way before: the driver's own occupancy.
            self.assertEqual((node["occupancy_source"], node["num_regs"]), ("driver", 40 if node["name"] == "b" else 16))
        self.assertEqual(len({e["graph_node"] for e in nodes}), 8)
        self.assert_plausible(log)

    def test_bodies_of_conditional_nodes(self):
        """CUPTI reports them without a correlation id: they belong to the launch of their graph that was under way."""
        self.play(plan([*GRAPH, {"op": "repeat", "times": 40, "ops": [
                            {"op": "graph_launch", "exec": "e", "stream": "s"}, {"op": "sync"}]},
                        {"op": "delay", "us": 900_000}],
                       threads=2, a={"duration_us": 3}, b={"duration_us": 4}), GPUFLIGHT_SIM_BODY_KERNEL="b")
        log = self.log()
        self.assert_balanced(log)
        launches = {e["correlation"]: e for e in log["graph_launch_event"]}
        bodies = [e for e in log.gpu_kernels if e["name"] == "b"]
        self.assertEqual((len(bodies), log.end["unlaunched"]), (80, 0))
        self.assertEqual({e["correlation"] for e in bodies}, set(launches))
        for node in bodies:
            self.assertEqual(node["graph"], launches[node["correlation"]]["graph"])
            (last_a,) = [e for e in log.gpu_kernels if e["name"] == "a" and e["correlation"] == node["correlation"]
                         and e["end_ns"] == node["start_ns"]]
            self.assertEqual(last_a["graph"], node["graph"])

    def test_graphs_as_a_whole_or_not_at_all(self):
        ops = [*GRAPH, {"op": "graph_launch", "exec": "e", "stream": "s", "times": 10}, launch("a"), {"op": "sync"}]
        file = plan(ops, a={"duration_us": 3}, b={"duration_us": 4})
        self.play(file, GPUFLIGHT_GRAPHS="graph")
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual(log.gpu_kernels, [])
        self.assertEqual({e["duration_ns"] for e in log["graph_launch_event"]}, {13000})
        self.play(file, GPUFLIGHT_GRAPHS="off", GPUFLIGHT_LOG=self.dir / "off.ndjson")
        off = self.log("off.ndjson")
        self.assert_balanced(off)
        self.assertEqual((off.gpu_kernels, {e["duration_ns"] for e in off["graph_launch_event"]}), ([], {None}))
        self.assertEqual([e["duration_ns"] for e in off.kernels if not e["captured"]], [3000])

    def test_off(self):
        self.play(quick_plan(), GPUFLIGHT_TIMING="off")
        log = self.log()
        self.assertEqual({(e["start_ns"], e["duration_ns"]) for e in log.kernels}, {(None, None)})
        self.assertEqual(log.end["null_time"], 0)  # none was expected

    def test_sampled(self):
        ops = [launch("k", times=105), launch("l", times=31), *GRAPH,
               {"op": "graph_launch", "exec": "e", "stream": "s", "times": 5}, {"op": "sync"}]
        kernels = {"k": {"duration_us": 5}, "l": {"duration_us": 70}, "a": {"duration_us": 3}, "b": {"duration_us": 4}}
        self.play(plan(ops, **kernels), GPUFLIGHT_TIMING="sample:10")
        log = self.log()
        self.assert_balanced(log)
        self.assert_unique_seq(log)
        timed = collections.Counter(e["name"] for e in self.timed(log) if e["start_ns"] is not None)
        self.assertEqual(timed, {"k": 11, "l": 4, "a": 15, "b": 5})  # each tenth from the first on, and all in graphs
        self.assertEqual(len(self.timed(log)), 105 + 31 + 20)
        self.assertEqual((log.end["null_time"], log.end["unlaunched"], log.start["configuration"]["timing"]), (0, 0, "sample:10"))
        summary = {s["name"]: (s["count"], s["timed"], s["total_ns"]) for s in log["kernel_summary"]}
        self.assertEqual((summary["k"], summary["l"]), ((105, 11, 11 * 5000), (31, 4, 4 * 70000)))
        text = subprocess.run([str(TOOL), "report", str(log.path)], capture_output=True, check=True, text=True).stdout
        total = 105 * 5 + 31 * 70 + 15 * 3 + 5 * 4
        self.assertRegex(text, rf"(?m)^ *{100 * 31 * 70 / total:.1f}% +~2.17 ms +\S+ +31 +4 .* l$")

    def test_sampled_black_box(self):
        self.play(plan([launch("k", times=400), {"op": "sync"}, {"op": "delay", "us": 300_000}]),
                  GPUFLIGHT_MODE="blackbox", GPUFLIGHT_TIMING="sample:100")
        log = self.log()
        self.assert_balanced(log)
        (summary,) = [s for s in log["kernel_summary"] if s["session"]]
        self.assertEqual((summary["count"], summary["timed"], summary["total_ns"]), (400, 4, 4 * 5000))

    def test_what_has_no_times_is_null_and_counted(self):
        ops = [launch(times=300), {"op": "sync"}]
        self.play(plan(ops), GPUFLIGHT_SIM_ZERO_TIMES_EVERY="10")
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual((len(log.kernels), sum(e["start_ns"] is None for e in log.kernels)), (300, 30))
        self.assertEqual(log.end["null_time"], 30)
        self.play(plan(ops), GPUFLIGHT_SIM_DROP_EVERY="10", GPUFLIGHT_LOG=self.dir / "dropped.ndjson")
        dropped = self.log("dropped.ndjson")
        self.assert_balanced(dropped)
        self.assertEqual((len(dropped.kernels), sum(e["start_ns"] is None for e in dropped.kernels)), (300, 30))
        self.assertEqual((dropped.end["null_time"], len(dropped.notices("gpu_records_lost"))), (30, 1))
        # Of nodes of graphs there is no other trace: they are lost.
        self.play(plan([*GRAPH, {"op": "graph_launch", "exec": "e", "stream": "s", "times": 50}, {"op": "sync"}], a={}, b={}),
                  GPUFLIGHT_SIM_DROP_EVERY="10", GPUFLIGHT_LOG=self.dir / "nodes.ndjson")
        nodes = self.log("nodes.ndjson")
        end = self.assert_balanced(nodes, lost=20)
        self.assertEqual((len(nodes.gpu_kernels), end["lost_by_cause"]["cupti_dropped"]), (180, 20))

    def test_refused_and_captured_launches_wait_for_nothing(self):
        self.play(plan([launch("k", times=5), launch("tight", block=1024, expect=1), *GRAPH, {"op": "sync"}],
                       k={"duration_us": 1}, tight={"max_threads": 64}, a={}, b={}))
        log = self.log()
        self.assertEqual(log.end["null_time"], 0)
        self.assertEqual([e["start_ns"] for e in log.kernels if e["status"] or e["captured"]], [None] * 5)

    def test_every_version_of_cupti(self):
        for version in ("12.0", "12.4", "12.9", "13.0", "13.1", "13.3"):
            with self.subTest(version):
                self.in_folder(version)
                self.play(plan([*GRAPH, {"op": "graph_launch", "exec": "e", "stream": "s", "times": 10}, launch("a", times=50),
                                {"op": "sync"}], a={"duration_us": 3}, b={"duration_us": 4}),
                          GPUFLIGHT_SIM_CUPTI_VERSION=version)
                log = self.log()
                self.assertEqual((len(log.gpu_kernels), log.notices()), (40, []))
                self.assert_plausible(log)

    def test_buffers_that_come_late_or_are_asked_for_by_launching_threads(self):
        for name, variables in (("late", {"GPUFLIGHT_SIM_BUFFERS_LATE_MS": "700"}),
                                ("app", {"GPUFLIGHT_SIM_BUFFERS_ON_APP_THREADS": "1"})):
            with self.subTest(name):
                self.in_folder(name)
                self.play(plan([launch(times=2000), {"op": "sync"}, {"op": "delay", "us": 1_500_000}], threads=4), **variables)
                log = self.log()
                self.assert_balanced(log)
                self.assertEqual((len(log.kernels), log.gpu_kernels), (8000, []))
                self.assert_plausible(log)

    def test_copies_and_fills(self):
        ops = [{"op": "stream_create", "stream": "s"},
               {"op": "alloc", "name": "d", "bytes": 1 << 20}, {"op": "alloc", "name": "p", "bytes": 1 << 20, "kind": "pinned"},
               {"op": "copy", "name": "d", "kind": "h2d"}, {"op": "copy", "name": "d", "kind": "h2d", "stream": "s"},
               {"op": "copy", "name": "d", "kind": "d2h", "stream": "s"}, {"op": "fill", "name": "d", "stream": "s"},
               {"op": "fill", "name": "d"}, launch(), {"op": "sync"}]
        self.play(plan(ops))
        log = self.log()
        self.assert_balanced(log)
        self.assert_unique_seq(log)
        copies, fills = log["memcpy_event"], log["memset_event"]
        self.assertEqual(sorted((c["kind"], c["async"]) for c in copies), [("dtoh", True), ("htod", False), ("htod", True)])
        self.assertEqual(len(fills), 2)
        for event in copies + fills:
            self.assertEqual(event["bytes"], 1 << 20)
            self.assertGreater(event["start_ns"], event["launch_ns"] - CLOCKS_NS)
            self.assertGreater(event["duration_ns"], 0)
            self.assertEqual(event["status"], 0)
            wanted = event["bytes"] * 1e9 / event["duration_ns"]
            self.assertLess(abs(event["bytes_per_second"] - wanted), 1 + wanted * 1e-9)
            self.assertEqual(event["device"], 0)  # also before anything was launched into the stream
        self.assertEqual([e for e in log["api_event"] if "Memcpy" in e["call"] or "Memset" in e["call"]], [])

    def test_black_box(self):
        self.play(plan([launch("k", times=400), launch("l", times=100), {"op": "sync"}, {"op": "delay", "us": 700_000}],
                       k={"duration_us": 5}, l={"duration_us": 80}), GPUFLIGHT_MODE="blackbox")
        log = self.log()
        self.assertEqual((self.assert_balanced(log)["summarised"] >= 500, log["kernel_event"]), (True, []))
        for session in (True, False):
            of_kind = [s for s in log["kernel_summary"] if s["session"] == session]
            for name, count, ns in (("k", 400, 5000), ("l", 100, 80000)):
                mine = [s for s in of_kind if s["name"] == name]
                self.assertEqual(sum(s["count"] for s in mine), count)
                self.assertEqual(sum(s["total_ns"] or 0 for s in mine), count * ns)
                self.assertEqual({s["p95_ns"] for s in mine if s["total_ns"]}, {ns})

    def test_clocks(self):
        self.play(quick_plan())
        (clock,) = self.log()["clock_event"]
        start = self.log().start
        self.assertLess(abs(start["t0_monotonic_ns"] + clock["time_ns"] - clock["monotonic_ns"]), 1e6)
        self.assertLess(abs((clock["unix_ns"] - start["t0_unix_ns"]) - clock["time_ns"]), 10e6)
        self.assertGreaterEqual(clock["error_ns"], 0)


class Live(GuidedTest):
    def kernels(self, host):
        return host.events("kernel_event")

    def test_lines_come_while_the_program_runs(self):
        host = self.guided("k:0.001", "slow:400")
        host.do("launch k 30", "sync")
        done = host.wait_for("kernel_event", count=30)
        self.assertNotIn(None, {e["start_ns"] for e in done})
        # One after the other without a pause: some buffer always holds one that runs.
        host.do("stream a")
        for _ in range(5):
            host.do("launch slow 1 a")
        slow = host.wait_for("kernel_event", count=2, name="slow")
        self.assertNotIn(None, {e["start_ns"] for e in slow})
        host.do("sync")
        host.end()
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual((len(log.kernels), log.end["null_time"], log.gpu_kernels), (35, 0, []))

    def test_exit_leaves_nothing_out_and_waits_for_nothing(self):
        host = self.guided("k:0.001", "hang:forever")
        host.do("stream a", "stream b", "launch k 200 b", "sync b", "launch hang 1 a", "launch k 3 a")
        code, _, stderr = host.end("exit 3")
        self.assertEqual((code, stderr), (3, b""))
        log = self.log()
        self.assert_balanced(log)
        ended = [e for e in log.kernels if e["end_ns"] is not None]
        self.assertEqual((len(log.kernels), len(ended)), (204, 200))
        self.assertEqual(log.end["null_time"], 4)

    def test_one_that_does_not_end_beside_many_that_do(self):
        many = 3000 if SANITIZE else 60_000
        host = self.guided("k:0.001", "hang:forever", GPUFLIGHT_POOL="1M", GPUFLIGHT_HANG_AFTER="0")
        host.do("stream a", "stream b", "launch k 10 b", "launch hang 1 a", "launch k 20 a")
        for _ in range(many // 1000):
            host.do("launch k 1000 b", "sync b")
            time.sleep(0.02)
        (pending,) = host.wait_for("kernel_pending", name="hang")  # and one whose record shares its buffer
        self.assertEqual(pending["behind"], 20)
        self.assertGreater(pending["pending_ns"], 5e9)
        # The pool is far too small for all: lines come without times, and what comes later is told by itself.
        deadline = time.monotonic() + 3  # some share a buffer with the one that hangs, and come at the end
        while time.monotonic() < deadline and len(self.kernels(host)) < many:
            time.sleep(0.1)
        code, _, _ = host.end("exit 0")
        self.assertEqual(code, 0)
        log = self.log()
        end = self.assert_balanced(log)
        self.assert_unique_seq(log)
        self.assertEqual((len(log.kernels), log.gpu_kernels), (many + 31, []))
        late = {e["event"]: e for e in log["kernel_time"]}
        self.assertEqual(len(late), len(log["kernel_time"]))
        without = [e for e in log.kernels if e["start_ns"] is None]
        self.assertLessEqual(len(without), end["null_time"])
        known = [e for e in log.kernels if e["name"] == "k" and (e["start_ns"] is not None or e["seq"] in late)]
        self.assertEqual(len(known), many + 10)  # but for what stands behind the one that hangs

    def test_killed_while_lines_wait(self):
        host = self.guided("k:0.001", "hang:forever")
        host.do("stream a", "launch hang 1 a", "launch k 50")
        time.sleep(0.5)
        os.kill(host.pid, signal.SIGKILL)
        host.process.wait()
        code, said = recover(self.dir / "log.flight")
        self.assertEqual((code, said["verdict"]), (4, "stopped"))
        ledger = said["ledger"]
        self.assertTrue(ledger["balanced"])
        self.assertEqual((ledger["in_log"] + ledger["recovered"], sum(dict(ledger["lost_by_cause"]).values())), (51, 0))

    def test_paused_and_resumed(self):
        host = self.guided("k:0.001")
        host.do("launch k 20", "api pause 0", "launch k 30", "sync", "api resume", "launch k 40", "sync", "api pause 1",
                "launch k 50", "sync", "api resume", "launch k 60", "sync")
        host.end()
        log = self.log()
        self.assert_balanced(log)
        self.assertEqual((len(log.kernels), log.gpu_kernels, log.end["unlaunched"]), (120, [], 0))
        self.assertEqual(sum(e["start_ns"] is None for e in log.kernels), 0)

    def test_switched_while_running(self):
        for timing in ("all", "off"):
            with self.subTest(timing):
                self.in_folder(timing)
                host = self.guided("k:0.001", GPUFLIGHT_TIMING=timing)
                host.do("launch k 20", "sync")
                self.assertIn("are recorded", self.tool("timing", "on", host.pid).stdout)
                host.do("launch k 30", "sync")
                self.assertIn("are not recorded", self.tool("timing", "off", host.pid).stdout)
                self.tool("timing", "off", host.pid)
                host.do("launch k 40", "sync")
                self.tool("pause", host.pid)
                self.tool("timing", "on", host.pid, expect=1)  # not while paused
                self.tool("resume", host.pid)
                host.do("launch k 50", "sync")
                self.tool("timing", "on", host.pid)
                host.do("launch k 60", "sync")
                host.end()
                log = self.log()
                self.assert_balanced(log)
                self.assertEqual((len(log.kernels), log.gpu_kernels, log.end["unlaunched"]), (200, [], 0))
                self.assertEqual(sum(e["start_ns"] is None for e in log.kernels), 90 if timing == "all" else 110)
                self.assertEqual(log.end["null_time"], 0)
                self.assertGreaterEqual(len(log.notices("timing_on")), 1)

    def test_a_rule_on_gpu_time(self):
        self.play(plan([launch("k", times=30), launch("slow"), {"op": "sync"}, {"op": "delay", "us": 600_000}],
                       k={"duration_us": 5}, slow={"duration_us": 9000}), GPUFLIGHT_MODE="blackbox",
                  GPUFLIGHT_DUMP_WHEN="duration_ns > 5e6")
        log = self.log()
        (dump,) = log.notices("dump")
        self.assertIn("dump_when matched", dump["message"])
        self.assertIn("slow", {e["name"] for e in log.kernels})


class Fork(SimTest):
    def test_many_processes_side_by_side(self):
        file = self.plan_file(plan([launch(times=300), {"op": "sync"}], threads=2))
        env = environment(GPUFLIGHT_LOG=self.dir / "log.%p.ndjson", GPUFLIGHT_SIM_PLAN=file)
        with started(PLAYER, file, env=env) as one, started(PLAYER, file, env=env) as two:
            self.assertEqual((one.wait(60), two.wait(60)), (0, 0))
        for process in (one, two):
            log = self.log(f"log.{process.pid}.ndjson")
            self.assertEqual((len(log.kernels), log.end["null_time"]), (600, 0))


if __name__ == "__main__":
    main()
