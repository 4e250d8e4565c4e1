"""What every GPU check has in common: where things are, how a program is recorded, how its log is read, and the one
small JSON file a check leaves behind ({check, status, key, facts, failures, markdown}).

Standard library only. A check is a program checks/NN_name.{py,sh}; see README.md for its contract.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import time

PASS, FAIL, SKIP = "pass", "fail", "skip"
LOG_OPTIONS = {"GPUFLIGHT_LOG_MAX": "0", "GPUFLIGHT_LOG_SEGMENT": "16G"}  # one unbroken file per process
MAX_FAILURES_KEPT = 40


class Skip(Exception):
    """Something that this check needs is not on this machine."""


def setting(name, default=""):
    return os.environ.get("GF_" + name, default)


def tree():
    return setting("TREE", os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))


def quick():
    return setting("QUICK") == "1"


def need(name, what):
    """Path in the setting `name`, or Skip."""
    path = setting(name)
    if not path or not os.path.exists(path):
        raise Skip(f"{what} is not built")
    return path


def library():
    return need("LIB", "libgpuflight.so")


def command_line():
    return need("CLI", "the gpuflight command")


def counter():
    return need("COUNTER", "liblaunch_counter.so")


def program(name):
    path = os.path.join(setting("PROGRAMS", "."), name)
    if not os.path.exists(path):
        raise Skip(f"{name} is not built (no nvcc?)")
    return path


def work(*parts):
    path = os.path.join(setting("WORK", "."), *parts)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    return path


class Check:
    """Collects what a check finds. `with Check() as c:` writes the result whatever happens inside."""

    def __init__(self, name=None):
        self.name = name or setting("NAME", os.path.splitext(os.path.basename(sys.argv[0]))[0])
        self.key, self.facts, self.failures, self.markdown, self.skipped = "", {}, [], "", ""
        self.failure_count = 0

    def expect(self, condition, message):
        if not condition:
            self.failure_count += 1
            if len(self.failures) < MAX_FAILURES_KEPT:
                self.failures.append(message)
        return bool(condition)

    def expect_equal(self, got, wanted, what):
        return self.expect(got == wanted, f"{what}: {got!r}, expected {wanted!r}")

    def fact(self, name, value):
        self.facts[name] = value
        return value

    def result(self):
        status = FAIL if self.failure_count else SKIP if self.skipped else PASS
        key = self.key
        if status == FAIL and self.failures:
            key = (key + "; " if key else "") + self.failures[0]
        return {"check": self.name, "status": status, "key": key or self.skipped, "facts": self.facts,
                "failures": self.failures, "failure_count": self.failure_count, "markdown": self.markdown}

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is Skip:
            self.skipped = str(error)
        elif kind is not None and issubclass(kind, Exception):
            import traceback
            traceback.print_exception(kind, error, trace)
            self.expect(False, f"{kind.__name__}: {error}")
        result = self.result()
        path = setting("RESULT")
        text = json.dumps(result, indent=1)
        if path:
            with open(path, "w") as out:
                out.write(text + "\n")
        print(text)
        return kind is None or issubclass(kind, Exception)


# Running programs -------------------------------------------------------------------------------------------------


def clean_environment():
    """Ours without anything of the recorder's in it."""
    dropped = ("GPUFLIGHT_", "CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "LD_PRELOAD", "LAUNCH_COUNTER_OUT")
    return {k: v for k, v in os.environ.items() if not k.startswith(dropped)}


class Run:
    """One started program with its output in files, so that nothing blocks on a full pipe."""

    def __init__(self, label, command, environment=None, limit_s=120, cwd=None):
        self.label, self.limit_s = label, limit_s
        self.out_path, self.err_path = work(label + ".out"), work(label + ".err")
        self.started = time.monotonic()
        with open(self.out_path, "wb") as out, open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(command, env=environment or clean_environment(), stdout=out, stderr=err,
                                            stdin=subprocess.DEVNULL, cwd=cwd)
        self.code = None

    def wait(self):
        try:
            self.code = self.process.wait(max(0.1, self.limit_s - (time.monotonic() - self.started)))
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            self.code = "time limit"
        return self

    @property
    def out(self):
        with open(self.out_path, errors="replace") as f:
            return f.read()

    @property
    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def succeeded(self, check):
        tail = " | ".join(self.err.strip().splitlines()[-3:])
        return check.expect(self.code == 0, f"{self.label}: exit {self.code}: {tail[-400:]}")


def log_pattern(label):
    return work(label + ".%p.ndjson")


def simulated():
    """The variables that put the simulated device in the place of the real one, when run.sh was told to."""
    folder = setting("SIM")
    return {"LD_LIBRARY_PATH": folder, "GPUFLIGHT_CUPTI": os.path.join(folder, "libcupti.so.13"),
            "GPUFLIGHT_SIM_DEVICE": "h200"} if setting("SIMULATED") == "1" else {}


def toolkit_search():
    """The variable by which programs of the shared runtime find it. Not for Python: frameworks bring their own."""
    folders = setting("TOOLKIT_LIB"), os.environ.get("LD_LIBRARY_PATH")
    return {"LD_LIBRARY_PATH": os.pathsep.join(filter(None, folders))}


def recorder_options(label, **options):
    """The variables that put the log of `label` where read_logs(label) finds it."""
    return {**LOG_OPTIONS, **simulated(), "GPUFLIGHT_LOG": log_pattern(label), **options}


def start_plain(label, command, extra=None, **keywords):
    return Run(label, command, {**clean_environment(), **simulated(), **(extra or {})}, **keywords)


def start_preloaded(label, command, count=True, extra=None, **keywords):
    """LD_PRELOAD=libgpuflight.so, with the independent counter beside it."""
    environment = {**clean_environment(), **recorder_options(label), **(extra or {})}
    environment["LD_PRELOAD"] = library() + (":" + counter() if count else "")
    if count:
        environment["LAUNCH_COUNTER_OUT"] = work(label + ".%p.count.json")
    return Run(label, command, environment, **keywords)


def hooks():
    """The hooks library stands beside the other."""
    path = os.path.join(os.path.dirname(library()), "libgpuflight_hooks.so")
    if not os.path.exists(path):
        raise Skip("libgpuflight_hooks.so is not built")
    return path


def start_interposed(label, command, count=True, extra=None, **keywords):
    """Both libraries preloaded, launches seen by the driver's entry points; the counter behind them."""
    environment = {**clean_environment(), **recorder_options(label), "GPUFLIGHT_CAPTURE": "interpose", **(extra or {})}
    environment["LD_PRELOAD"] = ":".join([library(), hooks()] + ([counter()] if count else []))
    if count:
        environment["LAUNCH_COUNTER_OUT"] = work(label + ".%p.count.json")
    return Run(label, command, environment, **keywords)


def start_injected(label, command, count=True, extra=None, **keywords):
    """CUDA_INJECTION64_PATH alone; the counter is preloaded as it knows nothing of injection."""
    environment = {**clean_environment(), **recorder_options(label), **(extra or {})}
    environment["CUDA_INJECTION64_PATH"] = library()
    if count:
        environment["LD_PRELOAD"] = counter()
        environment["LAUNCH_COUNTER_OUT"] = work(label + ".%p.count.json")
    return Run(label, command, environment, **keywords)


def start_under_run(label, command, count=True, extra=None, options=(), **keywords):
    """`gpuflight run -- command`."""
    environment = {**clean_environment(), **LOG_OPTIONS, **simulated(), **(extra or {})}
    if count:
        environment["LD_PRELOAD"] = counter()
        environment["LAUNCH_COUNTER_OUT"] = work(label + ".%p.count.json")
    return Run(label, [command_line(), "run", "--log", log_pattern(label), *options, "--", *command], environment,
               **keywords)


def nvidia_tool(name):
    """Path of a tool of the toolkit; None: not installed."""
    return shutil.which(name) or next(iter(sorted(glob.glob(f"/usr/local/cuda*/bin/{name}"))), None)


def check_sanitized(check, label, mode, start):
    """incident_host under compute-sanitizer's memcheck, with us (by `start`) and without: the same exit code and output.
    Returns ours."""
    command = [nvidia_tool("compute-sanitizer"), "--tool", "memcheck", program("incident_host"), mode]
    bare = start_plain(label + ".bare", command, limit_s=40)
    recorded = start(label, command, count=False, limit_s=40)
    bare.wait(), recorded.wait()

    def told(text):  # process ids and addresses differ from run to run
        return [line for line in text.splitlines() if "ERROR SUMMARY" in line or not line.startswith("=")]
    check.expect_equal(recorded.code, bare.code, f"{mode}: exit code")
    check.expect_equal(told(recorded.out), told(bare.out), f"{mode}: output")
    check.expect_equal(recorded.err, bare.err, f"{mode}: stderr")
    return recorded


def read_counts(label):
    """Sum over the processes of the run; None where no process wrote one."""
    total = None
    for path in sorted(glob.glob(work(glob.escape(label) + ".*.count.json"))):
        with open(path) as f:
            one = json.load(f)
        if total is None:
            total = one
            continue
        for name, value in one.items():
            if name == "forms":
                for form, numbers in value.items():
                    for key, number in numbers.items():
                        total["forms"][form][key] += number
            elif name != "pid":
                total[name] += value
    return total


# Logs -------------------------------------------------------------------------------------------------------------


class Log:
    """The events of one or more logs, by type, in the order of their lines."""

    def __init__(self, paths):
        self.paths, self.events, self.bad_lines = list(paths), [], []
        for path in self.paths:
            with open(path, "rb") as f:
                for number, line in enumerate(f, 1):
                    try:
                        event = json.loads(line.decode("utf-8"))
                        event["type"]
                        self.events.append(event)
                    except (ValueError, KeyError, TypeError) as error:
                        self.bad_lines.append(f"{os.path.basename(path)}:{number}: {error}")

    def of(self, *types):
        return [e for e in self.events if e["type"] in types]

    def kernels(self):
        """kernel_events of launches, in the order the program made them, per thread."""
        return [e for e in self.all_kernels() if e.get("graph_node") is None]

    def all_kernels(self):
        """With those that ran as nodes of graphs."""
        return sorted(self.of("kernel_event"), key=lambda e: e.get("seq", 0))

    def graph_launches(self):
        return self.of("graph_launch_event")


def log_paths(label):
    """Every log of the run `label`. Rotated segments do not occur: LOG_OPTIONS lift the bound."""
    return sorted(glob.glob(work(glob.escape(label) + ".*.ndjson")))


def read_logs(label):
    return Log(log_paths(label))


def is_captured(event):
    return bool(event.get("captured"))


def is_failed(event):
    return event.get("status") not in (0, None)


def lost_total(event):
    lost = event.get("lost", 0)
    return sum(lost.values()) if isinstance(lost, dict) else lost


def check_sound(check, log, what):
    """Every process has one session_start and one session_end, whose ledger balances, and lost nothing."""
    check.expect(log.paths, f"{what}: no log was written")
    check.expect(not log.bad_lines, f"{what}: {len(log.bad_lines)} bad lines, first: {log.bad_lines[:1]}")
    check.expect_equal(len(log.of("session_start")), len(log.paths), f"{what}: session_start lines")
    ends = log.of("session_end")
    check.expect_equal(len(ends), len(log.paths), f"{what}: session_end lines")
    for end in ends:
        lost = lost_total(end)
        check.expect_equal(lost, 0, f"{what}: lost")
        check.expect_equal(end.get("seen"), end.get("written", 0) + end.get("summarised", 0) + end.get("pending", 0) +
                           lost, f"{what}: seen against written + summarised + pending + lost")


def check_counts(check, log, counts, what):
    """The log holds exactly the launches that the independent counter saw."""
    if not check.expect(counts is not None, f"{what}: the launch counter wrote nothing"):
        return None
    kernels = log.kernels()
    captured = sum(1 for e in kernels if is_captured(e))
    failed = sum(1 for e in kernels if is_failed(e))
    graphs = len(log.graph_launches())
    check.expect_equal(len(kernels), counts["kernels"], f"{what}: kernel_event lines against launches counted")
    check.expect_equal(captured, counts["kernels_captured"], f"{what}: captured kernel_event lines")
    check.expect_equal(failed, counts["kernels_failed"], f"{what}: refused launches")
    check.expect_equal(graphs, counts["graphs"], f"{what}: graph_launch_event lines")
    return {"kernels": len(kernels), "captured": captured, "failed": failed, "graphs": graphs}


def validate(check, log, what):
    """Against the published schema by a public validator, where one is installed. Says what was done."""
    validator = os.path.join(tree(), "tools", "validate_log.py")
    if not os.path.exists(validator):
        return "validate_log.py is missing"
    if subprocess.run([sys.executable, "-c", "import jsonschema"], capture_output=True).returncode != 0:
        return "not validated: jsonschema is not installed here"
    for path in log.paths:
        done = subprocess.run([sys.executable, validator, path], capture_output=True, text=True)
        said = (done.stdout + done.stderr).strip().splitlines()
        check.expect(done.returncode == 0, f"{what}: schema: {said[-1] if said else done.returncode}")
    return "validated"


def json_lines(text, key=None):
    """Objects among the lines of `text`; with `key`, those that have it."""
    found = []
    for line in text.splitlines():
        if line.startswith("{"):
            try:
                value = json.loads(line)
            except ValueError:
                continue
            if key is None or key in value:
                found.append(value)
    return found


def percentile(values, share):
    """Linear between the two nearest; `share` in 0..1."""
    ordered = sorted(values)
    if not ordered:
        return None
    position = (len(ordered) - 1) * share
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median(values):
    return percentile(values, 0.5)
