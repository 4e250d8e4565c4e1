# Host time of a launch: bare, with an empty CUPTI callback, recorded, paused; paired in one process. Details on and off,
# one thread and sixteen.
# limit_s: 150
import shutil

import gpu_check as g

GOAL_OVER_CALLBACK_NS = 100
GOAL_PERCENT_OF_BARE = 15
GOAL_PAUSED_PERCENT = 2


def measure(check, label, **options):
    command = [g.program("launch_cost"), "--lib", g.library(), "--cupti", g.need("CUPTI", "libcupti"), "--log",
               g.work(label, "cost.%p.ndjson")]
    command += ["--simulated"] if g.simulated() else []
    for name, value in options.items():
        command += ["--" + name, str(value)]
    # GPU times have a check of their own, timing_cost.
    started = g.start_plain(label, command, extra={"GPUFLIGHT_TIMING": "off"}, limit_s=60).wait()
    shutil.rmtree(g.work(label), ignore_errors=True)  # hundreds of MB of log
    started.succeeded(check)
    found = g.json_lines(started.out, "gpuflight_ns")
    if not check.expect(found, f"{label}: no result: {started.err[-200:]}"):
        return None
    one = check.fact(label, found[0])
    check.expect_equal(one["lost"], 0, f"{label}: lost")
    check.expect(one["recorded_launches"] <= one["seen"], f"{label}: {one['seen']} events seen of "
                 f"{one['recorded_launches']} launches: the recorder was not on in its rounds")
    check.expect(one["seen"] < one["recorded_launches"] * 1.01, f"{label}: {one['seen']} events seen of "
                 f"{one['recorded_launches']} launches: the recorder was on in rounds not its own")
    check.expect(one["empty_callbacks_seen"] > one["recorded_launches"], f"{label}: the empty callback did not run")
    return one


def row(label, one):
    def cell(name, digits=0):
        s = one[name]
        return f"{s['median']:.{digits}f} ({s['q1']:.{digits}f} to {s['q3']:.{digits}f})"
    return (f"| {label} | {cell('bare_ns')} | {cell('empty_minus_bare_ns')} | {cell('gpuflight_minus_empty_ns')} | "
            f"{cell('gpuflight_minus_empty_percent_of_bare', 1)} | {cell('gpuflight_minus_bare_percent_of_bare', 1)} | "
            f"{cell('paused_percent_of_bare', 1)} |")


with g.Check() as check:
    rounds, launches = (8, 5000) if g.quick() else (160, 5000)
    runs = {
        "details on, 1 thread": measure(check, "details_on", details="on", rounds=rounds, launches=launches),
        "details off, 1 thread": measure(check, "details_off", details="off", rounds=rounds, launches=launches),
        "details on, 16 threads": measure(check, "threads_16", details="on", threads=16, rounds=max(8, rounds // 8),
                                          launches=2500),
    }
    done = {label: one for label, one in runs.items() if one}
    main = done.get("details on, 1 thread")
    if main:
        over = main["gpuflight_minus_empty_ns"]["median"]
        share = main["gpuflight_minus_bare_percent_of_bare"]["median"]
        own_share = main["gpuflight_minus_empty_percent_of_bare"]["median"]
        check.expect(over <= GOAL_OVER_CALLBACK_NS,
                     f"{over} ns over an empty callback, the goal is {GOAL_OVER_CALLBACK_NS}")
        check.expect(share < GOAL_PERCENT_OF_BARE,
                     f"{share} % of a bare launch in all, the goal is under {GOAL_PERCENT_OF_BARE}")
        paused = main["paused_percent_of_bare"]["median"]
        check.expect(paused < GOAL_PAUSED_PERCENT, f"paused, a launch costs {paused} % more than a bare one")
        callback, bare = main["empty_minus_bare_ns"]["median"], main["bare_ns"]["median"]
        check.key = (f"+{over:.0f} ns over an empty callback ({callback:.0f} ns); of a bare launch ({bare:.0f} ns): "
                     f"ours {own_share:.1f} %, with the callback {share:.1f} %, paused {paused:+.1f} %")
    check.markdown = "\n".join(
        ["## Cost of a launch", "",
         f"`launch_cost`, empty kernel, {rounds} rounds of {launches} launches each in turn in one process, paired; ns "
         "on the host, median (quartiles); launches only, a synchronise after every 500 is not timed.", "",
         "| | bare | + empty CUPTI callback | + gpuflight over that | that, % of bare | both, % of bare | paused, % of "
         "bare |", "| --- | --- | --- | --- | --- | --- | --- |"] + [row(label, one) for label, one in done.items()])
