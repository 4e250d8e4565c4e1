# Every example under `gpuflight run`: it passes its own check, and the log counts its launches by mangled name.
# limit_s: 120
# parallel: 1
import collections
import os

import gpu_check as g

KEY_WORDS = ("LAUNCHES", "CAPTURED", "GRAPH_NODE_LAUNCHES")


def tables(text):
    found = {}
    for line in text.splitlines():
        word, _, rest = line.partition(" ")
        if word in KEY_WORDS and rest.startswith("{"):
            found[word] = g.json.loads(rest)
    return found


with g.Check() as check:
    folder = g.need("EXAMPLES", "the folder of examples")
    built = sorted(name for name in os.listdir(folder) if os.path.isfile(os.path.join(folder, name)) and
                   os.access(os.path.join(folder, name), os.X_OK))
    if not built:
        raise g.Skip("no example is built")
    # api_scope is linked to the library itself: the whole tree builds it, the GPU programs' own project cannot.
    sources = {os.path.splitext(f)[0] for f in os.listdir(os.path.join(g.tree(), "examples")) if f.endswith(".cu")}
    check.expect_equal(sorted(sources - set(built) - {"api_scope"}), [], "examples not built")
    start = g.start_under_run if g.setting("CLI") else g.start_preloaded
    # One is built for the shared runtime.
    search = g.toolkit_search()
    launches = 0
    # A few at once: they are small, but some measure themselves.
    for i in range(0, len(built), 4):
        runs = {name: start(name, [os.path.join(folder, name), "--quick"], extra=search, limit_s=60)
                for name in built[i:i + 4]}
        for name, started in runs.items():
            if not started.wait().succeeded(check):
                continue
            said = tables(started.out)
            if not check.expect("LAUNCHES" in said, f"{name}: no LAUNCHES line"):
                continue
            log = g.read_logs(name)
            g.check_sound(check, log, name)
            g.check_counts(check, log, g.read_counts(name), name)
            run = collections.Counter(e["name"] for e in log.of("kernel_event")
                                      if not g.is_captured(e) and not g.is_failed(e))
            captured = collections.Counter(e["name"] for e in log.of("kernel_event") if g.is_captured(e))
            check.expect_equal(dict(run), said["LAUNCHES"], f"{name}: launches by name")
            if "CAPTURED" in said:
                check.expect_equal(dict(captured), said["CAPTURED"], f"{name}: captured launches by name")
            launches += sum(run.values())
            if name == "block_reduce_limiting":
                limiters = {e.get("limiting_resource") for e in log.of("kernel_event")}
                check.expect_equal(limiters, {"shared_mem"}, f"{name}: limiting_resource")
    check.fact("examples", built)
    check.fact("launches", launches)
    check.key = f"{len(built)} examples, {launches} launches, each as the program counted them"
