"""Runs the GPU checks, each with its own time limit and scratch folder; one that fails, hangs or crashes never stops
the others. Writes results.json, measurements.md and logs.tar.gz, prints a short table last. Called by run.sh."""
import argparse
import concurrent.futures
import datetime
import glob
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
LOG_BYTES_KEPT = 200_000  # of each file that goes into logs.tar.gz: first and last halves
PARALLEL_CHECKS = 4
KEPT_SUFFIXES = (".log", ".out", ".err", ".json", ".ndjson", ".csv", ".md")


class CheckFile:
    def __init__(self, path):
        self.path = path
        self.name = re.sub(r"^\d+_", "", os.path.splitext(os.path.basename(path))[0])
        with open(path) as f:
            head = f.read(2000)
        self.limit_s = self.header(head, "limit_s", 60)
        self.parallel = bool(self.header(head, "parallel", 0))

    @staticmethod
    def header(text, key, default):
        found = re.search(rf"^# {key}: (\d+)", text, re.M)
        return int(found.group(1)) if found else default

    def command(self):
        return [sys.executable, self.path] if self.path.endswith(".py") else ["bash", self.path]


def discover(only):
    paths = sorted(glob.glob(os.path.join(HERE, "checks", "[0-9]*_*.*")))
    checks = [CheckFile(p) for p in paths if p.endswith((".py", ".sh"))]
    if not only:
        return checks
    wanted = set(only.split(","))
    unknown = wanted - {c.name for c in checks}
    if unknown:
        sys.exit(f"no such check: {', '.join(sorted(unknown))}; there are: {', '.join(c.name for c in checks)}")
    return [c for c in checks if c.name in wanted]


def run_check(check, scratch, deadline):
    folder = os.path.join(scratch, check.name)
    os.makedirs(folder, exist_ok=True)
    result_path = os.path.join(folder, "result.json")
    environment = {**os.environ, "GF_NAME": check.name, "GF_WORK": folder, "GF_RESULT": result_path,
                   "PYTHONPATH": HERE + os.pathsep + os.environ.get("PYTHONPATH", ""), "PYTHONDONTWRITEBYTECODE": "1"}
    started = time.monotonic()
    limit = min(check.limit_s, deadline - started)
    problem = None
    if limit < 1:
        return outcome(check, "skip", "no time left within the total limit", 0.0)
    with open(os.path.join(folder, "check.log"), "wb") as log:
        # A session of its own, so that whatever the check started ends with it.
        process = subprocess.Popen(check.command(), env=environment, stdout=log, stderr=subprocess.STDOUT,
                                   stdin=subprocess.DEVNULL, start_new_session=True, cwd=folder)
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            problem = f"stopped at its limit of {limit:.0f} s"
            code = None
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    seconds = time.monotonic() - started
    try:
        with open(result_path) as f:
            result = json.load(f)
    except (OSError, ValueError):
        return outcome(check, "fail", problem or f"no result written, exit {code}", seconds)
    if problem:
        result["status"], result["key"] = "fail", problem
    result.update(check=check.name, seconds=round(seconds, 1))
    return result


def outcome(check, status, key, seconds):
    return {"check": check.name, "status": status, "key": key, "facts": {},
            "failures": [key] if status == "fail" else [], "markdown": "", "seconds": round(seconds, 1)}


def run_all(checks, scratch, total_s):
    """Those marked parallel together first, then the rest one by one, since they measure time."""
    deadline = time.monotonic() + total_s
    results = {}

    def one(check):
        print(f"[{time.strftime('%H:%M:%S')}] {check.name} ...", file=sys.stderr, flush=True)
        try:
            result = run_check(check, scratch, deadline)
        except Exception as error:  # the runner's own trouble with one check
            result = outcome(check, "fail", f"runner: {error!r}", 0.0)
        results[check.name] = result
        print(f"[{time.strftime('%H:%M:%S')}] {check.name}: {result['status']} ({result['seconds']} s)",
              file=sys.stderr, flush=True)

    with concurrent.futures.ThreadPoolExecutor(PARALLEL_CHECKS) as pool:
        list(pool.map(one, [c for c in checks if c.parallel]))
    for check in checks:
        if not check.parallel:
            one(check)
    return [results[c.name] for c in checks]


