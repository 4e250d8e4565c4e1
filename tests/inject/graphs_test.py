#!/usr/bin/env python3
"""What launches of graphs run, read when the graph was instantiated or updated: as the program made it, under both
sources, with and without events of the nodes."""
import collections
import json
import os
import subprocess

from sim_host import BUILD, CAPTURE, HOSTS, SimTest, main, needs_cupti

HOST = HOSTS / "graph_host"
TOOL = os.environ.get("GPUFLIGHT_TEST_TOOL") or BUILD / "bin" / "gpuflight"
BOARD = {"GPUFLIGHT_SIM_DEVICE": "sm_90"}
EVERYTHING = ("captured", "nodes", "ways", "children", "updated", "set_params", "disabled", "again", "large", "refused",
              "during_capture", "device_updatable")


def kernel_text(line):
    text = f"{line['name']} grid {line['grid']} block {line['block']}"
    return text + (f" cluster {line['cluster']}" if line["cluster"] else "")


class GraphTest(SimTest):
    def contents(self, log):
        """By number: what a launch of it runs."""
        kernels, rows = collections.defaultdict(dict), collections.Counter()
        for line in {line["seq"]: line for line in log["graph_kernel"]}.values():
            self.assertNotIn(kernel_text(line), kernels[line["contents"]])
            kernels[line["contents"]][kernel_text(line)] = line["count"]
            rows[line["contents"]] += 1
        for info in log["graph_info"]:
            self.assertEqual(rows[info["contents"]], info["kernels"])
            self.assertEqual(sum(kernels[info["contents"]].values()), info["nodes"]["kernel"])
        return kernels

    def launches(self, log):
        """Of the program's one thread but for those of `during_capture`, in order."""
        return sorted(log["graph_launch_event"], key=lambda e: e["launch_ns"])

    def ran(self, *scenarios, **variables):
        run = self.run_host(HOST, *scenarios, **BOARD, **variables)
        log = self.log()
        self.assert_balanced(log)
        expected = json.loads(run.stdout)
        contents = self.contents(log)
        launches = self.launches(log)
        said = [contents[e["contents"]] if e["contents"] is not None else None for e in launches]
        self.assertEqual(said, [e and e["kernels"] for e in expected])
        self.nodes_agree(log, launches, expected)
        for info in log["graph_info"]:  # told before the first launch that refers to it
            lines = [line for line in log.lines if b'"graph_' in line[:20]]
            first = next(i for i, line in enumerate(lines)
                         if line.startswith(b'{"type":"graph_launch_event"') and
                         json.loads(line)["contents"] == info["contents"])
            self.assertTrue(any(json.loads(line)["contents"] == info["contents"] for line in lines[:first]
                                if line.startswith(b'{"type":"graph_info"')))
        return log, expected

    def nodes_agree(self, log, launches, expected):
        """What CUPTI tells of the nodes is what the program says it launched."""
        nodes = collections.defaultdict(collections.Counter)
        for event in log.gpu_kernels:
            nodes[event["correlation"]][kernel_text(event)] += 1
        for launch, wanted in zip(launches, expected):
            if launch["node_events"] and wanted is not None:
                self.assertEqual(nodes[launch["correlation"]], wanted["kernels"])

    def counted(self, expected):
        total = collections.Counter()
        for launch in expected:
            for kernel, n in (launch or {"kernels": {}})["kernels"].items():
                total[kernel.split(" ")[0]] += n
        return total

    def report(self, *arguments):
        run = subprocess.run([TOOL, "report", self.dir, "--json", *arguments], capture_output=True)
        self.assertEqual(run.returncode, 0, run.stderr)
        return json.loads(run.stdout)


class Contents(GraphTest):
    def test_captured(self):
        log, _ = self.ran("captured")
        # Captured or read off the graph, it is the same configuration.
        configs = {(e["name"], e["config"], e["occupancy"]) for e in log.kernels if e["captured"]}
        self.assertEqual({(k["name"], k["config"], k["occupancy"]) for k in log["graph_kernel"]}, configs)

    def test_explicit_nodes(self):
        log, _ = self.ran("nodes")
        (info,) = log["graph_info"]  # equal ones are one
        self.assertEqual({k: n for k, n in info["nodes"].items() if n}, {"kernel": 3, "empty": 1})
        self.assertEqual(len({e["graph"] for e in log["graph_launch_event"]}), 2)
        self.assertNotIn(None, [k["occupancy"] for k in log["graph_kernel"]])
        self.assertEqual({k["occupancy_source"] for k in log["graph_kernel"]}, {"driver"})
        self.assertEqual({k["device"] for k in log["graph_kernel"]}, {0})

    def test_every_way_to_instantiate(self):
        self.ran("ways")

    def test_child_graphs_and_their_update(self):
        log, _ = self.ran("children")
        self.assertEqual([info["nodes"]["graph"] for info in log["graph_info"]], [3, 3])

    def test_updated(self):
        self.ran("updated")

    def test_parameters_of_nodes(self):
        log, _ = self.ran("set_params")
        self.assertLess(len(log["graph_info"]), 10)

    def test_disabled(self):
        log, _ = self.ran("disabled")
        self.assertIn(1, [info["disabled"] for info in log["graph_info"]])

    def test_instantiated_again_and_again(self):
        log, _ = self.ran("again")
        self.assertEqual(len(log["graph_info"]), 6)
        self.assertEqual(len({e["graph"] for e in log["graph_launch_event"]}), 300)

    def test_a_thousand_nodes(self):
        self.ran("large")

    def test_refused(self):
        self.ran("refused")

    def test_instantiated_while_another_thread_captures(self):
        self.ran("during_capture")

    def test_kernels_may_change_it(self):
        log, _ = self.ran("device_updatable")
        self.assertEqual(len(log.notices("graph_device_updated")), 1)

    def test_in_small_segments_each_can_be_read_alone(self):
        log, _ = self.ran(*["set_params"] * 3, GPUFLIGHT_LOG_SEGMENT="256K")
        self.assertGreater(len(log.files), 1)
        from sim_host import read_segment
        for file in log.files:
            told = set()
            for line in read_segment(file).splitlines():
                event = json.loads(line)
                if event["type"] == "graph_info":
                    told.add(event["contents"])
                if event["type"] == "graph_launch_event":
                    self.assertIn(event["contents"], told, file)


    def test_contents_larger_than_a_segment(self):
        log, _ = self.ran("large", "set_params", GPUFLIGHT_LOG_SEGMENT="64K")
        largest = max(log["graph_info"], key=lambda info: info["kernels"])
        self.assertGreater(largest["kernels"], 100)
        self.assertEqual(len([i for i in log["graph_info"] if i["contents"] == largest["contents"]]), 1)


