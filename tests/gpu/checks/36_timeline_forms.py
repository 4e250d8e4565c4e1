# Streams of every kind, child graphs, conditional nodes, launches by the device, copies of every shape, pools, green
# contexts; with two GPUs copies between them too: each kernel, copy and fill in the log as often as it ran, with times.
# limit_s: 40
import collections
import subprocess

import gpu_check as g

UNSEEN = ("tf_child",)  # CUPTI 13.0 has no records of what the device itself launches


def devices():
    said = subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True)
    return sum(line.startswith("GPU ") for line in said.stdout.splitlines())


def copies_of(log):
    sums = collections.defaultdict(lambda: [0, 0])
    for event in log.of("memcpy_event"):
        sums[event["kind"]][0] += 1
        sums[event["kind"]][1] += event["bytes"]
    return dict(sums)


with g.Check() as check:
    two = devices() > 1
    started = g.start_preloaded("forms", [g.program("timeline_forms"), *(["--two-devices"] if two else [])], count=False,
                                extra={"GPUFLIGHT_TIMING": "all"}).wait()
    said = g.json_lines(started.out, "graph_launches")
    if started.succeeded(check) and check.expect(said, "no result"):
        said = check.fact("said", said[0])
        log = g.read_logs("forms")
        executed = [e for e in log.all_kernels() if not g.is_captured(e)]
        counts = collections.Counter(e["name"] for e in executed)
        timed = collections.Counter(e["name"] for e in executed if e["end_ns"] is not None)
        check.fact("kernels", {name: [counts[name], timed[name]] for name in sorted(counts)})
        for name, wanted in said["ran"].items():
            if name in UNSEEN:
                check.fact("launched_by_the_device", [counts[name], wanted])
                continue
            check.expect_equal((counts[name], timed[name]), (wanted, wanted), f"{name}: in the log, and with times")
        check.expect_equal(set(counts) - set(said["ran"]), set(), "kernels that did not run")
        unlaunched = [e["name"] for e in executed if e.get("unlaunched")]
        check.expect_equal([n for n in unlaunched if n not in UNSEEN], [], "kernels without a launch")
        nodes = [e for e in executed if e["graph_node"] is not None]
        check.expect_equal([e["name"] for e in nodes if e["graph"] is None], [], "nodes without their graph")
        grids = collections.Counter(e["grid"] for e in executed if e["name"] == "tf_updated")
        check.expect_equal(grids, {"(5,1,1)": 6, "(7,1,1)": 6}, "grids of a node before and after its update")
        got = check.fact("copies", copies_of(log))
        check.expect_equal({k: tuple(v) for k, v in got.items()}, {k: tuple(v) for k, v in said["copied"].items()},
                           "copies by kind: number and bytes")
        fills = log.of("memset_event")
        check.expect_equal([len(fills), sum(e["bytes"] for e in fills)], said["filled"], "fills: number and bytes")
        work = log.of("memcpy_event", "memset_event")
        check.expect_equal([e["seq"] for e in work if e["end_ns"] is None], [], "copies and fills without times")
        check.expect_equal(len(log.graph_launches()), said["graph_launches"], "graph launches")
        memory = collections.Counter((e["kind"], e["operation"]) for e in log.of("memory_event"))
        check.fact("memory", {f"{kind} {operation}": n for (kind, operation), n in sorted(memory.items())})
        streams = {e["stream"]: e for e in log.of("stream_info")}
        check.fact("streams", [{k: s[k] for k in ("kind", "priority", "device") if k in s} for s in streams.values()])
        check.fact("notices", [n["message"] for n in log.of("notice_event")])
        end = log.of("session_end")[-1]
        check.expect_equal((g.lost_total(end), end["null_time"]), (0, 0), "lost, and without times")
        check.key = (f"{len(executed)} kernels of {len(counts)} names, {len(nodes)} in graphs; copies "
                     f"{ {k: v[0] for k, v in got.items()} }; skipped {said['skipped']}; by the device "
                     f"{counts['tf_child']} of {said['ran']['tf_child']}{'; two devices' if two else ''}")
