# Host time of a.add_(1) in PyTorch without the recorder, with it, and with GPU times: separate processes in turns.
# limit_s: 130
import importlib.util
import os
import sys

import gpu_check as g

GOAL_TIMED_PERCENT = 15
WAYS = {"plain": None, "preloaded": {"GPUFLIGHT_TIMING": "off"}, "timed": {"GPUFLIGHT_TIMING": "all"}}

with g.Check() as check:
    if importlib.util.find_spec("torch") is None:
        raise g.Skip("torch is not installed here")
    script = os.path.join(g.tree(), "tests", "bench", "gpu", "torch_small_op.py")
    pairs = 2 if g.quick() else 5
    times = {way: [] for way in WAYS}
    for i in range(pairs):
        for way, extra in WAYS.items():
            if way == "timed" and i >= 3:
                continue  # GPU time is scarce
            label = f"{way}_{i}"
            start, options = g.start_plain, {}
            if extra is not None:
                start, options = g.start_preloaded, {"count": False, "extra": extra}
            started = start(label, [sys.executable, script, "60"], limit_s=40, **options).wait()
            found = g.json_lines(started.out, "ns_per_op")
            if started.succeeded(check) and check.expect(found, f"{label}: no result"):
                times[way].append(found[0]["ns_per_op"])
            for path in g.log_paths(label) if i or way == "timed" else []:
                os.unlink(path)
    if all(times.values()):
        plain, loaded = g.median(times["plain"]), g.median(times["preloaded"])
        check.fact("ns_per_op", times)
        check.fact("kernel_events_in_first", len(g.read_logs("preloaded_0").of("kernel_event")))
        check.expect(check.facts["kernel_events_in_first"] >= 30000, "the recorder did not see the operations")
        check.fact("added_percent", round(100 * (loaded - plain) / plain, 2))
        added = f"{100 * (loaded - plain) / plain:+.1f} %"
        timed = g.median(times["timed"])
        timed_percent = check.fact("timed_added_percent", round(100 * (timed - plain) / plain, 2))
        check.expect(timed_percent <= GOAL_TIMED_PERCENT, f"with GPU times {timed_percent:+.1f} %, the goal is "
                     f"{GOAL_TIMED_PERCENT}")
        check.key = (f"a.add_(1): {plain:.0f} ns plain, {loaded:.0f} ns recorded, {added}; with GPU times "
                     f"{timed:.0f} ns, {timed_percent:+.1f} %")
        check.markdown = ("## A small PyTorch operation\n\n`a.add_(1)` on 16 floats, host ns, median of "
                          f"{pairs} processes each, in turns: {plain:.0f} plain, {loaded:.0f} recorded "
                          f"({added}), {timed:.0f} with GPU times ({timed_percent:+.1f} %). "
                          f"Plain {[round(t) for t in times['plain']]}, recorded "
                          f"{[round(t) for t in times['preloaded']]}, with GPU times "
                          f"{[round(t) for t in times['timed']]}.")
