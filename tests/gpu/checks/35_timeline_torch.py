# A PyTorch training loop: kernels, copies and their times in the log against torch.profiler in a run of its own.
# limit_s: 110
import importlib.util
import json
import os
import sys

import gpu_check as g
import timeline_compare as t

GOAL_PERCENT = 3.0


def run_pair(check, i, demangle):
    script = os.path.join(g.tree(), "tests", "gpu", "programs", "torch_train.py")
    steps = ["--steps", "10" if g.quick() else "40"]
    trace = g.work(f"trace_{i}.json")
    ours = g.start_preloaded(f"recorded_{i}", [sys.executable, script, *steps], count=False, limit_s=50,
                             extra={"GPUFLIGHT_TIMING": "all", "GPUFLIGHT_EXIT_TIMEOUT_MS": "10000"}).wait()
    theirs = g.start_plain(f"profiled_{i}", [sys.executable, script, *steps, "--profile", trace], limit_s=50).wait()
    if not (ours.succeeded(check) and theirs.succeeded(check)):
        return None
    log = g.read_logs(f"recorded_{i}")
    g.check_sound(check, log, f"recorded_{i}")
    with open(trace) as f:
        profiled = t.profiler_facts(json.load(f))
    said = g.json_lines(ours.out, "begin_ns")[0]
    return t.launched_between(log, said["begin_ns"], said["end_ns"], demangle), profiled


with g.Check() as check:
    if importlib.util.find_spec("torch") is None:
        raise g.Skip("torch is not installed here")
    demangle = t.demangler()
    totals, offs = [], []
    for i in range(3):
        pair = run_pair(check, i, demangle)
        if pair is None:
            break
        (kernels, copies, untimed), (their_kernels, their_copies) = pair
        for failure in t.compare_kernels(kernels, their_kernels) + t.compare_copies(copies, their_copies):
            check.expect(False, failure)
        check.expect_equal(untimed, 0, "kernels without times")
        check.expect(sum(k[0] for k in kernels.values()) >= 100, "the program did not do its work")
        totals.append([sum(k[1] for k in side.values()) for side in (kernels, their_kernels)])
        offs.append(t.off_percent(*totals[-1]))
        # A GPU's clocks need not be the same in two runs: more of them, and medians, when one pair is not near enough.
        if abs(offs[-1]) <= GOAL_PERCENT and i == 0:
            break
    if totals:
        ours, theirs = (g.median([pair[side] for pair in totals]) for side in (0, 1))
        off = t.off_percent(ours, theirs)
        check.fact("total_gpu_ns", totals)
        check.fact("off_percent", offs)
        check.fact("kernels", {name[:160]: [*kernels[name], *their_kernels.get(name, [])] for name in kernels})
        check.fact("copies", {f"{kind} {size}": count for (kind, size), count in sorted(copies.items())})
        check.expect(abs(off) <= GOAL_PERCENT, f"total GPU time {off:+.2f} % against torch.profiler")
        count = sum(k[0] for k in kernels.values())
        check.key = (f"{count} kernels of {len(kernels)} names and {sum(copies.values())} copies and fills as "
                     f"torch.profiler has them, total GPU time {off:+.2f} %"
                     + (f" (medians of {len(totals)} pairs)" if len(totals) > 1 else ""))
        check.markdown = (f"## Against torch.profiler\n\n`torch_train.py`, each in a process of its own, {len(totals)} "
                          f"pair(s): {count} kernels of {len(kernels)} names, {sum(copies.values())} copies and fills; "
                          f"kernels in all {ours / 1e6:.3f} ms recorded, {theirs / 1e6:.3f} ms by torch.profiler "
                          f"({off:+.2f} %).")
