# Programs that go wrong on the GPU (incident_host.cu), with and without the recorder: they behave the same, and the
# recorder names the kernel.
# limit_s: 120
import gpu_check as g

HANG_AFTER_MS = 1500
MODES = {"clean": [], "illegal": [], "assert": [], "spin": ["4"], "hang": ["4"]}


def check_error(check, mode, log, code, kernel):
    errors = log.of("error_event")
    if not check.expect_equal(len(errors), 1, f"{mode}: error_event lines"):
        return
    error = errors[0]
    check.expect_equal(error["code"], code, f"{mode}: code")
    culprit = error["culprit"] or {}
    check.expect(kernel in (culprit.get("name") or ""), f"{mode}: culprit {culprit.get('name')!r}, expected {kernel}")
    check.expect_equal(error["confidence"], "exact", f"{mode}: confidence")
    failed = [e for e in log.kernels() if e["launch_ns"] > error["time_ns"]]
    check.expect(failed and all(g.is_failed(e) for e in failed), f"{mode}: launches after the error are not failed")
    check.fact(mode, {"culprit": culprit.get("name"), "call": error["call"], "in_flight": error["in_flight"]})


def check_hang(check, mode, log, ends):
    hangs = log.of("hang_event")
    phases = [e["phase"] for e in hangs]
    if not check.expect_equal(phases, ["begin", "end"] if ends else ["begin"], f"{mode}: hang_event phases"):
        return
    begin = hangs[0]
    first = (begin["launches"] or [{}])[0]
    check.expect("spin" in (first.get("name") or ""), f"{mode}: hangs in {first.get('name')!r}")
    check.expect(begin["count"] >= 6, f"{mode}: {begin['count']} launches pending, at least 6 are")
    calls = [b["call"] for b in begin["blocked"]]
    check.expect(any("Synchronize" in call for call in calls), f"{mode}: blocked calls {calls}")
    after = begin["hung_ns"] / 1e6
    check.expect(HANG_AFTER_MS <= after < HANG_AFTER_MS + 1000, f"{mode}: said after {after:.0f} ms")
    if ends:
        check.expect(hangs[1]["hung_ns"] >= begin["hung_ns"], f"{mode}: hung for {hangs[1]['hung_ns'] / 1e6:.0f} ms")
    check.fact(mode, {"said_after_ms": after, "kernel": first.get("name"), "blocked": begin["blocked"],
                      "hung_ms": hangs[-1]["hung_ns"] / 1e6})


with g.Check() as check:
    program = g.program("incident_host")
    seconds = {}
    for mode, arguments in MODES.items():
        command = [program, mode, *arguments]
        options = {"GPUFLIGHT_HANG_AFTER": f"{HANG_AFTER_MS}ms"}
        # One after the other: a kernel that does not end takes the GPU's time from every other process.
        ended = []
        bare = g.start_plain(mode + ".bare", command, limit_s=20).wait()
        ended.append(g.time.monotonic() - bare.started)
        recorded = g.start_preloaded(mode, command, count=False, extra=options, limit_s=20).wait()
        ended.append(g.time.monotonic() - recorded.started)
        seconds[mode] = [round(s, 2) for s in ended]
        check.expect_equal(recorded.code, bare.code, f"{mode}: exit code")
        check.expect_equal(recorded.out, bare.out, f"{mode}: output")
        check.expect_equal(recorded.err, bare.err, f"{mode}: stderr")
        check.expect(ended[1] - ended[0] < 2, f"{mode}: {ended[1]:.1f} s with the recorder, {ended[0]:.1f} s without")
        log = g.read_logs(mode)
        g.check_sound(check, log, mode)
        if mode == "clean":
            check.expect_equal(len(log.of("error_event", "hang_event")), 0, "clean: error and hang lines")
        elif mode in ("illegal", "assert"):
            check_error(check, mode, log, {"illegal": 700, "assert": 710}[mode],
                        {"illegal": "bad_address", "assert": "failing_assert"}[mode])
        else:
            check_hang(check, mode, log, ends=mode == "spin")
    check.fact("seconds_bare_and_recorded", seconds)
    check.key = "illegal address, assert, spin and hang: same output and exit, kernel named"
    check.markdown = "\n".join(
        ["## Errors and hangs", "", "`incident_host` without and with the recorder, the same output and exit code; wall "
         "seconds of each:", ""] + [f"- {mode}: {s[0]} and {s[1]}" for mode, s in seconds.items()])
