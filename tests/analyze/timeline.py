"""Logs of plain timelines: a program is written down call by call, the GPU's times follow from a simple model of a
device with streams, one engine for kernels that fill it, and a copy engine for each direction. Lines: docs/FORMAT.md.

    t = Timeline()
    s = t.stream()
    k = t.kernel("scale", block=256)
    t.copy("htod", 1 << 20, s)
    t.launch(k, 1024, s, 50_000)
    t.sync(s)
    t.write(path)
"""
import json

SLOT = 3 << 40
SM_COUNT = 132
LATENCY_NS = 4_000  # from the launch call to the start on an idle device
FOLLOW_NS = 1_000   # from the end of one kernel to the start of one that was queued
BUS_BYTES_PER_NS = 25


class Timeline:
    def __init__(self, pid=4711, rank=None, start_ns=1_000_000, global_bytes=150_000_000_000, t0_ns=0):
        self.now = start_ns       # of the host's one thread
        self.rank = rank or {}
        self.pid = pid
        self.t0_ns = t0_ns
        self.global_bytes = global_bytes
        self.lines = []           # (order, line)
        self.counter = 0
        self.streams = []
        self.devices = {0}
        self.ends = {}            # of the work so far, by stream
        self.engines = {}         # by (device, engine)
        self.totals = {}
        self.legacy = None
        self.configs = []
        self.graph_nodes = 0

    def _put(self, at, line):
        self.lines.append((at, len(self.lines), line))

    def _seq(self):
        self.counter += 1
        return SLOT + self.counter

    def wait(self, ns):
        """The host does something else."""
        self.now += ns

    def stream(self, device=0, priority=0, flags=1, kind="created"):
        self.devices.add(device)
        self.streams.append({"type": "stream_info", "stream": len(self.streams) + 1, "context": device + 1,
                             "device": device, "kind": kind, "handle": f"0x{0x1000 + len(self.streams):016x}",
                             "priority": priority, "flags": flags, "thread": None, "seq": 10 + len(self.streams)})
        number = len(self.streams)
        if kind == "legacy_default":
            self.legacy = number
        return number

    def default_stream(self):
        return self.stream(flags=None, kind="legacy_default")

    def kernel(self, name, block=256, occupancy=1.0, limiter="warps", regs=32, local=0, blocks_per_sm=8):
        """A configuration; blocks_per_sm x 132 blocks fill the device."""
        limits = {"warps": 8, "blocks": 32, "registers": 8, "shared_mem": 28, "barriers": None, "cluster": None}
        part = {"name": f"_Z{len(name)}{name}Pfi", "occupancy": occupancy, "num_regs": regs, "static_shared_bytes": 0,
                "dyn_shared_bytes": 0, "block": f"({block},1,1)", "grid": None, "max_active_blocks": blocks_per_sm,
                "reg_occupancy": 1.0, "smem_occupancy": 1.0, "warp_occupancy": 1.0, "block_occupancy": 1.0,
                "limiting_resource": limiter, "limiting_resources": [limiter], "barrier_occupancy": None,
                "cluster_occupancy": None, "limit_blocks": limits, "occupancy_source": "driver",
                "local_bytes_per_thread": local, "max_threads_per_block": 1024, "binary_version": 90, "cluster": None,
                "cooperative": False, "carveout": None, "module_hash": None, "config": len(self.configs) + 1}
        self.configs.append(part)
        return len(self.configs)

    def _device(self, stream):
        return self.streams[stream - 1]["device"]

    def _start(self, stream, launched, engines, gap):
        """When work can start: launched, its stream free, the engines free, and the default stream's rules."""
        others = [n for n in self.ends if n != stream and self._device(n) == self._device(stream)]
        blocking = [n for n in others if self.streams[n - 1]["flags"] == 0]
        behind = [stream] + (blocking if stream == self.legacy else [])
        if self.legacy in others and self.streams[stream - 1]["flags"] == 0:
            behind.append(self.legacy)
        start = launched
        for n in behind:
            start = max(start, self.ends.get(n, 0) + gap)
        for engine in engines:
            start = max(start, self.engines.get((self._device(stream), engine), 0) + gap)
        return start

    def _ran(self, stream, end, engines):
        self.ends[stream] = max(self.ends.get(stream, 0), end)
        for engine in engines:
            self.engines[(self._device(stream), engine)] = end

    def launch(self, config, blocks, stream, ns, call_ns=3_000, beside=False, not_before=0):
        """A kernel of `ns`; `beside`: it leaves room for others to run at the same time."""
        engines = [] if beside else ["kernel"]
        start = max(self._start(stream, self.now + LATENCY_NS, engines, FOLLOW_NS), not_before)
        self._ran(stream, start + ns, engines)
        self._kernel_line(config, blocks, stream, start, ns, call_ns)
        self.now += call_ns
        return start + ns

    def _kernel_line(self, config, blocks, stream, start, ns, call_ns, graph=None, node=None):
        part = dict(self.configs[config - 1], grid=f"({blocks},1,1)")
        wave = part["max_active_blocks"] * SM_COUNT
        seq = self._seq()
        if graph is not None:
            self.graph_nodes += 1
            seq = (8191 << 40) + self.graph_nodes
        self._put(self.now, {"type": "kernel_event", **part, "waves": round(blocks / wave, 6),
                             "device": self._device(stream), "context": 1, "stream": stream, "scope": None,
                             "thread": self.pid,
                             "seq": seq, "correlation": seq & 0xffffff, "launch_ns": self.now, "call_ns": call_ns,
                             "status": 0,
                             "start_ns": start, "end_ns": start + ns, "duration_ns": ns, "queue_ns": start - self.now,
                             "graph": graph, "graph_node": node, "captured": False})

    def graph(self, kernels, stream, call_ns=8_000):
        """One launch of a graph whose nodes, (config, blocks, ns), run one after the other."""
        launched = self.now
        self._put(launched, {"type": "graph_launch_event", "graph": 1, "device": 0, "context": 1, "stream": stream,
                             "scope": None, "thread": self.pid, "seq": self._seq(), "correlation": 1,
                             "launch_ns": launched,
                             "call_ns": call_ns, "status": 0, "start_ns": None, "end_ns": None, "duration_ns": None,
                             "captured": False})
        at = self._start(stream, launched + call_ns, ["kernel"], FOLLOW_NS)
        for node, (config, blocks, ns) in enumerate(kernels):
            self._kernel_line(config, blocks, stream, at, ns, None, graph=1, node=node)
            at += ns + 500
        self._ran(stream, at - 500, ["kernel"])
        self.now += call_ns

    def copy(self, kind, size, stream, memory="pinned", sync=False, ns=None, engine=None):
        rate = BUS_BYTES_PER_NS if memory == "pinned" else BUS_BYTES_PER_NS / 4
        ns = ns or 1_500 + int(size / (2000 if kind == "dtod" else rate))
        engines = [engine or kind]
        launched = self.now
        start = self._start(stream, launched + LATENCY_NS, engines, FOLLOW_NS)
        end = start + ns
        self._ran(stream, end, engines)
        waits = (sync and kind != "dtod") or (memory == "pageable" and size > 65536)
        call_ns = max(end + 3_000 - launched, 3_000) if waits else 3_000
        host, to_device = memory, kind == "htod"
        source = host if kind == "htod" else "device"
        destination = host if kind == "dtoh" else "device"
        self._put(launched, {"type": "memcpy_event", "kind": kind, "source": source, "destination": destination,
                             "bytes": size,
                             "async": not sync, "source_device": None, "destination_device": None,
                             "device": self._device(stream), "context": 1, "stream": stream, "scope": None,
                             "thread": self.pid,
                             "seq": self._seq(), "correlation": 1, "launch_ns": launched, "call_ns": call_ns,
                             "status": 0,
                             "start_ns": start, "end_ns": end, "duration_ns": ns, "queue_ns": start - launched,
                             "bytes_per_second": int(size * 1e9 / ns), "graph": None, "graph_node": None})
        self.now += call_ns

    def fill(self, size, stream, memory="device", sync=False, ns=None):
        launched = self.now
        start = self._start(stream, launched + LATENCY_NS, ["kernel"], FOLLOW_NS)
        ns = ns or 1_500 + size // 1000
        self._ran(stream, start + ns, ["kernel"])
        call_ns = start + ns + 3_000 - launched if sync and memory != "device" else 3_000
        self._put(launched, {"type": "memset_event", "memory": memory, "bytes": size, "value": 0, "async": not sync,
                             "device": 0,
                             "context": 1, "stream": stream, "scope": None, "thread": self.pid, "seq": self._seq(),
                             "correlation": 1, "launch_ns": launched, "call_ns": call_ns, "status": 0,
                             "start_ns": start,
                             "end_ns": start + ns, "duration_ns": ns, "queue_ns": start - launched,
                             "bytes_per_second": int(size * 1e9 / ns), "graph": None, "graph_node": None})
        self.now += call_ns

    def sync(self, stream=None):
        until = self.ends.get(stream, 0) if stream else max(self.ends.values(), default=0)
        launched = self.now
        self.now = max(launched + 1_500, until + 5_000)
        self._put(launched, {"type": "sync_event", "call": "cuStreamSynchronize" if stream else "cuCtxSynchronize",
                             "stream": stream, "scope": None, "thread": self.pid, "seq": self._seq(),
                             "time_ns": launched,
                             "call_ns": self.now - launched, "status": 0})

    def memory(self, operation, size, call_ns=100_000, waits=False, kind="device", call=None):
        call = call or {"alloc": "cuMemAlloc", "free": "cuMemFree"}[operation]
        total = self.totals.get(kind, 0) + (size if operation == "alloc" else -size)
        self.totals[kind] = total
        launched = self.now
        self.now = launched + call_ns
        if waits:
            self.now = max(self.now, max(self.ends.values(), default=0) + 20_000)
        self._put(launched, {"type": "memory_event", "operation": operation, "kind": kind, "call": call,
                             "address": "0x00007f12a0000000", "bytes": size, "device": 0, "context": 1, "stream": None,
                             "pool": None, "total_bytes": total, "peak_bytes": total, "scope": None, "thread": self.pid,
                             "seq": self._seq(), "time_ns": launched, "call_ns": self.now - launched, "status": 0})

    def write(self, path):
        head = {"type": "session_start", "schema": "1.1", "segment": 1, "seq": 1, "library_version": "0.1.0",
                "program": "/opt/app/pairs", "args": [], "args_masked": False, "cwd": "/opt/app", "pid": self.pid,
                "ppid": 1,
                "process_start_ticks": self.pid, "boot_id": "6ea2a1b2-1f0b-4c3a-9d43-0f6d9a3f7c11", "host": "node17",
                "user": "ada", "t0_unix_ns": 1753000000123456789 + self.t0_ns,
                "t0_monotonic_ns": 86400000000000 + self.t0_ns,
                "t0_rfc3339": "2025-07-20T08:26:40.123456789Z", "rank": self.rank, "configuration": {"timing": "all"},
                "driver_version": 13000, "libcuda_path": None, "cupti_version": 130001, "cupti_path": None,
                "cupti_reason": None, "capture": "cupti", "flight_path": None, "mode": "stream"}
        with open(path, "w") as file:
            for line in [head] + [self._device_line(d) for d in sorted(self.devices)] + self.streams:
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
            for _, _, line in sorted(self.lines, key=lambda entry: entry[:2]):
                file.write(json.dumps(line, separators=(",", ":")) + "\n")
        return path

    def _device_line(self, device):
        return {"type": "device_info", "seq": 2 + device, "device": device, "name": "NVIDIA H200",
                "uuid": f"GPU-01234567-89ab-cdef-0123-45678900000{device}", "pci_bus_id": f"0000:0{device}:00.0",
                "compute_major": 9, "compute_minor": 0, "sm_count": SM_COUNT, "warp_size": 32,
                "max_threads_per_block": 1024,
                "max_threads_per_sm": 2048, "max_warps_per_sm": 64, "max_blocks_per_sm": 32, "regs_per_block": 65536,
                "regs_per_sm": 65536, "shared_bytes_per_block": 49152, "shared_bytes_per_block_optin": 232448,
                "shared_bytes_per_sm": 233472, "reserved_shared_bytes_per_block": 1024, "l2_bytes": 62914560,
                "global_bytes": self.global_bytes, "sm_clock_khz": 1980000, "memory_clock_khz": 3201000,
                "memory_bus_bits": 6144, "copy_engines": 3, "cooperative_launch": True, "cluster_launch": True,
                "ecc": True,
                "integrated": False, "managed_memory": True, "memory_pools": True}
