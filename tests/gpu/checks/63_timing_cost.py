# What GPU times cost the host, split into callback, CUPTI's activity and ours: one way a process, processes in turns.
# limit_s: 110
import os

import gpu_check as g

GOAL_OURS_NS = 100
GOAL_WHOLE_PERCENT = 35
GOAL_GRAPH_PERCENT = 5
GOAL_RECORDER_CPU_NS = 1500
WAYS = {"bare": "bare", "callback": "callback", "activity": "activity", "both": "both",  # way: mode of the program
        "untimed": "bare", "timed": "bare", "graph": "bare", "off": "bare"}
TITLES = {"bare": "bare", "callback": "empty callback", "activity": "CUPTI's CONCURRENT_KERNEL alone",
          "both": "both of these", "untimed": "gpuflight, timing=off", "timed": "gpuflight, timing=all",
          "graph": "gpuflight, timing=all graphs=graph", "off": "gpuflight, timing=all graphs=off"}
GRAPHS = {"graph": "graph", "off": "off"}
FIGURES = ("launch_ns", "whole_ns", "replay_call_ns", "replay_ns")


def run_once(check, way, label, load):
    command = [g.program("timing_cost"), "--mode", WAYS[way], "--cupti", g.need("CUPTI", "libcupti"), *load]
    command += ["--simulated"] if g.simulated() else []
    if way not in ("bare", "callback", "activity", "both"):
        started = g.start_preloaded(label, command, count=False, limit_s=30, extra={
            "GPUFLIGHT_TIMING": "off" if way == "untimed" else "all", "GPUFLIGHT_GRAPHS": GRAPHS.get(way, "node"),
            "GPUFLIGHT_EXIT_TIMEOUT_MS": "10000"}).wait()
    else:
        started = g.start_plain(label, command, limit_s=30).wait()
    found = g.json_lines(started.out, "replay_ns")
    if not (started.succeeded(check) and check.expect(found, f"{label}: no result")):
        return None
    one = found[0]
    # A way that did not do what it stands for would measure nothing.
    check.expect((one["callbacks"] > 0) == (way in ("callback", "both")), f"{label}: {one['callbacks']} callbacks")
    check.expect((one["activity_bytes"] > 0) == (way in ("activity", "both")),
                 f"{label}: {one['activity_bytes']} bytes of activity")
    return one


def session_end(check, label):
    """The last line, of a log of which nothing else is needed; the log is removed."""
    paths = g.log_paths(label)
    if not check.expect_equal(len(paths), 1, f"{label}: logs"):
        return None
    with open(paths[0], "rb") as f:
        f.seek(max(0, os.path.getsize(paths[0]) - 65536))
        last = g.json.loads(f.read().splitlines()[-1])
    os.unlink(paths[0])
    check.expect_equal(last["type"], "session_end", f"{label}: type of the last line")
    return last


with g.Check() as check:
    rounds = 2 if g.quick() else 9
    load = ["--batches", "20", "--whole", "20000", "--replays", "100"] if g.quick() else [
        "--batches", "60", "--whole", "50000", "--replays", "500"]
    runs, ends = {way: [] for way in WAYS}, {way: [] for way in ("timed", "untimed", *GRAPHS)}
    for i in range(rounds):
        for way in (list(WAYS) if i % 2 == 0 else list(reversed(WAYS))):
            label = f"{way}_{i}"
            one = run_once(check, way, label, load)
            runs[way] += [one] if one else []
            if way in ends:
                end = session_end(check, label)
                ends[way] += [end] if end else []
    if all(runs.values()) and all(ends.values()):
        ns = {way: {f: g.median([one[f] for one in ones]) for f in FIGURES} for way, ones in runs.items()}
        least = {way: {f: min(one[f] for one in ones) for f in FIGURES} for way, ones in runs.items()}
        check.fact("runs", runs)
        check.fact("least", least)
        for way, those in ends.items():
            for end in those:
                check.expect_equal(end["lost_by_cause"] if g.lost_total(end) else 0, 0, f"{way}: lost")
                check.expect_equal(end["graph_kernels"] > 0, way == "timed", f"{way}: kernels of graphs recorded")
        cpu = {way: g.median([e["recorder_cpu_ns"] / max(1, e["seen"]) for e in those]) for way, those in ends.items()}
        check.fact("recorder_cpu_ns_per_event", cpu)
        check.fact("null_time", [e["null_time"] for e in ends["timed"]])
        # On a machine shared with others whole processes run a half slower at times, whatever they do: medians of nine
        # compare the machine's moods. What disturbs only adds, so the least of each way is judged; medians stand beside.
        ours = least["timed"]["launch_ns"] - least["both"]["launch_ns"]
        whole = 100 * (least["timed"]["whole_ns"] / least["bare"]["whole_ns"] - 1)
        graph = 100 * (least["timed"]["replay_ns"] / least["activity"]["replay_ns"] - 1)
        check.fact("goals", {"ours_ns": ours, "whole_percent": whole, "graph_percent": graph})
        for name, got, goal in (("ns a launch over callback and activity", ours, GOAL_OURS_NS),
                                ("% on launches end to end", whole, GOAL_WHOLE_PERCENT),
                                ("% on a replay over CUPTI's own node tracing", graph, GOAL_GRAPH_PERCENT),
                                ("ns of recorder CPU per event", cpu["timed"], GOAL_RECORDER_CPU_NS)):
            check.expect(got <= goal, f"{got:.1f} {name}, the goal is {goal}")
        check.key = (f"launch {ours:+.0f} ns over callback and activity; end to end {whole:+.1f} % of bare; graph of "
                     f"100 {graph:+.1f} % over CUPTI's own; recorder {cpu['timed']:.0f} ns CPU per event")
        launch = {way: least[way]["launch_ns"] for way in WAYS}
        split = (("callback", launch["callback"] - launch["bare"]), ("activity", launch["activity"] - launch["bare"]),
                 ("callback and activity", launch["both"] - launch["bare"]),
                 ("ring and the rest of ours, timing=off, over the callback", launch["untimed"] - launch["callback"]),
                 ("ring and the rest of ours, timing=all, over callback and activity", ours),
                 ("all of it over activity alone", launch["timed"] - launch["activity"]))
        check.markdown = "\n".join(
            ["## Cost of GPU times", "",
             f"`timing_cost`, empty kernel and a graph of 100, medians of {rounds} processes a way, in turns, and in "
             "brackets the least; ns on the host. Launch and replay call: the call alone; end to end: until the last has "
             "ended on the GPU. Goals are judged by the least: other guests of the machine only add.", "",
             "| | launch | launch, end to end | replay call | replay, end to end |",
             "| --- | --- | --- | --- | --- |"] +
            [f"| {TITLES[way]} | " + " | ".join(f"{ns[way][f]:.0f} ({least[way][f]:.0f})" for f in FIGURES) + " |"
             for way in WAYS] +
            ["", "| part of a launch, by the least | ns |", "| --- | --- |"] +
            [f"| {name} | {value:+.0f} |" for name, value in split] +
            [f"| recorder's threads, CPU per event, timing=off | {cpu['untimed']:.0f} |",
             f"| recorder's threads, CPU per event, timing=all | {cpu['timed']:.0f} |"])
