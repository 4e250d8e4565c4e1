"""Reads Nsight Compute's CSV (--page raw) and holds its Block Limit rows against kernel_events."""
import csv

ROWS = {"registers": "launch__occupancy_limit_registers", "shared_mem": "launch__occupancy_limit_shared_mem",
        "warps": "launch__occupancy_limit_warps", "blocks": "launch__occupancy_limit_blocks",
        "barriers": "launch__occupancy_limit_barriers"}
OCCUPANCY = "sm__maximum_warps_per_active_cycle_pct"


def number(text):
    try:
        return float(text.replace(",", ""))
    except (ValueError, AttributeError):
        return None


def read_raw_page(text):
    """One dict for each kernel: name and the limits that ncu gave. Lines before the header are the program's own."""
    lines = text.splitlines()
    start = next((i for i, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    kernels = []
    for row in csv.DictReader(lines[start:]):
        if not (row.get("ID") or "").isdigit():
            continue  # the row of units
        kernels.append({"name": row.get("Kernel Name"), "occupancy": number(row.get(OCCUPANCY)),
                        "limits": {ours: number(row.get(theirs)) for ours, theirs in ROWS.items()}})
    return kernels


def compare(kernels, events):
    """Returns (failures, facts). Limits in blocks, as limit_blocks has them.

    ncu's shared memory row is about the split of L1 and shared memory that the driver chose for that launch, which may
    be smaller than the most it could choose as long as another limit binds: there the two need not be equal, but
    neither may be the smallest limit unless both are. Of kernels with
    very few registers its register row is half of ours (64 blocks against 128 at 8 registers and 64 threads, H200), as
    if 16 were the least a thread gets; those rows bind in neither. Barriers are known to the log only where they bind."""
    failures, facts = [], {"kernels": 0, "rows_equal": 0, "rows_compared": 0, "shared_not_binding_differs": 0,
                           "occupancy_equal": 0, "barriers_bind": 0, "registers_not_binding_differs": 0}
    if len(kernels) != len(events):
        failures.append(f"ncu profiled {len(kernels)} kernels, the log has {len(events)}")
    for i, (kernel, event) in enumerate(zip(kernels, events)):
        facts["kernels"] += 1
        ours = event.get("limit_blocks") or {}
        theirs = {name: value for name, value in kernel["limits"].items() if value is not None}
        others = [value for name, value in theirs.items() if name != "shared_mem"]
        for name, value in theirs.items():
            if name == "barriers":
                binds = value < min([v for n, v in theirs.items() if n != "barriers"], default=value)
                facts["barriers_bind"] += binds
                if binds and ours.get("barriers") != value:
                    failures.append(f"kernel {i} {event.get('name')}: ncu's barrier limit is {value:.0f} and binds, "
                                    f"ours is {ours.get('barriers')}")
                continue
            facts["rows_compared"] += 1
            if ours.get(name) == value:
                facts["rows_equal"] += 1
            elif (name == "registers" and ours.get(name) == 2 * value and
                  value >= min(v for n, v in theirs.items() if n != name)):
                facts["registers_not_binding_differs"] += 1
            elif name == "shared_mem" and others and min(value, ours.get(name) or 0) >= min(others):
                facts["shared_not_binding_differs"] += 1
            else:
                failures.append(f"kernel {i} {event.get('name')}: {name}: ncu {value:.0f}, ours {ours.get(name)}")
        if kernel["occupancy"] is not None:
            equal = abs(kernel["occupancy"] / 100 - (event.get("occupancy") or 0)) < 5e-4
            facts["occupancy_equal"] += equal
            if not equal:
                failures.append(f"kernel {i} {event.get('name')}: theoretical occupancy: ncu {kernel['occupancy']} %, "
                                f"ours {event.get('occupancy')}")
    return failures, facts