class Counted(GraphTest):
    """Kernels of launches of graphs, once each."""

    def of_report(self, *arguments):
        report = self.report(*arguments)
        return {row["label"]: row["launches"] for row in report["groups"] if row["launches"]}, report

    def test_without_events_of_nodes(self):
        log, expected = self.ran("nodes", "children", "large", "updated", GPUFLIGHT_TIMING="off")
        self.assertEqual({e["node_events"] for e in log["graph_launch_event"]}, {False})
        wanted = self.counted(expected)
        rows, report = self.of_report()
        self.assertEqual(rows, wanted)
        self.assertEqual(report["logs"][0]["replayed_kernels"], sum(wanted.values()))
        self.assertEqual(report["logs"][0]["unknown_replays"], expected.count(None))
        self.assertEqual(log.end["replayed_kernels"], sum(wanted.values()))
        self.assertEqual(log.end["graph_kernels"], 0)
        summed = collections.Counter()
        for line in log["kernel_summary"]:
            self.assertEqual((line["session"], line["replayed"]), (True, line["count"]))
            summed[line["name"]] += line["count"]
        self.assertEqual(summed, wanted)
        explained = subprocess.run([TOOL, "explain", self.dir / "log.ndjson", "--json", "--all"], capture_output=True)
        self.assertEqual(explained.returncode, 0, explained.stderr)
        launches = collections.Counter()
        for config in json.loads(explained.stdout)["kernels"]:
            launches[config["label"]] += config["launches"]
        self.assertEqual(launches, wanted)

    @needs_cupti
    def test_with_events_of_nodes(self):
        if os.environ.get("GPUFLIGHT_TEST_TIMING") == "off":
            self.skipTest("no GPU times")
        log, expected = self.ran("nodes", "large")
        self.assertEqual({e["node_events"] for e in log["graph_launch_event"]}, {True})
        wanted = self.counted(expected)
        self.assertEqual(len(log.gpu_kernels), sum(wanted.values()))
        rows, report = self.of_report()
        self.assertEqual(rows, wanted)
        self.assertEqual((log.end["graph_kernels"], log.end["replayed_kernels"]), (sum(wanted.values()), 0))
        self.assertEqual(report["logs"][0]["replayed_kernels"], 0)

    @needs_cupti
    def test_graphs_timed_as_a_whole(self):
        if os.environ.get("GPUFLIGHT_TEST_TIMING") == "off":
            self.skipTest("no GPU times")
        log, expected = self.ran("nodes", "large", GPUFLIGHT_GRAPHS="graph")
        self.assertNotIn(None, [e["duration_ns"] for e in log["graph_launch_event"]])
        self.assertEqual(self.of_report()[0], self.counted(expected))

    def test_in_a_black_box(self):
        run = self.run_host(HOST, "nodes", "large", **BOARD, GPUFLIGHT_MODE="blackbox", GPUFLIGHT_TIMING="off")
        log = self.log()
        self.assert_balanced(log)
        wanted = self.counted(json.loads(run.stdout))
        self.assertEqual(self.of_report()[0], wanted)
        for session in (False, True):
            summed = collections.Counter()
            for line in log["kernel_summary"]:
                if line["session"] == session:
                    summed[line["name"]] += line["count"]
            self.assertEqual(summed, wanted)

    def test_recovered(self):
        run = self.run_host(HOST, "killed", **BOARD, expect=-9, GPUFLIGHT_TIMING="off", GPUFLIGHT_FLUSH_MS="200ms")
        log = self.log()
        self.assertGreaterEqual(len(log["graph_launch_event"]), 3)  # the others are in the flight file
        done = subprocess.run([TOOL, "recover", self.dir / "log.flight"], capture_output=True)
        self.assertEqual(done.returncode, 4, done.stderr)  # it did not close its recording
        rows, report = self.of_report()
        self.assertEqual(rows, self.counted(json.loads(run.stdout)))
        self.assertEqual(report["logs"][0]["unknown_replays"], 0)

    def test_by_graph(self):
        log, expected = self.ran("nodes", "large", GPUFLIGHT_TIMING="off")
        report = self.report("--by", "graph")
        rows = sorted(row["launches"] for row in report["groups"])
        self.assertEqual(rows, [3, 9, 5000])


if __name__ == "__main__":
    main()
