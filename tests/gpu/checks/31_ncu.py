# Twenty random configurations and the barrier family under Nsight Compute: its Block Limit rows against the log's.
# limit_s: 120
import shutil

import gpu_check as g
import ncu_compare

with g.Check() as check:
    ncu = shutil.which("ncu") or next((p for p in ("/usr/local/cuda/bin/ncu",) if g.os.path.exists(p)), None)
    if ncu is None:
        raise g.Skip("ncu is not installed here")
    sweep = [g.program("occupancy_sweep"), "--family", "barriers", "--count", "20", "--seed", "5", "--no-clusters"]
    started = g.start_preloaded("recorded", sweep, count=False).wait()
    started.succeeded(check)
    log = g.read_logs("recorded")
    common = [ncu, "--csv", "--page", "raw", "--clock-control", "none", "--cache-control", "none",
              "--kernel-name-base", "mangled", "--target-processes", "all"]
    metrics = ",".join(ncu_compare.ROWS.values())
    profiled, kernels = None, []
    # The section also reads two counters, which some machines forbid; the limits alone need none.
    for label, choice in (("section", ["--section", "Occupancy"]), ("metrics", ["--metrics", metrics])):
        profiled = g.start_plain("ncu_" + label, common + choice + sweep, limit_s=55).wait()
        kernels = ncu_compare.read_raw_page(profiled.out)
        if profiled.code == 0 and kernels and kernels[0]["limits"]["registers"] is not None:
            check.fact("ncu", label)
            break
    if check.expect(kernels, f"ncu gave no table (exit {profiled.code}): {(profiled.out + profiled.err)[-300:]}"):
        events = [e for e in log.kernels() if not g.is_failed(e)]
        failures, facts = ncu_compare.compare(kernels, events)
        for failure in failures:
            check.expect(False, failure)
        check.facts.update(facts)
        check.expect(facts["kernels"] >= 20, f"only {facts['kernels']} kernels compared")
        check.key = (f"{facts['kernels']} kernels, {facts['rows_equal']}/{facts['rows_compared']} Block Limit rows "
                     f"equal, {facts['shared_not_binding_differs']} shared memory rows differ where they do not bind, "
                     f"barriers bind in {facts['barriers_bind']}, occupancy equal in {facts['occupancy_equal']}")
