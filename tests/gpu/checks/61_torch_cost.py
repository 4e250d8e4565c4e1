# Host time of a.add_(1) in PyTorch with and without the recorder: separate processes in turns.
# limit_s: 110
import importlib.util
import os
import sys

import gpu_check as g

with g.Check() as check:
    if importlib.util.find_spec("torch") is None:
        raise g.Skip("torch is not installed here")
    script = os.path.join(g.tree(), "tests", "bench", "gpu", "torch_small_op.py")
    pairs = 2 if g.quick() else 5
    times = {"plain": [], "preloaded": []}
    for i in range(pairs):
        for way, options in (("plain", {}), ("preloaded", {"count": False})):
            label = f"{way}_{i}"
            start = g.start_plain if way == "plain" else g.start_preloaded
            started = start(label, [sys.executable, script, "60"], limit_s=40, **options).wait()
            found = g.json_lines(started.out, "ns_per_op")
            if started.succeeded(check) and check.expect(found, f"{label}: no result"):
                times[way].append(found[0]["ns_per_op"])
            for path in g.read_logs(label).paths if way == "preloaded" and i else []:
                os.unlink(path)
    if all(times.values()):
        plain, loaded = g.median(times["plain"]), g.median(times["preloaded"])
        check.fact("ns_per_op", times)
        check.fact("kernel_events_in_first", len(g.read_logs("preloaded_0").of("kernel_event")))
        check.expect(check.facts["kernel_events_in_first"] >= 30000, "the recorder did not see the operations")
        check.fact("added_percent", round(100 * (loaded - plain) / plain, 2))
        added = f"{100 * (loaded - plain) / plain:+.1f} %"
        check.key = f"a.add_(1): {plain:.0f} ns plain, {loaded:.0f} ns recorded, {added}"
        check.markdown = ("## A small PyTorch operation\n\n`a.add_(1)` on 16 floats, host ns, median of "
                          f"{pairs} processes each, in turns: {plain:.0f} plain, {loaded:.0f} recorded "
                          f"({added}). Plain {[round(t) for t in times['plain']]}, "
                          f"recorded {[round(t) for t in times['preloaded']]}.")