def machine():
    facts = {"date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
             "cores": os.cpu_count(), "kernel": platform.release(), "python": platform.python_version()}
    try:
        asked = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,compute_cap,memory.total",
                                "--format=csv,noheader"], capture_output=True, text=True, timeout=30)
        lines = [line for line in asked.stdout.splitlines() if line.strip()]
        if asked.returncode == 0 and lines:
            name, driver, capability, memory = [part.strip() for part in lines[0].split(",")]
            facts.update(gpu=name, driver=driver, compute=capability, memory=memory, gpus=len(lines))
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        facts["gpu"] = f"not known ({error})"
    try:
        text = subprocess.run([os.environ.get("GF_NVCC") or "nvcc", "--version"], capture_output=True, text=True).stdout
        facts["nvcc"] = re.search(r"release ([\d.]+)", text).group(1)
    except (OSError, AttributeError):
        pass
    commit = subprocess.run(["git", "-C", HERE, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True)
    if commit.returncode == 0:
        facts["commit"] = commit.stdout.strip()
    return facts


def table(results):
    rows = [("check", "result", "s", "key figure")]
    rows += [(r["check"], r["status"], str(r["seconds"]), r["key"]) for r in results]
    widths = [max(len(row[i]) for row in rows) for i in range(3)]
    lines = []
    for row in rows:
        key = row[3] if len(row[3]) <= 150 else row[3][:147] + "..."
        lines.append("  ".join(row[i].ljust(widths[i]) for i in range(3)) + "  " + key)
    return "\n".join(lines)


def markdown(facts, results, command):
    out = ["# Measured on a GPU", "",
           f"- Date: {facts['date']}" + (f", commit {facts['commit']}" if "commit" in facts else ""),
           f"- GPU: {facts.get('gpu', 'none seen')} (compute {facts.get('compute', '?')}, {facts.get('memory', '?')}), "
           f"driver {facts.get('driver', '?')}, nvcc {facts.get('nvcc', 'none')}",
           f"- Host: {facts['cores']} cores, Linux {facts['kernel']}, Python {facts['python']}",
           f"- Command: `{command}`", "", "| check | result | key figure |", "| --- | --- | --- |"]
    for r in results:
        key = r["key"].replace("|", "\\|")
        out.append(f"| {r['check']} | {r['status']} | {key} |")
    for r in results:
        if r["markdown"]:
            out += ["", r["markdown"].strip()]
    return "\n".join(out) + "\n"


def pack_logs(scratch, path):
    """Every text file of the run, long ones cut in their middle; logs of millions of lines are not for keeping."""
    import io
    with tarfile.open(path, "w:gz") as archive:
        for folder, _, files in os.walk(scratch):
            for name in sorted(files):
                full = os.path.join(folder, name)
                if os.path.islink(full) or not name.endswith(KEPT_SUFFIXES):
                    continue
                size = os.path.getsize(full)
                with open(full, "rb") as f:
                    if size <= LOG_BYTES_KEPT:
                        data = f.read()
                    else:
                        data = f.read(LOG_BYTES_KEPT // 2) + f"\n... {size - LOG_BYTES_KEPT} bytes cut ...\n".encode()
                        f.seek(size - LOG_BYTES_KEPT // 2)
                        data += f.read()
                info = tarfile.TarInfo(os.path.relpath(full, scratch))
                info.size, info.mtime = len(data), int(time.time())
                archive.addfile(info, io.BytesIO(data))


def main():
    parser = argparse.ArgumentParser(prog="runner.py")
    parser.add_argument("--only", default="")
    parser.add_argument("--out", required=True)
    parser.add_argument("--scratch", required=True)
    parser.add_argument("--limit", type=float, default=440)
    parser.add_argument("--command", default="tests/gpu/run.sh")
    parser.add_argument("--keep", action="store_true")
    args = parser.parse_args()
    os.makedirs(args.out, exist_ok=True)
    os.makedirs(args.scratch, exist_ok=True)
    checks = discover(args.only)
    facts = machine()
    results = run_all(checks, args.scratch, args.limit)
    with open(os.path.join(args.out, "results.json"), "w") as f:
        json.dump({"machine": facts, "command": args.command, "results": results}, f, indent=1)
    with open(os.path.join(args.out, "measurements.md"), "w") as f:
        f.write(markdown(facts, results, args.command))
    pack_logs(args.scratch, os.path.join(args.out, "logs.tar.gz"))
    if not args.keep:
        shutil.rmtree(args.scratch, ignore_errors=True)
    for r in results:
        for failure in r["failures"][:6]:
            print(f"{r['check']}: {failure}"[:400])
    print(table(results))
    return 0 if all(r["status"] != "fail" for r in results) and any(r["status"] == "pass" for r in results) else 1


if __name__ == "__main__":
    sys.exit(main())
