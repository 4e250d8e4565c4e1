# torch.profiler in a program that carries the recorder: after pause with release it gets its kernels, and after resume
# we get ours.
# limit_s: 120
# parallel: 1
import importlib.util
import sys

import gpu_check as g

PROGRAM = r"""
import ctypes, os, sys
import torch
lib = ctypes.CDLL(os.environ["LD_PRELOAD"].split(":")[0])
x = torch.ones(1 << 16, device="cuda")
def work(n):
    for _ in range(n):
        x.add_(1)
    torch.cuda.synchronize()
work(10)
print("pause", lib.gpuflight_pause(1))
from torch.profiler import profile, ProfilerActivity
with profile(activities=[ProfilerActivity.CUDA]) as prof:
    work(50)
seen = sum(e.count for e in prof.key_averages() if "elementwise" in e.key)
print("profiled", seen)
print("resume", lib.gpuflight_resume())
work(20)
print("value", float(x[0]))
"""

with g.Check() as check:
    if not importlib.util.find_spec("torch"):
        raise g.Skip("torch is not installed")
    path = g.work("profiled.py")
    with open(path, "w") as f:
        f.write(PROGRAM)
    run = g.start_preloaded("profiler", [sys.executable, path], count=False, limit_s=100).wait()
    run.succeeded(check)
    said = dict(line.split(" ", 1) for line in run.out.splitlines() if " " in line)
    check.expect_equal(said.get("pause"), "0", "pause with release")
    check.expect_equal(said.get("profiled"), "50", "kernels that torch.profiler saw while we were paused")
    check.expect_equal(said.get("value"), "81.0", "result")
    log = g.read_logs("profiler")
    adds = [e for e in log.kernels() if "elementwise" in (e["name"] or "")]
    resumed = said.get("resume") == "0"
    notices = [n["message"] for n in log.of("notice_event")]
    check.fact("resume", said.get("resume"))
    check.fact("adds_recorded", len(adds))
    check.fact("notices", notices)
    # The slot may stay with the profiler: then that is said.
    check.expect(resumed or any("slot" in n or "CUPTI" in n for n in notices), f"resume gave {said.get('resume')}, unsaid")
    check.expect(len(adds) >= (30 if resumed else 10), f"{len(adds)} kernels recorded, resume gave {said.get('resume')}")
    check.key = (f"torch.profiler saw {said.get('profiled')} of 50 while paused; resume "
                 f"{'took the slot again' if resumed else 'was refused, and that is said'}; {len(adds)} recorded by us")
