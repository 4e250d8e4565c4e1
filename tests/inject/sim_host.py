"""Runs programs under the real libgpuflight.so on the simulated device, and reads what they leave behind.

GPUFLIGHT_TEST_BUILD names the build tree, GPUFLIGHT_TEST_SANITIZE the sanitizers it was built with. Every log that is
read here is held against the published schema, whatever else a test asks of it.
"""
import base64
import collections
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("GPUFLIGHT_TEST_BUILD", SOURCE / "build" / "release")).resolve()
SANITIZE = os.environ.get("GPUFLIGHT_TEST_SANITIZE", "")
SIM = BUILD / "sim"
PLAYER = SIM / "gpuflight-play"
HOSTS = BUILD / "sim_hosts"
LIBRARY = BUILD / "lib" / "libgpuflight.so"
HOOKS = BUILD / "lib" / "libgpuflight_hooks.so"
# Which source of launches a suite is run under. With "interpose" the hooks are preloaded too.
CAPTURE = os.environ.get("GPUFLIGHT_TEST_CAPTURE", "auto")
needs_cupti = unittest.skipIf(CAPTURE == "interpose", "about CUPTI")
PLANS = SOURCE / "tests" / "plans"
# A Python that was not built with it often crashes under libtsan, whatever it runs.
needs_python_host = unittest.skipIf("thread" in SANITIZE, "no Python under ThreadSanitizer")
# How much longer things may take than on an idle machine without sanitizers.
SLOW = 10 if SANITIZE else 1
GPU_SLOT = 8191
MAX_VALIDATED = 300  # lines of one kind in one log; jsonschema takes about a millisecond for each

sys.path.insert(0, str(SOURCE / "tools"))
import validate_log  # noqa: E402


def _validator():
    schema = json.loads(validate_log.SCHEMA.read_text())
    return validate_log.jsonschema.Draft202012Validator(validate_log.closed(schema))


VALIDATOR = _validator()


def preload_list():
    """The library, after the runtime of the sanitizer, which must come first in every process."""
    runtime = {"address": "libasan.so", "thread": "libtsan.so"}.get(SANITIZE.split(",")[0])
    ours = f"{LIBRARY}:{HOOKS}" if CAPTURE == "interpose" else str(LIBRARY)
    if not runtime:
        return ours
    found = subprocess.run(["g++", f"-print-file-name={runtime}"], capture_output=True, text=True, check=True)
    return f"{os.path.realpath(found.stdout.strip())}:{ours}"


def environment(preload=True, sim=True, **variables):
    """Nothing of ours but what is asked for. A value of None takes a variable out."""
    ours = ("GPUFLIGHT_", "CUDA_", "NVTX_", "LD_", "RANK", "SLURM_", "OMPI_", "WORLD_SIZE", "LOCAL_RANK")
    env = {key: value for key, value in os.environ.items() if not key.startswith(ours)}
    if sim:
        env["LD_LIBRARY_PATH"] = str(SIM)
        env["GPUFLIGHT_CUPTI"] = str(SIM / "libcupti.so.13")
    if preload:
        env["LD_PRELOAD"] = preload_list()
    if SANITIZE:
        # Programs that were not built with the sanitizer come along too, and leak as they please.
        env["ASAN_OPTIONS"] = "detect_leaks=0:verify_asan_link_order=0:abort_on_error=0:exitcode=66"
        env["UBSAN_OPTIONS"] = "print_stacktrace=1:exitcode=66"
        env["TSAN_OPTIONS"] = (f"exitcode=66:report_signal_unsafe=0:die_after_fork=0:"
                               f"suppressions={SOURCE / 'tests' / 'inject' / 'tsan.supp'}")
        # The recorder is as much slower there as the program is, and shares the machine with other tests.
        env["GPUFLIGHT_EXIT_TIMEOUT_MS"] = str(2000 * SLOW)
    # Not the default, and more happens with it; a part of the tests runs a second time without.
    env["GPUFLIGHT_TIMING"] = os.environ.get("GPUFLIGHT_TEST_TIMING", "all")
    if preload and CAPTURE != "auto":
        env["GPUFLIGHT_CAPTURE"] = CAPTURE
    for key, value in variables.items():
        env.pop(key, None)
        if value is not None:
            env[key] = str(value)
    return env


