# Every launch form of the driver API, refused launches, captures, reused handles: the log against the program's own
# list of calls and against the independent counter; preloaded and injected by the variable alone.
# limit_s: 90
# parallel: 1
import forms_compare
import gpu_check as g

with g.Check() as check:
    command = [g.program("forms"), "--rounds", "60" if g.quick() else "200"]
    command += ["--simulated"] if g.simulated() else []
    runs = {"preload": g.start_preloaded("preload", command), "injection": g.start_injected("injection", command)}
    if g.setting("CLI"):
        runs["run"] = g.start_under_run("run", command)
    for way, started in runs.items():
        if not started.wait().succeeded(check):
            continue
        log = g.read_logs(way)
        g.check_sound(check, log, way)
        failures, facts = forms_compare.compare(g.json_lines(started.out), log)
        for failure in failures:
            check.expect(False, f"{way}: {failure}")
        counted = g.check_counts(check, log, g.read_counts(way), way)
        check.fact(way, facts)
        if way == "preload":
            check.fact("schema", g.validate(check, log, way))
            check.fact("counter", g.read_counts(way))
            absent = f"; not in this driver: {', '.join(facts['absent'])}" if facts["absent"] else ""
            check.key = (f"{facts['equal']} of {facts['calls']} calls as made, {len(facts['forms'])} forms, "
                         f"{facts['refused']} refused, counted {counted}{absent}")
