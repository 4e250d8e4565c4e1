# One launch plan on this GPU and on the simulated one: the two logs, normalized, are equal.
# limit_s: 60
# parallel: 1
import difflib
import os

import gpu_check as g
import normalize_log

with g.Check() as check:
    player = g.need("PLAY", "gpuflight-play")
    simulator = g.need("SIM", "the simulated device")
    plan = os.path.join(g.tree(), "tests", "plans", "parity.json")
    if not os.path.exists(plan):
        raise g.Skip("tests/plans/parity.json is missing")
    real = g.start_preloaded("real", [player, plan], count=False).wait()
    # The simulated device is the board that the real one turned out to be.
    board = [e.get("name") or "" for e in g.read_logs("real").of("device_info")][:1]
    simulated = g.start_preloaded("simulated", [player, plan], count=False, extra={
        "LD_LIBRARY_PATH": simulator + os.pathsep + os.environ.get("LD_LIBRARY_PATH", ""), "GPUFLIGHT_SIM_PLAN": plan,
        "GPUFLIGHT_CUPTI": os.path.join(simulator, "libcupti.so.13"), "GPUFLIGHT_SIM_DEVICE": "".join(board)}).wait()
    if real.succeeded(check) & simulated.succeeded(check):
        logs = {way: g.read_logs(way) for way in ("real", "simulated")}
        for way, log in logs.items():
            g.check_sound(check, log, way)
        names = {way: [e.get("name") for e in log.of("device_info")] for way, log in logs.items()}
        check.fact("devices", names)
        lines = {way: normalize_log.normalize(log.events) for way, log in logs.items()}
        check.expect(lines["real"], "the plan left no events")
        delta = list(difflib.unified_diff(lines["simulated"], lines["real"], "simulated", "real", lineterm="", n=0))
        differ = [text for text in delta[2:] if not text.startswith("@@")]
        for text in differ:
            check.expect(False, text)
        for way in lines:
            with open(g.work(f"{way}.normalized.log"), "w") as out:
                out.write("\n".join(lines[way]) + "\n")
        check.key = f"{len(lines['real'])} events, {len(differ)} lines differ ({names['real']})"
