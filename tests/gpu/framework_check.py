"""One Python program of programs/, run four ways at once: plain, preloaded, injected by the variable alone, and under
`gpuflight run`. Its output must not change, and each log must hold exactly the launches that the independent counter
saw in that same process."""
import importlib.util
import os
import sys

import gpu_check as g

HERE = os.path.dirname(os.path.abspath(__file__))


def run(module, script):
    with g.Check() as check:
        if importlib.util.find_spec(module) is None:
            raise g.Skip(f"{module} is not installed here")
        g.library(), g.counter()
        command = [sys.executable, os.path.join(HERE, "programs", script)]
        runs = {}
        ways = {"plain": g.start_plain, "preload": g.start_preloaded, "injection": g.start_injected}
        if g.setting("CLI"):
            ways["run"] = g.start_under_run
        for way, start in ways.items():
            # A cache of its own for each, so that all four compile what they need.
            cache = {"TRITON_CACHE_DIR": g.work(way, "triton"), "CUPY_CACHE_DIR": g.work(way, "cupy"),
                     "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "PYTHONUNBUFFERED": "1"}
            runs[way] = start(way, command, extra=cache, limit_s=150)
        for started in runs.values():
            started.wait()
        wanted = runs["plain"].out
        check.expect(runs["plain"].succeeded(check) and wanted.strip(), "the plain program printed nothing")
        totals = {}
        for way, started in runs.items():
            if way == "plain" or not started.succeeded(check):
                continue
            check.expect(started.out == wanted, f"{way}: the program's output changed")
            log = g.read_logs(way)
            g.check_sound(check, log, way)
            totals[way] = g.check_counts(check, log, g.read_counts(way), way)
            check.fact(way, totals[way])
            if way == "preload":
                check.fact("schema", g.validate(check, log, way))
                check.fact("kernels_named", len({e.get("name") for e in log.of("kernel_event")}))
                mismatched = sum(e.get("occupancy_mismatch", 0) for e in log.of("session_end"))
                check.fact("occupancy_mismatch", mismatched)
        shown = totals.get("preload")
        if shown:
            check.expect(shown["kernels"] > 100, f"only {shown['kernels']} launches: the program did not do its work")
            check.key = (f"{shown['kernels']} launches ({shown['captured']} captured), {shown['graphs']} graph "
                         f"launches, as counted independently, {len(totals)} ways; schema: {check.facts.get('schema')}")
