"""Small logs with times that a test says, after the known-good lines of tests/golden."""
import copy
import json
import random

from cli_support import SOURCE

_GOLDEN = [json.loads(line) for line in (SOURCE / "tests" / "golden" / "log_lines.ndjson").read_text().splitlines()]
MINUTE = 60_000_000_000
T0 = 1_767_225_600_000_000_000


def golden(type_):
    return copy.deepcopy(next(line for line in _GOLDEN if line["type"] == type_))


class Log:
    """One recording. begin: minutes since the first."""

    def __init__(self, begin=0, pid=1, device="NVIDIA RTX A4000", driver=13000, host="node1", rank=None, clock_khz=1_560_000):
        self.time_ns, self.counter, self.lines = 1000, 0, []
        session = golden("session_start")
        session.update(schema="1.1", segment=1, pid=pid, host=host, driver_version=driver, flight_path=None, mode="stream",
                       t0_unix_ns=T0 + int(begin * MINUTE), process_start_ticks=1000 + pid, rank=rank or {},
                       configuration={"timing": "all"})
        info = golden("device_info")
        info.update(device=0, name=device, sm_clock_khz=clock_khz)
        stream = golden("stream_info")
        stream.update(stream=2, device=0)
        self.lines += [session, info, stream]

    def add(self, line, **changes):
        line.update(changes)
        self.lines.append(line)

    def seq(self):
        self.counter += 1
        return (1 << 40) + self.counter

    def kernel(self, ns, name="_Z8reduce_0PKfPfi", regs=32, block="(256,1,1)", grid="(1024,1,1)", shared=0, dynamic=0,
               occupancy=1.0, limiter="warps", spill=0, blocks=6, scope=None, gap=1000, by_events=False):
        start = self.time_ns + gap
        self.add(golden("kernel_event"), name=name, num_regs=regs, block=block, grid=grid, static_shared_bytes=shared,
                 dyn_shared_bytes=dynamic, occupancy=occupancy, limiting_resource=limiter, limiting_resources=[limiter],
                 max_active_blocks=blocks, local_bytes_per_thread=spill, device=0, stream=2, scope=scope, thread=99,
                 seq=self.seq(), launch_ns=self.time_ns, call_ns=500, status=0, start_ns=start if ns is not None else None,
                 end_ns=start + ns if ns is not None else None, duration_ns=ns, queue_ns=gap if ns is not None else None,
                 graph=None, graph_node=None, captured=False)
        if by_events:
            self.lines[-1].update(start_ns=None, end_ns=None, queue_ns=None, time_source="events", error_ns=3000)
        self.time_ns = start + (ns or 0)

    def scope(self, phase, path):
        self.add(golden("scope_event"), phase=phase, scope=path, thread=99, seq=self.seq(), time_ns=self.time_ns)

    def sync(self):
        self.add(golden("sync_event"), call="cuCtxSynchronize", stream=None, scope=None, thread=99, seq=self.seq(),
                 time_ns=self.time_ns, call_ns=100, status=0)

    def copy(self, size, source="pageable", destination="device"):
        start = self.time_ns + 100
        self.add(golden("memcpy_event"), source=source, destination=destination, bytes=size, seq=self.seq(),
                 launch_ns=self.time_ns, start_ns=start, end_ns=start + 100, duration_ns=100, queue_ns=100)
        self.time_ns = start + 100

    def write(self, path, lost=0, end=True):
        if end:
            line = golden("session_end")
            written = self.counter
            line.update(time_ns=self.time_ns, seen=written + lost, written=written, summarised=0, pending=0, lost=lost,
                        lost_by_cause={cause: 0 for cause in line["lost_by_cause"]} | {"pool_empty": lost},
                        rotated_away=0, null_time=0, table_full=0, occupancy_mismatch=0)
            self.add(line)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(line) + "\n" for line in self.lines))
        return path


def run(path, begin, ns=50_000, launches=40, noise=0.01, seed=0, **facts):
    """A recording with one kernel, whose launches spread by `noise` around `ns`."""
    random.seed(f"{path.name} {seed}")
    log = Log(begin=begin, pid=int(begin * 10) + 1, **{k: facts.pop(k) for k in ("device", "driver", "host", "rank", "clock_khz")
                                                       if k in facts})
    for _ in range(launches):
        log.kernel(int(ns * (1 + noise * random.uniform(-1, 1))), **facts)
    return log.write(path)
