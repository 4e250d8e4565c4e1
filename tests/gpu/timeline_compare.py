"""Times in a log against what a program knows of its own work. Lines are read in parallel, as there are millions."""
import collections
import ctypes
import json
import multiprocessing
import os

# GPU times come to the host's clock by CUPTI's own fit.
RUN_SLACK_NS = 1_000_000
# A few ticks of the GPU's timer.
OVERLAP_SLACK_NS = 100
PART_BYTES = 16 << 20

Kernel = collections.namedtuple("Kernel", "name seq stream correlation graph_node launch_ns start_ns end_ns")


def read_part(part):
    path, begin, end, names = part
    kernels, times, others, bad = [], [], [], 0
    with open(path, "rb") as f:
        f.seek(begin)
        if begin:
            f.seek(begin - 1)
            f.readline()  # the line that began before is the part's before
        while f.tell() < end:
            line = f.readline()
            if not line:
                break
            try:
                event = json.loads(line)
                kind = event["type"]
            except (ValueError, KeyError, TypeError):
                bad += 1
                continue
            if kind == "kernel_event":
                kernels.append((names.get(event["name"], -1), event["seq"], event["stream"], event["correlation"],
                                event["graph_node"], event["launch_ns"], event["start_ns"], event["end_ns"]))
            elif kind == "kernel_time":
                times.append((event["event"], event["start_ns"], event["end_ns"]))
            else:
                others.append(event)
    return kernels, times, others, bad


class TimedLog:
    """Kernels of one log with their times, wherever these stand; `events` are all other lines."""

    def __init__(self, path, names):
        self.names = list(names)
        numbers = {name: i for i, name in enumerate(self.names)}
        size = os.path.getsize(path)
        parts = [(path, at, min(at + PART_BYTES, size), numbers) for at in range(0, size, PART_BYTES)]
        kernels, times, self.events, self.bad_lines = [], {}, [], 0
        with multiprocessing.Pool(min(len(parts), os.cpu_count() or 1) or 1) as pool:
            for part_kernels, part_times, others, bad in pool.imap(read_part, parts):
                kernels += part_kernels
                self.events += others
                self.bad_lines += bad
                for seq, start, end in part_times:
                    times[seq] = (start, end)
        self.late_times = len(times)
        self.kernels = [Kernel(*k) if k[1] not in times else Kernel(*k[:6], *times[k[1]]) for k in kernels]

    def of(self, kind):
        return [e for e in self.events if e["type"] == kind]

    def named(self, name):
        number = self.names.index(name)
        return [k for k in self.kernels if k.name == number]


def timed(kernels):
    return [k for k in kernels if k.start_ns is not None and k.end_ns is not None]


def compare_presence(log, counts):
    """Every kernel once: counts by name, and no identity twice."""
    failures = []
    found = collections.Counter(k.name for k in log.kernels)
    for i, name in enumerate(log.names):
        if found[i] != counts[name]:
            failures.append(f"{name}: {found[i]} kernels in the log, {counts[name]} ran")
    if found[-1]:
        failures.append(f"{found[-1]} kernels of other names")
    for what, key in (("seq", lambda k: k.seq), ("correlation and node", lambda k: (k.correlation, k.graph_node))):
        doubles = len(log.kernels) - len({key(k) for k in log.kernels})
        if doubles:
            failures.append(f"{doubles} kernels share their {what} with another")
    return failures


def compare_replays(kernels, replays, nodes):
    """Each replay has each node once."""
    each = collections.Counter(k.correlation for k in kernels)
    failures = []
    if len(each) != replays:
        failures.append(f"{len(each)} replays among the nodes' correlation ids, {replays} were launched")
    uneven = sum(1 for count in each.values() if count != nodes)
    if uneven:
        failures.append(f"{uneven} replays have not {nodes} kernels")
    without = sum(1 for k in kernels if k.graph_node is None or k.correlation is None)
    if without:
        failures.append(f"{without} kernels of graphs without node or correlation")
    return failures


def compare_times(kernels, begin_ns, end_ns):
    """None without times, reversed or outside of [begin, end], both by the log's clock."""
    have = timed(kernels)
    failures = []
    for what, count in (("have no times", len(kernels) - len(have)),
                        ("end before they start", sum(1 for k in have if k.end_ns < k.start_ns)),
                        ("start before the run", sum(1 for k in have if k.start_ns < begin_ns - RUN_SLACK_NS)),
                        ("end after the run", sum(1 for k in have if k.end_ns > end_ns + RUN_SLACK_NS))):
        if count:
            failures.append(f"{count} of {len(kernels)} kernels {what}")
    facts = {"first_start_after_begin_ns": min((k.start_ns for k in have), default=begin_ns) - begin_ns,
             "last_end_before_end_ns": end_ns - max((k.end_ns for k in have), default=end_ns),
             "start_before_launch": sum(1 for k in have if k.launch_ns is not None and k.start_ns < k.launch_ns)}
    return failures, facts