class Log:
    """All segments of one recording, in order."""

    def __init__(self, path, validate=True):
        self.path = pathlib.Path(path)
        self.files = segments(self.path)
        self.lines = []
        for file in self.files:
            self.lines += [line for line in read_segment(file).split(b"\n") if line]
        self.by_type = collections.defaultdict(list)
        for line in self.lines:
            event = validate_log.parse_line(line, strict=True)
            self.by_type[event["type"]].append(event)
        if validate:
            self.validate()

    def validate(self):
        for kind, events in self.by_type.items():
            step = max(1, len(events) // MAX_VALIDATED)
            for event in events[::step]:
                error = validate_log.jsonschema.exceptions.best_match(VALIDATOR.iter_errors(event))
                if error is not None:
                    raise AssertionError(f"{self.path}: {kind}: {error.json_path}: {error.message[:300]}")

    def __getitem__(self, kind):
        return self.by_type[kind]

    @property
    def kernels(self):
        """Launches, in the order in which each thread made them. Lines come when the GPU's times are known."""
        return sorted((e for e in self["kernel_event"] if e["seq"] >> 40 != GPU_SLOT), key=lambda e: e["seq"])

    @property
    def gpu_kernels(self):
        """Those that no launch of the program's stands for alone: nodes of graphs, and what was not seen launched."""
        return [e for e in self["kernel_event"] if e["seq"] >> 40 == GPU_SLOT]

    @property
    def start(self):
        return self["session_start"][0]

    @property
    def end(self):
        ends = self["session_end"]
        if len(ends) != 1:
            raise AssertionError(f"{self.path}: {len(ends)} session_end lines, {len(self.lines)} lines in all")
        return ends[0]

    def notices(self, code=None):
        return [n for n in self["notice_event"] if code is None or n["code"] == code]


def segments(path):
    path = pathlib.Path(path)
    stem, suffix = (path.name[:-7], ".ndjson") if path.name.endswith(".ndjson") else (path.name, "")
    found = {}
    for file in path.parent.iterdir():
        middle = file.name.removeprefix(stem + ".").removesuffix(".zst")
        number = middle.removesuffix(suffix) if suffix else middle
        if file.name.startswith(stem + ".") and middle.endswith(suffix) and number.isdigit() and len(number) >= 4:
            # While both stand there they say the same; the plain one is whole.
            if number not in found or not file.name.endswith(".zst"):
                found[number] = file
    return [found[number] for number in sorted(found, key=int)] + ([path] if path.exists() else [])


def read_segment(file):
    if file.suffix != ".zst":
        return file.read_bytes()
    return subprocess.run(["zstd", "-dcq", str(file)], capture_output=True, check=True).stdout


class Played:
    def __init__(self, run, result):
        self.rc, self.stdout, self.stderr = run.returncode, run.stdout, run.stderr
        self.result = result


def name_of(kernel):
    """A kernel's name as the log must have it: what is not UTF-8 replaced."""
    return base64.b64decode(kernel["name_base64"]).decode("utf-8", "replace")


class SimTest(unittest.TestCase):
    maxDiff = 2000

    def setUp(self):
        holder = tempfile.TemporaryDirectory(prefix="gpuflight-test.", ignore_cleanup_errors=True)
        self.addCleanup(holder.cleanup)
        self.dir = pathlib.Path(holder.name)

    def run_host(self, *command, preload=True, sim=True, timeout=60, cwd=None, expect=0, preexec_fn=None,
                 **variables):
        """`command` under the library; the log is DIR/log.ndjson unless a variable says otherwise."""
        variables.setdefault("GPUFLIGHT_LOG", self.dir / "log.ndjson")
        run = subprocess.run([str(c) for c in command], capture_output=True, timeout=timeout * SLOW,
                             cwd=cwd or self.dir, env=environment(preload, sim, **variables), preexec_fn=preexec_fn)
        if expect is not None:
            self.assertEqual(run.returncode, expect, (run.stdout[-2000:], run.stderr[-4000:]))
        return run

    def plan_file(self, plan):
        """`plan`: a name in tests/plans, or the plan itself."""
        if isinstance(plan, str):
            return PLANS / f"{plan}.json"
        file = self.dir / "plan.json"
        file.write_text(json.dumps(plan))
        return file

    def play(self, plan, *arguments, **options):
        file = self.plan_file(plan)
        result = self.dir / "result.json"
        run = self.run_host(PLAYER, file, "--result", result, *arguments, GPUFLIGHT_SIM_PLAN=file, **options)
        return Played(run, json.loads(result.read_text()) if result.exists() else None)

    def log(self, name="log.ndjson", **options):
        return Log(self.dir / name, **options)

    def assert_balanced(self, log, lost=0, pending=0):
        end = log.end
        self.assertEqual(end["seen"], end["written"] + end["summarised"] + end["pending"] + end["lost"], end)
        self.assertEqual(end["lost"], sum(end["lost_by_cause"].values()), end)
        if lost is not None:
            self.assertEqual(end["lost"], lost, end)
        if pending is not None:
            self.assertEqual(end["pending"], pending, end)
        return end

    def assert_unique_seq(self, log):
        """Only what every segment begins with may stand there twice."""
        again = ("session_start", "device_info", "stream_info", "graph_info", "graph_kernel")
        seen = collections.Counter(e["seq"] for kind, events in log.by_type.items() if kind not in again
                                   for e in events)
        heads = {(kind, e["seq"]) for kind in again for e in log[kind]}
        seen.update(seq for _, seq in heads)
        self.assertEqual([seq for seq, n in seen.items() if n > 1], [])

    def assert_counts(self, log, result):
        """Line by line what the player itself counted: launches per kernel, run and captured, and graph launches."""
        run, captured = collections.Counter(), collections.Counter()
        for event in log.kernels:
            (captured if event["captured"] else run)[event["name"]] += 1
        want_run, want_captured = collections.Counter(), collections.Counter()
        for kernel in result["kernels"].values():
            if "returned" in kernel:
                want_run[name_of(kernel)] += kernel["returned"] - kernel["captured"]
                want_captured[name_of(kernel)] += kernel["captured"]
        self.assertEqual(+run, +want_run)
        self.assertEqual(+captured, +want_captured)
        self.assertEqual(len(log["graph_launch_event"]), result["graph_launches"])


def quick_plan(times=5, kernel="k", threads=1, board="sm_86", **kernel_keys):
    """One kernel, launched `times` times by each thread."""
    return {
        "device": {"board": board},
        "modules": {"m": {"kernels": {kernel: {"name": kernel, "duration_us": 1, **kernel_keys}}}},
        "threads": [{"count": threads, "ops": [{"op": "launch", "kernel": kernel, "grid": 4, "block": 64,
                                                "times": times}]}],
    }


@contextlib.contextmanager
def started(*command, **options):
    """A program that runs while the test looks on; ended with it."""
    process = subprocess.Popen([str(c) for c in command], **options)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()


def main():
    unittest.main(verbosity=1)
