# A loop of launches under a budget for the recorder's own cost: which levels it goes through, every launch counted, what
# it costs in the end against a bare run; and a budget below the floor, which is said.
# limit_s: 150
import json
import os
import subprocess

import gpu_check as g

BUDGETS = ("1%", "0.1%", "0.001%")


def run_once(check, label, budget, load):
    command = [g.program("budget_host"), *load] + (["--simulated"] if g.simulated() else [])
    if budget is None:
        started = g.start_plain(label, command, limit_s=60).wait()
    else:
        started = g.start_under_run(label, command, count=False, options=("--budget", budget), limit_s=60,
                                    extra={"GPUFLIGHT_EXIT_TIMEOUT_MS": "10000"}).wait()
    found = g.json_lines(started.out, "ns_by_second")
    if not (started.succeeded(check) and check.expect(found, f"{label}: no result: {started.err[-200:]}")):
        return None
    said = found[0]
    # By the last seconds: the levels have been found by then.
    said["settled_ns"] = min(said["ns_by_second"][-2:])
    return said if budget is None else look_at_log(check, label, budget, said, started.err)


def look_at_log(check, label, budget, said, err):
    log = g.read_logs(label)
    if not g.simulated():  # whose launches come faster than any recorder could take them
        g.check_sound(check, log, label)
    changes = log.of("level_event")
    if not check.expect(changes and changes[-1]["reason"] == "end", f"{label}: no level_event at the end"):
        return None
    end = log.of("session_end")[-1]
    lines = sum(1 for e in log.kernels() if not e.get("unlaunched"))
    summed = sum(s["count"] for s in log.of("kernel_summary") if not s["session"])
    lost = g.lost_total(end)
    check.expect_equal((end["launches"] + lost, lines + summed + lost), (said["launches"],) * 2,
                       f"{label}: launches, and told")
    told = subprocess.run([g.command_line(), "report", "--json", *log.paths], capture_output=True, text=True)
    if check.expect_equal(told.returncode, 0, f"{label}: report"):
        check.expect_equal(json.loads(told.stdout)["totals"]["launches"], said["launches"] - lost,
                           f"{label}: launches in report")
    notices = [n for n in log.of("notice_event") if n["code"] == "budget_unattainable"]
    check.expect(len(notices) <= 1, f"{label}: said {len(notices)} times that it is unattainable")
    check.expect_equal("unattainable, floor" in err, bool(notices), f"{label}: told by run")
    steps = [c for c in changes if c["reason"] != "end"]
    said.update(
        steps=[f"{c['to']} after {c['time_ns'] / 1e9:.1f} s ({c['share_percent']:.2f} %)" for c in steps],
        levels=[c["to"] for c in steps], over=[c["share_percent"] for c in steps if c["reason"] == "over_budget"],
        mean_percent=changes[-1]["share_percent"], unattainable=notices[0]["message"] if notices else None,
        capture=log.of("session_start")[0]["capture"], added_ns=end["added_ns_per_launch"])
    check.expect(all(share > float(budget.rstrip("%")) for share in said["over"]), f"{label}: a step down without need")
    for path in log.paths:
        os.unlink(path)
    return said


with g.Check() as check:
    seconds = 6 if g.quick() else 8
    rounds = 1 if g.quick() else 2
    runs = {way: [] for way in (None, *BUDGETS)}
    for i in range(rounds):
        for way in (list(runs) if i % 2 == 0 else list(reversed(runs))):
            # Long enough to go up again under the first; the others need not.
            idle = "8" if way == BUDGETS[0] else "0"
            name = "bare" if way is None else "budget_" + way.rstrip("%").replace(".", "_")
            one = run_once(check, f"{name}_{i}", way, ["--seconds", str(seconds), "--idle-seconds", idle])
            runs[way] += [one] if one else []
    if all(runs.values()):
        check.fact("runs", {way or "bare": ones for way, ones in runs.items()})
        bare = min(one["settled_ns"] for one in runs[None])
        percent = {way: 100 * (min(one["settled_ns"] for one in runs[way]) / bare - 1) for way in BUDGETS}
        check.fact("settled_percent", percent)
        for way in BUDGETS[1:]:
            for one in runs[way]:
                check.expect(one["levels"], f"{way}: a loop of launches stayed at level events")
        for one in runs[BUDGETS[-1]]:
            check.expect(one["unattainable"], f"{BUDGETS[-1]}: not said to be unattainable")
        for one in runs[BUDGETS[0]]:
            if one["levels"] and not one["unattainable"]:
                check.expect(min(one["over"]) > 1, "a step down without need")
        check.key = "; ".join(f"{way}: {' > '.join(['events', *runs[way][0]['levels']])}, in the end {percent[way]:+.1f} %"
                              for way in BUDGETS)
        table = [f"| {way} | {one['capture']} | {'; '.join(one['steps']) or 'none'} | {one['mean_percent']:.3f} | "
                 f"{one['settled_ns']:.0f} | {one['unattainable'] or ''} |" for way in BUDGETS for one in runs[way]]
        check.markdown = "\n".join([
            "## A budget for the recorder's own cost", "",
            f"`budget_host` under `gpuflight run --budget`: launches for {seconds} s, processes in turns; bare {bare:.0f} ns "
            "a launch in its last seconds (the least). Every launch was counted at each level.", "",
            "| budget | launches seen by | changes, and what it cost before each | mean % by the recorder | ns a launch in "
            "the last seconds | said |", "| --- | --- | --- | --- | --- | --- |", *table, "",
            "In the end over bare, by the least: " + ", ".join(f"{way} {percent[way]:+.1f} %" for way in BUDGETS) + "."])
