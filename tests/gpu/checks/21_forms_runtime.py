# The runtime's launches, with static and shared cudart and with per-thread default streams: counts by mangled name.
# limit_s: 60
# parallel: 1
import collections

import gpu_check as g

WAYS = ("preload", "injection")
with g.Check() as check:
    runs = {}
    for build in ("static", "shared", "ptds"):
        command = [g.program("forms_runtime_" + build)]
        runs[build, "preload"] = g.start_preloaded(build + "_preload", command, extra=g.toolkit_search())
        runs[build, "injection"] = g.start_injected(build + "_injection", command, extra=g.toolkit_search())
    seen = {}
    for (build, way), started in runs.items():
        label = f"{build}_{way}"
        if not started.wait().succeeded(check):
            continue
        lines = [line for line in started.out.splitlines() if line.startswith("LAUNCHES ")]
        wanted = g.json.loads(lines[-1][len("LAUNCHES "):])
        log = g.read_logs(label)
        g.check_sound(check, log, label)
        got = collections.Counter(e["name"] for e in log.kernels() if not g.is_failed(e))
        check.expect_equal(dict(got), wanted, label + ": launches by name")
        counts = g.read_counts(label)
        g.check_counts(check, log, counts, label)
        if counts:
            forms = {form: n["launches"] for form, n in counts["forms"].items() if n["launches"]}
            seen[label] = check.fact(label, forms)
            if build == "ptds":
                per_thread = any(form.endswith("_ptsz") for form in forms)
                check.expect(per_thread, f"{label}: no per-thread form was used: {forms}")
            streams = {e["stream"] for e in log.kernels() if "threaded" in e["name"]}
            if build == "ptds":
                check.expect_equal(len(streams), 4, f"{label}: streams of four threads' default streams")
    check.key = "static, shared and per-thread cudart; forms used: " + ", ".join(
        sorted({form for forms in seen.values() for form in forms}))
