# Launches seen without CUPTI, by the driver's entry points: counts against the independent counter for C++ and the
# frameworks, torch.profiler beside it, and what a launch and the replay of a graph of 100 cost against the driver's own.
# limit_s: 280
import importlib.util
import os
import sys

import gpu_check as g

GOAL_LAUNCH_NS, GOAL_LAUNCH_THREADS_NS, GOAL_REPLAY_PERCENT, GOAL_TORCH_PERCENT = 60, 90, 1, 2
HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))

PROFILED = r"""
import torch
from torch.profiler import profile, ProfilerActivity
x = torch.ones(1 << 16, device="cuda")
for _ in range(10):
    x.add_(1)
torch.cuda.synchronize()
with profile(activities=[ProfilerActivity.CUDA]) as prof:
    for _ in range(50):
        x.add_(1)
    torch.cuda.synchronize()
print("profiled", sum(e.count for e in prof.key_averages() if "elementwise" in e.key))
for _ in range(20):
    x.add_(1)
torch.cuda.synchronize()
print("value", float(x[0]))
"""


def programs():
    """Label: command and further variables, of all that can run here."""
    found = {}
    for build in ("static", "shared", "ptds"):
        path = os.path.join(g.setting("PROGRAMS", "."), "forms_runtime_" + build)
        if os.path.exists(path) and not g.simulated():
            found["cudart_" + build] = ([path], g.toolkit_search())
    forms = os.path.join(g.setting("PROGRAMS", "."), "forms")
    if os.path.exists(forms):
        found["forms"] = ([forms, "--rounds", "60"] + (["--simulated"] if g.simulated() else []), {})
    for module in ("torch", "cupy", "triton", "jax"):
        if not g.simulated() and importlib.util.find_spec(module):
            cache = {"TRITON_CACHE_DIR": g.work(module, "triton"), "CUPY_CACHE_DIR": g.work(module, "cupy"),
                     "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
            found[module] = ([sys.executable, os.path.join(HERE, "programs", module + "_mix.py")], cache)
    return found


def check_recorded(check, label, started):
    if not started.succeeded(check):
        return None
    log = g.read_logs(label)
    g.check_sound(check, log, label)
    for start in log.of("session_start"):
        check.expect_equal(start["capture"], "interpose", f"{label}: source of launches")
    timed = sum(1 for e in log.of("kernel_event") if e["start_ns"] is not None)
    check.expect_equal(timed, 0, f"{label}: kernels with GPU times")
    unnamed = sum(1 for e in log.of("kernel_event") if e["name"] is None or e["occupancy"] is None)
    check.expect_equal(unnamed, 0, f"{label}: launches without name or occupancy")
    return g.check_counts(check, log, g.read_counts(label), label)


def check_counted(check):
    totals = {}
    for label, (command, extra) in programs().items():
        started = g.start_interposed(label, command, extra=extra, limit_s=120).wait()
        counted = check_recorded(check, label, started)
        if counted:
            totals[label] = check.fact(label, counted)
    return totals


def check_profiler(check):
    if g.simulated() or not importlib.util.find_spec("torch"):
        return ""
    path = g.work("profiled.py")
    with open(path, "w") as f:
        f.write(PROFILED)
    started = g.start_interposed("profiler", [sys.executable, path], count=False, limit_s=100).wait()
    started.succeeded(check)
    said = dict(line.split(" ", 1) for line in started.out.splitlines() if " " in line)
    check.expect_equal(said.get("profiled"), "50", "kernels that torch.profiler saw")
    check.expect_equal(said.get("value"), "81.0", "result of the profiled program")
    adds = [e for e in g.read_logs("profiler").kernels() if "elementwise" in (e["name"] or "")]
    check.expect(len(adds) >= 80, f"{len(adds)} of 80 launches recorded beside torch.profiler")
    return f"; torch.profiler saw {said.get('profiled')} of 50, we {len(adds)}"


def measure(check, label, **options):
    command = [g.program("interpose_cost")] + (["--simulated"] if g.simulated() else [])
    for name, value in options.items():
        command += ["--" + name.replace("_", "-"), str(value)]
    started = g.start_interposed(label, command, count=False, limit_s=90).wait()
    for path in g.log_paths(label):
        os.unlink(path)  # hundreds of MB
    found = g.json_lines(started.out, "recorded_minus_bare_ns")
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
    return (f"| {label} | {cell('bare_launch_ns')} | {cell('idle_minus_bare_ns')} | {cell('recorded_minus_bare_ns')} | "
            f"{cell('bare_replay_call_ns')} | {cell('recorded_replay_call_minus_bare_ns')} | "
            f"{cell('recorded_replay_percent', 2)} |")


with g.Check() as check:
    totals = check_counted(check)
    profiled = check_profiler(check)
    rounds = 6 if g.quick() else 60
    runs = {
        "own stream, 1 thread": measure(check, "own_stream", rounds=rounds),
        "default stream, 1 thread": measure(check, "null_stream", rounds=rounds, null_stream=1),
        "own stream, 16 threads": measure(check, "threads_16", rounds=max(4, rounds // 6), threads=16, launches=2500),
    }
    done = {label: one for label, one in runs.items() if one}
    torch = torch_cost(check)
    if len(done) == len(runs) and not g.simulated():
        one, default, many = (runs[label]["recorded_minus_bare_ns"]["median"] for label in runs)
        replay = runs["own stream, 1 thread"]["recorded_replay_percent"]["median"]
        for got, goal, name in ((one, GOAL_LAUNCH_NS, "ns a launch, one thread"),
                                (default, GOAL_LAUNCH_NS, "ns a launch into the default stream"),
                                (many, GOAL_LAUNCH_THREADS_NS, "ns a launch, 16 threads"),
                                (replay, GOAL_REPLAY_PERCENT, "% on the replay of a graph of 100")):
            check.expect(got <= goal, f"{got:+.1f} {name}, the goal is {goal}")
        check.key = (f"counts equal for {', '.join(totals)}{profiled}; launch {one:+.0f} ns, default stream "
                     f"{default:+.0f} ns, 16 threads {many:+.0f} ns; graph of 100 {replay:+.2f} %")
    else:
        check.key = f"counts equal for {', '.join(totals)}"
    text = ["## Launches without CUPTI", "",
            "`interpose_cost`, preloaded, the driver's own function and the hook in turns in one process, paired; ns on the "
            "host, median (quartiles). Idle: hooked, nothing recorded. Replay: of a graph of 100, the call alone, and in % "
            "until its last kernel has ended.", "",
            "| | bare launch | + idle hook | + recorded | replay call | + recorded | replay, % |",
            "| --- | --- | --- | --- | --- | --- | --- |"] + [row(label, one) for label, one in done.items()]
    if torch:
        percent = 100 * (torch["interposed"][1] / torch["plain"][1] - 1)
        check.fact("torch_percent", round(percent, 2))
        check.expect(percent <= GOAL_TORCH_PERCENT, f"PyTorch a.add_(1) {percent:+.1f} %, the goal is {GOAL_TORCH_PERCENT}")
        text += ["", "`a.add_(1)` in PyTorch, processes in turns, median (least): " +
                 ", ".join(f"{way} {ns[0]:.0f} ({ns[1]:.0f})" for way, ns in torch.items()) + f"; {percent:+.1f} %."]
        check.key += f"; torch {percent:+.1f} %"
    if done:
        text += ["", f"cuCtxGetCurrent: {min(one['context_ns'] for one in done.values()):.1f} ns a call. Counted: " +
                 "; ".join(f"{label} {n['kernels']} launches, {n['graphs']} graphs" for label, n in totals.items()) +
                 profiled + "."]
    check.markdown = "\n".join(text)
