# What a launch, the replay of a graph of 100 and a small PyTorch operation cost where launches are seen by the driver's
# entry points, against the driver's own function.
# limit_s: 175
import importlib.util
import os
import sys

import gpu_check as g

GOAL_LAUNCH_NS, GOAL_LAUNCH_THREADS_NS, GOAL_REPLAY_PERCENT, GOAL_TORCH_PERCENT = 60, 90, 1, 2


def measure(check, label, **options):
    command = [g.program("interpose_cost")] + (["--simulated"] if g.simulated() else [])
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    started = g.start_interposed(label, command, count=False, limit_s=90).wait()
    for path in g.log_paths(label):
        os.unlink(path)  # hundreds of MB
    found = g.json_lines(started.out, "recorded_launch_more_ns")
    if not (started.succeeded(check) and check.expect(found, f"{label}: no result: {started.err[-200:]}")):
        return None
    one = check.fact(label, found[0])
    check.expect_equal(one["lost"], 0, f"{label}: lost")
    # Recorded in its rounds and not in the others.
    check.expect(abs(one["seen"] - one["expected"]) < one["expected"] * 0.01,
                 f"{label}: {one['seen']} events seen, about {one['expected']} made")
    return one


def torch_cost(check):
    """a.add_(1) plain and interposed, processes in turns; the least of each, as others on the machine only add."""
    if g.simulated() or not importlib.util.find_spec("torch"):
        return None
    script = os.path.join(g.tree(), "tests", "bench", "gpu", "torch_small_op.py")
    times = {"plain": [], "interposed": []}
    for i in range(2 if g.quick() else 5):
        for way, start, options in (("plain", g.start_plain, {}), ("interposed", g.start_interposed, {"count": False})):
            label = f"torch_{way}_{i}"
            started = start(label, [sys.executable, script, "60"], limit_s=40, **options).wait()
            found = g.json_lines(started.out, "ns_per_op")
            if started.succeeded(check) and check.expect(found, f"{label}: no result"):
                times[way].append(found[0]["ns_per_op"])
            for path in g.log_paths(label):
                os.unlink(path)
    check.fact("torch_ns_per_op", times)
    if not all(times.values()):
        return None
    return {way: (g.median(ns), min(ns)) for way, ns in times.items()}


def row(label, one):
    def cell(name, digits=0):
        s = one[name]
        return f"{s['median']:.{digits}f} ({s['q1']:.{digits}f} to {s['q3']:.{digits}f})"
    return (f"| {label} | {cell('recorded_launch_own_ns')} | {cell('idle_launch_more_ns')} | "
            f"{cell('recorded_launch_more_ns')} | {cell('recorded_replay_call_own_ns')} | "
            f"{cell('recorded_replay_call_more_ns')} | {cell('recorded_replay_more_percent', 2)} |")


with g.Check() as check:
    g.hooks()
    rounds = 6 if g.quick() else 60
    runs = {
        "own stream, 1 thread": measure(check, "own_stream", rounds=rounds),
        "default stream, 1 thread": measure(check, "null_stream", rounds=rounds, null_stream=1),
        "own stream, 16 threads": measure(check, "threads_16", rounds=max(4, rounds // 3), threads=16, launches=5000,
                                          batch=100),
    }
    done = {label: one for label, one in runs.items() if one}
    torch = torch_cost(check)
    if len(done) == len(runs):
        one, default, many = (run["recorded_launch_more_ns"]["median"] for run in runs.values())
        replay = runs["own stream, 1 thread"]["recorded_replay_more_percent"]["median"]
        for got, goal, name in ((one, GOAL_LAUNCH_NS, "ns a launch, one thread"),
                                (default, GOAL_LAUNCH_NS, "ns a launch into the default stream"),
                                (many, GOAL_LAUNCH_THREADS_NS, "ns a launch, 16 threads"),
                                (replay, GOAL_REPLAY_PERCENT, "% on the replay of a graph of 100")):
            check.expect(got <= goal or g.simulated(), f"{got:+.1f} {name}, the goal is {goal}")
        check.key = (f"launch {one:+.0f} ns, default stream {default:+.0f} ns, 16 threads {many:+.0f} ns; graph of 100 "
                     f"{replay:+.2f} %")
    text = ["## Cost of launches seen without CUPTI", "",
            "`interpose_cost`, preloaded, batches of the driver's own function and of the hook in turns in one process, "
            "paired; ns on the host, median (quartiles). Idle: hooked, nothing recorded. Replay: of a graph of 100, the "
            "call alone, and in % until its last kernel has ended.", "",
            "| | bare launch | + idle hook | + recorded | replay call | + recorded | replay, % |",
            "| --- | --- | --- | --- | --- | --- | --- |"] + [row(label, one) for label, one in done.items()]
    if torch:
        percent = 100 * (torch["interposed"][1] / torch["plain"][1] - 1)
        check.fact("torch_percent", round(percent, 2))
        check.expect(percent <= GOAL_TORCH_PERCENT, f"PyTorch a.add_(1) {percent:+.1f} %, the goal is "
                     f"{GOAL_TORCH_PERCENT}")
        text += ["", "`a.add_(1)` in PyTorch, processes in turns, median (least): " +
                 ", ".join(f"{way} {ns[0]:.0f} ({ns[1]:.0f})" for way, ns in torch.items()) + f"; {percent:+.1f} %."]
        check.key += f"; torch {percent:+.1f} %"
    if done:
        text += ["", f"cuCtxGetCurrent: {min(one['context_ns'] for one in done.values()):.1f} ns a call."]
    check.markdown = "\n".join(text)
