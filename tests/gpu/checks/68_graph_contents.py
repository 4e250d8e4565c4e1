# What graphs run, as the log tells it by graph_info and graph_kernel: as the program made, updated and switched them,
# under both sources of launches; the report's kernels are nodes times launches; what reading it adds to instantiating.
# limit_s: 90
import collections
import json
import subprocess

import gpu_check as g


def command():
    return [g.program("graph_contents"), *(["--rounds", "5"] if g.quick() else []),
            *(["--simulated"] if g.simulated() else [])]


def contents_of(log):
    kernels = collections.defaultdict(dict)
    for line in log.of("graph_kernel"):
        kernels[line["contents"]][f"{line['name']} {line['grid']} {line['block']}"] = line["count"]
    return kernels


def reported(check, label):
    done = subprocess.run([g.command_line(), "report", "--json", *g.log_paths(label)], capture_output=True, text=True)
    if not check.expect(done.returncode == 0, f"{label}: report: {done.stderr[-200:]}"):
        return {}
    return {row["label"]: row["launches"] for row in json.loads(done.stdout)["groups"] if row["launches"]}


def check_run(check, label, start, **options):
    started = start(label, command(), count=False, limit_s=60, **options).wait()
    said = g.json_lines(started.out, "runs")
    if not (started.succeeded(check) and check.expect(said, f"{label}: no result")):
        return None
    log = g.read_logs(label)
    g.check_sound(check, log, label)
    contents = contents_of(log)
    got = [contents[e["contents"]] if e["contents"] is not None else None
           for e in sorted(log.graph_launches(), key=lambda e: e["launch_ns"])]
    wanted = [run["kernels"] for run in said[0]["runs"] for _ in range(run["times"])]
    wrong = [i for i, pair in enumerate(zip(got, wanted)) if pair[0] != pair[1]]
    check.expect_equal((len(got), wrong[:5]), (len(wanted), []), f"{label}: launches, and those with other contents")
    if wrong:
        check.fact(label + "_first_wrong", {"got": got[wrong[0]], "wanted": wanted[wrong[0]]})
    unknown = [k["name"] for k in log.of("graph_kernel") if k["occupancy"] is None]
    check.expect_equal(unknown, [], f"{label}: kernels of graphs without occupancy")
    totals = collections.Counter()
    for kernels in wanted:
        for kernel, count in kernels.items():
            totals[kernel.split(" ")[0]] += count
    check.expect_equal(reported(check, label), dict(totals), f"{label}: kernels of the report")
    end = log.of("session_end")[-1]
    told = {"replayed": end["replayed_kernels"], "by_the_gpu": end["graph_kernels"]}
    check.expect_equal(sum(told.values()), sum(totals.values()), f"{label}: kernels counted at the end")
    return check.fact(label, {**told, "graph_infos": len({i["contents"] for i in log.of("graph_info")}),
                              "launches": len(got), "instantiate_us": said[0]["instantiate_ns"] / 1000,
                              "update_us": said[0]["update_ns"] / 1000})


with g.Check() as check:
    g.hooks()
    plain = g.start_plain("plain", command(), limit_s=60).wait()
    bare = g.json_lines(plain.out, "instantiate_ns")
    plain.succeeded(check)
    runs = {
        "interposed": check_run(check, "interposed", g.start_interposed),
        "cupti_untimed": check_run(check, "cupti_untimed", g.start_preloaded, extra={"GPUFLIGHT_TIMING": "off"}),
        "cupti": check_run(check, "cupti", g.start_preloaded, extra={"GPUFLIGHT_TIMING": "all"}),
    }
    if all(runs.values()) and check.expect(bare, "plain: no result"):
        bare_us, update_us = bare[0]["instantiate_ns"] / 1000, bare[0]["update_ns"] / 1000
        check.fact("bare", {"instantiate_us": bare_us, "update_us": update_us})
        nodes = bare[0]["nodes"]
        added = {label: (run["instantiate_us"] - bare_us) * 1000 / nodes for label, run in runs.items()}
        check.key = (f"contents as made, {runs['interposed']['launches']} launches, "
                     f"{runs['interposed']['graph_infos']} contents; instantiating {nodes} nodes "
                     f"{bare_us:.0f} us bare, + "
                     + ", ".join(f"{label} {ns:.0f}" for label, ns in added.items()) + " ns a node")
        check.markdown = ("## What graphs run\n\nContents of every launch as the program made them. Instantiating a "
                          f"graph of {nodes} kernel nodes, us (median): bare {bare_us:.0f}; " +
                          "; ".join(f"{label} {run['instantiate_us']:.0f}" for label, run in runs.items()) +
                          f". Updating it: bare {update_us:.0f}; " +
                          "; ".join(f"{label} {run['update_us']:.0f}" for label, run in runs.items()) + ".")
