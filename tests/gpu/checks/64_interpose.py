# Launches seen without CUPTI, by the driver's entry points: counts against the independent counter for C++ and the
# frameworks, and torch.profiler beside it, which gets all its events.
# limit_s: 175
# parallel: 1
import importlib.util
import os
import sys

import gpu_check as g

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
    all_started = {label: g.start_interposed(label, command, extra=extra, limit_s=150)
                   for label, (command, extra) in programs().items()}
    totals = {}
    for label, started in all_started.items():
        counted = check_recorded(check, label, started.wait())
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


with g.Check() as check:
    g.hooks()
    totals = check_counted(check)
    profiled = check_profiler(check)
    check.key = f"counts equal for {', '.join(totals)}{profiled}"
    check.markdown = "## Launches without CUPTI\n\nCounted twice: " + "; ".join(
        f"{label} {n['kernels']} launches ({n['captured']} captured), {n['graphs']} graph launches"
        for label, n in totals.items()) + profiled + "."