def compare_order(kernels):
    """Within a stream kernels start in the order of their launches, and none before the one before it has ended. Nodes
    of one replay, a chain, have one launch: by their starts."""
    streams = collections.defaultdict(list)
    for k in timed(kernels):
        streams[k.stream].append(k)
    disordered = overlapping = touching = worst = 0
    for those in streams.values():
        those.sort(key=lambda k: (k.launch_ns, k.start_ns if k.graph_node is not None else k.seq))
        for before, after in zip(those, those[1:]):
            disordered += after.start_ns < before.start_ns
            overlap = before.end_ns - after.start_ns
            touching += overlap > 0
            overlapping += overlap > OVERLAP_SLACK_NS
            worst = max(worst, overlap)
    failures = []
    if disordered:
        failures.append(f"{disordered} kernels start before the one launched before them in their stream")
    if overlapping:
        failures.append(f"{overlapping} kernels overlap the one before them in their stream, by up to {worst} ns")
    return failures, {"streams": len(streams), "overlaps_at_all": touching, "worst_overlap_ns": worst}


def off_percent(got, wanted):
    return 100.0 * (got - wanted) / wanted if wanted else float("inf")


# Overlap ----------------------------------------------------------------------------------------------------------


def union_of(spans):
    """The same stretches of time, in order and without overlap."""
    out = []
    for begin, end in sorted(spans):
        if out and begin <= out[-1][1]:
            out[-1][1] = max(out[-1][1], end)
        else:
            out.append([begin, end])
    return out


def length(spans):
    return sum(end - begin for begin, end in spans)


def in_both(a, b):
    """How long something of `a` and something of `b` ran at once."""
    return length(union_of(a)) + length(union_of(b)) - length(union_of([*a, *b]))


# Against torch.profiler -------------------------------------------------------------------------------------------


def demangler():
    """As torch.profiler writes names: by the C++ library that torch itself needs."""
    demangle = ctypes.CDLL("libstdc++.so.6").__cxa_demangle
    demangle.restype, demangle.argtypes = ctypes.c_void_p, [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p,
                                                            ctypes.POINTER(ctypes.c_int)]
    free = ctypes.CDLL(None).free
    free.argtypes = [ctypes.c_void_p]

    def call(name):
        status = ctypes.c_int()
        text = demangle(name.encode(), None, None, ctypes.byref(status))
        if not text:
            return name
        try:
            return ctypes.string_at(text).decode()
        finally:
            free(text)
    return call


def launched_between(log, begin_ns, end_ns, demangle):
    """Kernels, copies and fills whose call was made then, by CLOCK_MONOTONIC; and how many kernels have no times."""
    t0 = log.of("session_start")[0]["t0_monotonic_ns"]
    times = {e["event"]: e["duration_ns"] for e in log.of("kernel_time")}
    kernels, copies, untimed = collections.defaultdict(lambda: [0, 0]), collections.Counter(), 0
    for e in log.of("kernel_event", "memcpy_event", "memset_event"):
        if e["launch_ns"] is None or not begin_ns <= e["launch_ns"] + t0 <= end_ns:
            continue
        if e["type"] == "kernel_event":
            duration = e["duration_ns"] if e["duration_ns"] is not None else times.get(e["seq"])
            entry = kernels[demangle(e["name"])]
            entry[0] += 1
            entry[1] += duration or 0
            untimed += duration is None
        else:
            copies[e["kind"] if e["type"] == "memcpy_event" else "memset", e["bytes"]] += 1
    return dict(kernels), dict(copies), untimed


def compare_kernels(ours, theirs):
    """Both {name: [count, total_ns]}: same names, same counts."""
    failures = []
    for name in sorted(set(ours) | set(theirs)):
        a, b = ours.get(name, [0, 0])[0], theirs.get(name, [0, 0])[0]
        if a != b:
            failures.append(f"{a} times in the log, {b} times in torch.profiler: {name[:120]}")
    return failures


def compare_copies(ours, theirs):
    """Both {(direction, bytes): count}."""
    return [f"{kind} of {size} bytes: {ours.get((kind, size), 0)} in the log, {theirs.get((kind, size), 0)} in "
            "torch.profiler" for kind, size in sorted(set(ours) | set(theirs))
            if ours.get((kind, size), 0) != theirs.get((kind, size), 0)]


def profiler_facts(trace):
    """Kernels, copies and fills of a trace that torch.profiler exported."""
    kernels, copies = collections.defaultdict(lambda: [0, 0.0]), collections.Counter()
    for event in trace["traceEvents"]:
        kind = event.get("cat")
        if kind == "kernel":
            entry = kernels[event["name"]]
            entry[0] += 1
            entry[1] += float(event["dur"]) * 1000  # from microseconds
        elif kind == "gpu_memcpy":
            direction = event["name"].split()[1].lower()  # "Memcpy HtoD (Pinned -> Device)"
            copies[direction, int(event["args"]["bytes"])] += 1
        elif kind == "gpu_memset":
            copies["memset", int(event["args"]["bytes"])] += 1
    return dict(kernels), dict(copies)
