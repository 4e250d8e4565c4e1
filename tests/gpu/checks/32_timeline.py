# 1,000,000 kernels from 16 threads in 32 streams and 10,000 replays of a graph of 100: each in the log exactly once, in
# its time and order; long kernels as events measure them; what it takes of both memories.
# limit_s: 110
import os

import gpu_check as g
import timeline_compare as t

GOAL_SPIN_PERCENT = 1.0


def run(check, label, start, load, **options):
    command = [g.program("timeline_host"), *load] + (["--simulated"] if g.simulated() else [])
    started = start(label, command, limit_s=80, **options).wait()
    said = g.json_lines(started.out, "spin_event_ms")
    ok = started.succeeded(check) and check.expect(said, f"{label}: no result")
    return check.fact(label, said[0]) if ok else None


def compare(check, log, said):
    for failure in t.compare_presence(log, said["counts"]):
        check.expect(False, failure)
    for failure in t.compare_replays(log.named("timeline_node"), said["replays"], said["nodes"]):
        check.expect(False, failure)
    t0 = log.of("session_start")[0]["t0_monotonic_ns"]
    failures, facts = t.compare_times(log.kernels, said["begin_ns"] - t0, said["end_ns"] - t0)
    order_failures, order_facts = t.compare_order(log.kernels)
    for failure in failures + order_failures:
        check.expect(False, failure)
    check.fact("times", {**facts, **order_facts, "late_times": log.late_times})
    spins = t.timed(log.named("timeline_spin"))
    off = t.off_percent(sum(k.end_ns - k.start_ns for k in spins) / 1e6, said["spin_event_ms"])
    check.fact("spin_off_percent", round(off, 4))
    check.expect(abs(off) <= GOAL_SPIN_PERCENT, f"long kernels: {off:+.3f} % against their events")
    return off


with g.Check() as check:
    load = ["--launches", "102400" if g.quick() else "1000000", "--replays", "1000" if g.quick() else "10000"]
    plain = run(check, "plain", g.start_plain, load)
    # What is asked here is whether all is there, not how long a program may wait at its exit.
    recorded = run(check, "recorded", g.start_preloaded, load, count=False,
                   extra={"GPUFLIGHT_TIMING": "all", "GPUFLIGHT_EXIT_TIMEOUT_MS": "30000"})
    if plain and recorded:
        paths = g.log_paths("recorded")
        if check.expect_equal(len(paths), 1, "logs"):
            log = t.TimedLog(paths[0], recorded["counts"])
            check.fact("log_bytes", os.path.getsize(paths[0]))
            os.unlink(paths[0])
            check.expect_equal(log.bad_lines, 0, "lines that are not JSON")
            ends = log.of("session_end")
            if check.expect(ends and log.of("session_start"), "no session_end or session_start"):
                end = check.fact("session_end", ends[-1])
                check.expect_equal(g.lost_total(end), 0, f"lost ({end['lost_by_cause']})")
                # Lines that had to be written without times, whether these came later or not.
                without = len(log.kernels) - len(t.timed(log.kernels)) + log.late_times
                check.expect(end["null_time"] >= without, f"{without} lines without times, the ledger tells of "
                             f"{end['null_time']}")
                check.expect_equal(end["seen"], end["written"] + end["summarised"] + end["pending"] + end["lost"],
                                   "seen against written + summarised + pending + lost")
                off = compare(check, log, recorded)
                gpu_mb = (plain["free_at_end"] - recorded["free_at_end"]) / 2**20
                first_mb = (plain["free_at_start"] - recorded["free_at_start"]) / 2**20
                cpu = end["recorder_cpu_ns"] / max(1, end["seen"])
                check.fact("gpu_memory_mb", {"after the first module": first_mb, "at the end": gpu_mb})
                check.fact("recorder_cpu_ns_per_event", round(cpu, 1))
                notices = [n["message"] for n in log.of("notice_event")]
                check.fact("notices", notices[:20])
                seconds = [(r["short_ns"] + r["replays_ns"]) / 1e9 for r in (plain, recorded)]
                rss = [r["peak_rss_kb"] / 1024 for r in (plain, recorded)]
                check.key = (f"{len(log.kernels)} kernels, {len(t.timed(log.kernels))} with times; long ones "
                             f"{off:+.2f} % against events; peak {rss[1]:.0f} MB (plain {rss[0]:.0f}), on the GPU "
                             f"{gpu_mb:+.0f} MB")
                nodes = recorded["counts"]["timeline_node"]
                check.markdown = "\n".join(
                    ["## A million kernels", "",
                     f"`timeline_host`: {nodes} kernels in {recorded['replays']} replays of a graph of "
                     f"{recorded['nodes']}, after {sum(recorded['counts'].values()) - nodes} launches from 16 "
                     f"threads in 32 streams; in the log {len(log.kernels)}, with times "
                     f"{len(t.timed(log.kernels))}.", "",
                     "| | plain | recorded |", "| --- | --- | --- |",
                     f"| launches and replays, s | {seconds[0]:.2f} | {seconds[1]:.2f} |",
                     f"| peak resident memory, MB | {rss[0]:.0f} | {rss[1]:.0f} |",
                     f"| GPU memory taken more, at the start and at the end, MB | | {first_mb:.1f}, {gpu_mb:.1f} |",
                     f"| lines written before their times were known | | {log.late_times} |",
                     f"| long kernels against their events | | {off:+.3f} % |",
                     f"| recorder's threads, ns of CPU per event | | {cpu:.0f} |"])
