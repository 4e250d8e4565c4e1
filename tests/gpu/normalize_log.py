"""normalize_log.py LOG...: the log without what differs from run to run and machine to machine, one line an event,
sorted per thread. Two recordings of one plan, on a real and on the simulated device, must come out equal."""
import json
import sys

# Without max_active_clusters: which SMs of a chip are switched off decides it (124 of 132 serve clusters of 4 on one
# H200). The occupancy check holds it against the driver.
KEPT = {
    "kernel_event": ("name", "occupancy", "num_regs", "static_shared_bytes", "dyn_shared_bytes", "block", "grid",
                     "max_active_blocks", "reg_occupancy", "smem_occupancy", "warp_occupancy", "block_occupancy",
                     "limiting_resource", "limiting_resources", "barrier_occupancy", "cluster_occupancy",
                     "limit_blocks", "occupancy_source", "local_bytes_per_thread", "cluster", "cooperative",
                     "carveout", "waves", "status", "captured", "scope", "device"),
    "graph_launch_event": ("status", "captured", "scope"),
    "scope_event": ("phase", "scope"),
    "device_info": ("compute_major", "compute_minor", "sm_count", "warp_size", "max_threads_per_block",
                    "max_threads_per_sm", "max_warps_per_sm", "max_blocks_per_sm", "regs_per_block", "regs_per_sm",
                    "shared_bytes_per_block", "shared_bytes_per_block_optin", "shared_bytes_per_sm",
                    "reserved_shared_bytes_per_block", "l2_bytes", "memory_bus_bits", "cooperative_launch",
                    "cluster_launch"),
    "session_end": ("seen", "lost", "launches", "graph_launches", "captured", "failed", "kernels", "configs",
                    "table_full", "occupancy_mismatch"),
}


def normalize(events):
    """Threads are told apart by what they did, not by their ids, which are the system's."""
    by_thread = {}
    for event in sorted(events, key=lambda e: e.get("seq", 0)):
        keys = KEPT.get(event.get("type"))
        if keys is None:
            continue
        kept = {"type": event["type"], **{k: event[k] for k in keys if k in event}}
        by_thread.setdefault(event.get("thread"), []).append(json.dumps(kept, sort_keys=True))
    return [line for lines in sorted(by_thread.values()) for line in lines]


def main():
    events = []
    for path in sys.argv[1:]:
        with open(path, encoding="utf-8") as f:
            events += [json.loads(line) for line in f if line.strip()]
    print("\n".join(normalize(events)))


if __name__ == "__main__":
    main()
