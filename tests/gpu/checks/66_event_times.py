# GPU times by events around every N-th launch that the hooks see: kernels of known length against the program's own
# events and against CUPTI's times of a second run; and what it costs a program that launches all the time.
# limit_s: 150
import os

import gpu_check as g

GOAL_PERCENT = 0.5
TOLERATED_NS, TOLERATED_PERCENT = 200, 1  # of what CUPTI says: clocks change between two runs


def run(check, label, start, *arguments, **variables):
    command = [g.program("event_times_cost"), *arguments] + (["--simulated"] if g.simulated() else [])
    started = start(label, command, count=False, limit_s=60, extra=variables).wait()
    if not started.succeeded(check):
        return None, None
    log = g.read_logs(label)
    g.check_sound(check, log, label)
    for path in log.paths:
        os.unlink(path)
    return g.json_lines(started.out), log


def durations(log, name):
    """Of a kernel's launches but the first: that pays for the loading of its module."""
    return [e for e in log.kernels() if e["name"] == name][1:]


def compare(check, said, by_events, by_cupti):
    """Each kernel's row of the table; where the two disagree, a failure."""
    rows = []
    for kernel in said:
        name = kernel["kernel"]
        timed = [e for e in durations(by_events, name) if e["duration_ns"] is not None]
        told = [e["duration_ns"] for e in durations(by_cupti, name) if e["duration_ns"] is not None]
        wanted = len([n for n in range(2, kernel["launches"] + 1) if (n - 2) % 10 == 0])
        check.expect_equal(len(timed), wanted, f"{name}: launches with a time by events")
        if not (timed and check.expect(told, f"{name}: CUPTI told no time")):
            continue
        check.expect(all(e["time_source"] == "events" and e["error_ns"] is not None for e in timed),
                     f"{name}: a time without its source or its error")
        cupti = g.median(told)
        upper = g.median([e["duration_ns"] for e in timed])
        error = g.median([e["error_ns"] for e in timed])
        room = TOLERATED_NS + cupti * TOLERATED_PERCENT / 100
        check.expect(upper >= cupti - room, f"{name}: {upper} ns by events, {cupti} by CUPTI: too short")
        check.expect(upper - error <= cupti + room, f"{name}: {upper} ns less at most {error} by events, {cupti} by CUPTI")
        rows.append({"kernel": name, "timed": len(timed), "events_ns": upper, "error_ns": error, "cupti_ns": cupti,
                     "own_mean_ns": kernel["own_mean_ns"]})
    return rows


with g.Check() as check:
    g.hooks()
    few, rounds = ("30", "4") if g.quick() else ("100", "60")
    times = ["--launches", few, "--rounds", "0"]
    said, events = run(check, "by_events", g.start_interposed, *times, GPUFLIGHT_EVENT_TIMES="10")
    _, cupti = run(check, "by_cupti", g.start_preloaded, *times, GPUFLIGHT_TIMING="all", GPUFLIGHT_CAPTURE="cupti")
    rows = compare(check, said, events, cupti) if said and cupti else []
    check.fact("times", rows)
    # Marks stay out of a stream of programmatic launches as events do: they are not to count as events' cost.
    batch = ["--launches", "0", "--rounds", rounds, "--batch", "2000" if g.quick() else "10000"]
    found, log = run(check, "effect", g.start_interposed, *batch, GPUFLIGHT_EVENT_TIMES="1000", GPUFLIGHT_MARKERS="off")
    effects = [one for one in found or [] if "empty_percent" in one]
    if rows and check.expect(effects, "effect: no result"):
        effect = check.fact("effect", effects[0])
        end = check.fact("session_end", log.of("session_end")[-1])
        check.expect(end["event_timed"] > 0, "effect: no launch was timed")
        check.fact("event_every", end["event_every"])
        cost = end["event_cost_ns"] / max(1, end["event_timed"])
        for name in ("empty", "work_10us"):
            percent = effect[f"{name}_percent"]["median"]
            check.expect(percent < GOAL_PERCENT or g.simulated(), f"{name}: {percent:+.2f} %, the goal is below "
                         f"{GOAL_PERCENT}")
        check.key = (f"20 us: {rows[0]['events_ns']:.0f} ns (error {rows[0]['error_ns']:.0f}), CUPTI "
                     f"{rows[0]['cupti_ns']:.0f}; empty {effect['empty_percent']['median']:+.2f} %, 10 us "
                     f"{effect['work_10us_percent']['median']:+.2f} %")
        check.markdown = "\n".join(
            ["## GPU times by events", "",
             "`event_times_cost`, preloaded with the hooks. Kernels of known length, every 10th timed by a pair of events, "
             "median ns; idle: the stream is idle before each launch. CUPTI: of a second run. Own: the program's events "
             "around all of them, per launch.", "",
             "| kernel | timed | by events | error at most | CUPTI | own |", "| --- | --- | --- | --- | --- | --- |"] +
            [f"| {r['kernel']} | {r['timed']} | {r['events_ns']:.0f} | {r['error_ns']:.0f} | {r['cupti_ns']:.0f} | "
             f"{r['own_mean_ns']:.0f} |" for r in rows] +
            ["", f"Every 1000th launch timed, against a stream beside it that is never timed, batches in turns in one "
             f"process, wall time, median (quartiles): " + "; ".join(
                 f"{label} {effect[f'{name}_ns']:.0f} ns a launch, {p['median']:+.2f} % ({p['q1']:+.2f} to {p['q3']:+.2f})"
                 for name, label, p in (("empty", "empty kernel", effect["empty_percent"]),
                                        ("work_10us", "10 us", effect["work_10us_percent"]))) +
             f". A timed launch costs the host {cost:.0f} ns more."])
