"""Holds the lines of occupancy_sweep (the driver's and the header's answers) against the recorder's kernel_events."""
LIMITERS = ("warps", "blocks", "registers", "shared_mem", "barriers", "cluster")
SHARES = {"warps": "warp_occupancy", "blocks": "block_occupancy", "registers": "reg_occupancy",
          "shared_mem": "smem_occupancy"}
BARRIER_BLOCKS = {64 // k for k in range(1, 17)}


def threads_of(line):
    x, y, z = line["block"]
    return x * y * z


def expected(line, sms, max_warps):
    """What the log must say of one launch: from the driver's numbers, the header's limits and the documented rules."""
    warps = (threads_of(line) + 31) // 32
    limits = dict(line["limits"])
    model, driver = min(limits.values()), line["driver_blocks"]
    if not line["carveout_at_launch"] and driver < model and driver in BARRIER_BLOCKS:
        limits["barriers"] = driver
    if line["cluster"] > 0 and line["driver_clusters"] >= 0:
        limits["cluster"] = -(-line["driver_clusters"] * line["cluster"] // sms)
    smallest = min(limits.values())
    limiters = [name for name in LIMITERS if limits.get(name) == smallest]
    if driver * warps >= max_warps and limits.get("cluster") != 0 and "warps" not in limiters:
        limiters = ["warps"] + limiters
    return {"max_active_blocks": driver, "occupancy": driver * warps / max_warps, "limits": limits,
            "shares": {name: min(1.0, limits[name] * warps / max_warps) for name in SHARES},
            "limiters": limiters, "warps": warps,
            "source": "model" if line["carveout_at_launch"] else "driver"}


def near(got, wanted):
    return isinstance(got, (int, float)) and abs(got - wanted) < 2e-6


def differences(line, event, sms, max_warps):
    """One text for each field of the event that is not what it must be."""
    want, out = expected(line, sms, max_warps), []

    def same(field, wanted):
        if event.get(field) != wanted:
            out.append(f"{field} {event.get(field)!r}, expected {wanted!r}")

    same("name", line["name"])
    same("num_regs", line["regs"])
    same("static_shared_bytes", line["static"])
    same("dyn_shared_bytes", line["dynamic"])
    same("local_bytes_per_thread", line["local"])
    same("block", "({},{},{})".format(*line["block"]))
    same("max_active_blocks", want["max_active_blocks"])
    same("occupancy_source", want["source"])
    same("cluster", f"({line['cluster']},1,1)" if line["cluster"] else None)
    if line["cluster"] and line["driver_clusters"] >= 0:
        same("max_active_clusters", line["driver_clusters"])
    if not near(event.get("occupancy"), want["occupancy"]):
        out.append(f"occupancy {event.get('occupancy')!r}, expected {want['occupancy']:.6f}")
    for name, key in SHARES.items():
        if not near(event.get(key), want["shares"][name]):
            out.append(f"{key} {event.get(key)!r}, expected {want['shares'][name]:.6f}")
    same("limiting_resources", want["limiters"])
    same("limiting_resource", want["limiters"][0] if want["limiters"] else None)
    return out


def describe(line):
    return (f"launch {line['launch']} regs {line['regs']} static {line['static']} dynamic {line['dynamic']} block "
            f"{line['block']} cluster {line['cluster']} carve-out {line['carveout']}"
            f"{' at launch' if line['carveout_at_launch'] else ''}")


def compare(lines, events, sms, max_warps):
    """`lines` and `events` of accepted launches, in order. Returns (failures, facts)."""
    failures = []
    facts = {"compared": 0, "equal": 0, "max_active_blocks_equal": 0, "header_differs_from_driver": 0,
             "header_differs_without_barriers": 0, "with_cluster": 0, "with_carveout": 0, "carveout_at_launch": 0,
             "families": {}, "cluster_names_limiter": 0, "cluster_only_limiter": 0, "register_counts": 0, "kernels": 0,
             "configurations": 0}
    if len(lines) != len(events):
        failures.append(f"{len(events)} kernel_events of accepted launches, the program made {len(lines)}")
    for line, event in zip(lines, events):
        facts["compared"] += 1
        found = differences(line, event, sms, max_warps)
        facts["equal"] += not found
        facts["max_active_blocks_equal"] += event.get("max_active_blocks") == line["driver_blocks"]
        if line["header_blocks"] != line["driver_blocks"]:
            facts["header_differs_from_driver"] += 1
            facts["header_differs_without_barriers"] += line["barriers"] == 0
        facts["with_cluster"] += line["cluster"] > 0
        facts["with_carveout"] += line["carveout"] >= 0
        facts["carveout_at_launch"] += line["carveout_at_launch"]
        limiters = event.get("limiting_resources") or []
        facts["cluster_names_limiter"] += "cluster" in limiters
        facts["cluster_only_limiter"] += limiters == ["cluster"]
        for difference in found:
            failures.append(f"{describe(line)}: {difference}")
        family = line["family"]
        if family:
            tally = facts["families"].setdefault(family, {"launches": 0, "named_alone": 0})
            tally["launches"] += 1
            tally["named_alone"] += limiters == [family]
            # Clusters bind alone only where the chip's layout wastes a block on every SM: counted, not demanded.
            if family != "cluster" and limiters != [family]:
                failures.append(f"{describe(line)}: only {family} binds, the log names {limiters}")
    facts["register_counts"] = len({line["regs"] for line in lines})
    facts["kernels"] = len({line["name"] for line in lines})
    facts["configurations"] = len({(line["name"], tuple(line["block"]), line["dynamic"], line["cluster"],
                                    line["carveout"]) for line in lines})
    return failures, facts
