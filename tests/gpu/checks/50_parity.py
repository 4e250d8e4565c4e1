# Launch plans on this GPU, their kernels generated, and on the simulated one: the two logs, normalized, are equal.
# limit_s: 110
# parallel: 1
import difflib
import json
import os

import gpu_check as g
import normalize_log
import plan_kernels

PLANS = ("parity", "article_sm86", "every_form", "handle_reuse")


def kernels_of(name):
    """Folder with the plan's cubins and its adjusted plan.json: made by pack.sh, or now."""
    packed = os.path.join(g.setting("PROGRAMS"), "plans", name)
    if os.path.exists(os.path.join(packed, "plan.json")):
        return packed
    if not g.setting("NVCC"):
        raise g.Skip("no nvcc to generate the kernels with")
    with open(os.path.join(g.tree(), "tests", "plans", name + ".json"), encoding="utf-8") as f:
        plan_kernels.generate(json.load(f), g.work("kernels", name), g.setting("NVCC"), g.setting("ARCH", "sm_90"))
    return g.work("kernels", name)


def play(check, name, player, simulator):
    """Number of events and of lines that differ."""
    folder = kernels_of(name)
    plan = os.path.join(folder, "plan.json")
    # A dry run has the simulated device on both sides, which takes no cubins.
    cubins = [] if g.simulated() else ["--kernels", folder]
    real = g.start_preloaded(name + "_real", [player, *cubins, plan], count=False, limit_s=40).wait()
    log = {"real": g.read_logs(name + "_real")}
    # The simulated device is the board that the real one turned out to be.
    board = [e.get("name") or "" for e in log["real"].of("device_info")][:1]
    simulated = g.start_preloaded(name + "_simulated", [player, plan], count=False, limit_s=40, extra={
        "LD_LIBRARY_PATH": simulator + os.pathsep + os.environ.get("LD_LIBRARY_PATH", ""), "GPUFLIGHT_SIM_PLAN": plan,
        "GPUFLIGHT_CUPTI": os.path.join(simulator, "libcupti.so.13"), "GPUFLIGHT_SIM_DEVICE": "".join(board)}).wait()
    if not (real.succeeded(check) & simulated.succeeded(check)):
        return 0, 0
    log["simulated"] = g.read_logs(name + "_simulated")
    lines = {}
    for way in log:
        g.check_sound(check, log[way], f"{name}, {way}")
        lines[way] = normalize_log.normalize(log[way].events)
        with open(g.work(f"{name}_{way}.normalized.log"), "w") as out:
            out.write("\n".join(lines[way]) + "\n")
    check.expect(len(log["real"].of("kernel_event")) > 0, f"{name}: the plan left no kernel_event")
    delta = list(difflib.unified_diff(lines["simulated"], lines["real"], "simulated", "real", lineterm="", n=0))
    differ = [text for text in delta[2:] if not text.startswith("@@")]
    for text in differ:
        check.expect(False, f"{name}: {text}")
    return len(lines["real"]), len(differ)


with g.Check() as check:
    player, simulator = g.need("PLAY", "gpuflight-play"), g.need("SIM", "the simulated device")
    plans = [p for p in PLANS if os.path.exists(os.path.join(g.tree(), "tests", "plans", p + ".json"))]
    if not plans:
        raise g.Skip("there are no plans in tests/plans")
    shown = []
    for name in plans:
        events, differ = check.fact(name, play(check, name, player, simulator))
        shown.append(f"{name} {events} events, {differ} differ")
    check.key = "; ".join(shown)
