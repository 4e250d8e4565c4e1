"""A program that launches for long, its threads coming and going and its modules reloaded, watched from outside.

Memory, descriptors, disk and the recorder's CPU time per event must stay flat.

Used by tools/soak.sh run. Exit 1 when something grows beyond noise.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import sys
import tempfile
import time

import kill_rounds
from sim_host import segments

COLUMNS = ("seconds", "events", "rss_kib", "anon_kib", "fds", "threads", "disk_kib", "cpu_us_per_event")
# The pages of the flight file's pool (32 MiB) come in one by one until each chunk has been used once.
POOL_RECORDS = 2048 * 255


def own_tasks(pid):
    """Our own threads, recorder and compressor: CPU time in ns, and their descriptors (a table of their own)."""
    spent, descriptors = 0, 0
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        try:
            if (task / "comm").read_text().startswith("gpuflight"):
                spent += int((task / "schedstat").read_text().split()[0])
                descriptors = max(descriptors, len(os.listdir(task / "fd")))
        except OSError:
            continue  # it ended meanwhile
    return spent, descriptors


def disk_kib(folder):
    blocks = 0
    for file in folder.iterdir():
        try:
            blocks += file.stat().st_blocks if file.suffix != ".flight" else 0
        except FileNotFoundError:
            continue  # compressed or rotated away meanwhile
    return blocks // 2


def sample(round_, began, before):
    pid = round_.process.pid
    status = pathlib.Path(f"/proc/{pid}/status").read_text()
    value = {line.split(":")[0]: line.split()[1] for line in status.splitlines() if len(line.split()) > 1}
    launches, graphs, _ = kill_rounds.counted(round_.counters)
    spent, descriptors = own_tasks(pid)
    now = {"seconds": time.monotonic() - began, "events": launches + graphs, "rss_kib": int(value["VmRSS"]),
           "anon_kib": int(value["RssAnon"]), "fds": len(os.listdir(f"/proc/{pid}/fd")) + descriptors,
           "threads": int(value["Threads"]), "spent": spent,
           "disk_kib": disk_kib(round_.folder)}
    new = now["events"] - (before["events"] if before else 0)
    # A compressor's thread takes its time with it when it ends: such a sample says nothing.
    new_spent = spent - (before["spent"] if before else 0)
    now["cpu_us_per_event"] = new_spent / 1e3 / new if new > 0 and new_spent >= 0 else (
        before["cpu_us_per_event"] if before else 0.0)
    return now


def slope(samples, column):
    """Change per hour by least squares, and what of it noise could be (two standard errors)."""
    xs = [s["seconds"] / 3600 for s in samples]
    ys = [s[column] for s in samples]
    if len(xs) < 3 or len(set(ys)) == 1:
        return 0.0, 0.0
    mean_x, mean_y = statistics.fmean(xs), statistics.fmean(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    rise = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys)) / spread
    rest = sum((y - mean_y - rise * (x - mean_x)) ** 2 for x, y in zip(xs, ys)) / (len(xs) - 2)
    return rise, 2 * (rest / spread) ** 0.5


# What may change over the samples behind the warm-up, beside two standard errors of the slope: an absolute floor below
# which nobody would call it growth.
FLOORS = {"rss_kib": 2048, "anon_kib": 2048, "fds": 3, "threads": 4, "cpu_us_per_event": 0.5}


def judge(samples, log_max_kib):
    wrong = []
    hours = (samples[-1]["seconds"] - samples[0]["seconds"]) / 3600
    print(f"\n{'':<18}{'first':>12}{'last':>12}{'most':>12}{'per hour':>14}{'noise':>12}")
    for column in COLUMNS[2:]:
        rise, noise = slope(samples, column)
        values = [s[column] for s in samples]
        print(f"{column:<18}{values[0]:>12.1f}{values[-1]:>12.1f}{max(values):>12.1f}{rise:>14.1f}{noise:>12.1f}")
        if column in FLOORS and (rise - noise) * hours > FLOORS[column]:
            wrong.append(f"{column} grows: {rise:.1f} an hour")
    if log_max_kib and max(s["disk_kib"] for s in samples) > log_max_kib:
        wrong.append(f"the log takes {max(s['disk_kib'] for s in samples)} KiB, its bound is {log_max_kib}")
    return wrong


def main():
    parser = argparse.ArgumentParser(prog="tools/soak.sh run", description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=3600)
    parser.add_argument("--rate", type=float, default=50_000, help="launches per second, all threads together")
    parser.add_argument("--threads", type=int, default=16)
    parser.add_argument("--life", type=int, default=5_000, help="launches after which a thread is replaced by another")
    parser.add_argument("--reload-ms", type=int, default=50)
    parser.add_argument("--log-max-mib", type=int, default=1024)
    parser.add_argument("--every", type=float, default=0, help="seconds between samples (default: a 60th of it all)")
    parser.add_argument("--folder", type=pathlib.Path, help="where the recording goes (default: a temporary folder)")
    options = parser.parse_args()
    every = options.every or max(0.5, min(30, options.seconds / 60))
    folder = options.folder or pathlib.Path(tempfile.mkdtemp(prefix="gpuflight-soak."))
    round_ = kill_rounds.Round(folder / "run", "--threads", options.threads, "--rate", options.rate,
                               "--life", options.life, "--reload-ms", options.reload_ms, "--seconds", options.seconds,
                               GPUFLIGHT_LOG_MAX=f"{options.log_max_mib}M", GPUFLIGHT_EXIT_TIMEOUT_MS="60s",
                               GPUFLIGHT_LOG_SEGMENT=f"{max(1, options.log_max_mib // 16)}M")
    began = time.monotonic()
    samples, last = [], None
    print("  ".join(f"{c:>16}" for c in COLUMNS), flush=True)
    try:
        round_.wait_for_launches(1)
        while round_.process.poll() is None and time.monotonic() - began < options.seconds - every / 2:
            time.sleep(every)
            try:
                last = sample(round_, began, last)
            except (OSError, KeyError):  # it has just ended
                if round_.process.poll() is None:
                    raise
                break
            samples.append(last)
            cells = (f"{last[c]:>16.2f}" if isinstance(last[c], float) else f"{last[c]:>16}" for c in COLUMNS)
            print("  ".join(cells), flush=True)
        code = round_.wait()
    finally:
        round_.close()
    wrong = [f"the program ended with {code}: {round_.stderr[-500:]}"] if code != 0 else []
    # The first third fills caches and tables, and the disk up to its bound.
    settled = [s for s in samples[len(samples) // 3:] if s["events"] > POOL_RECORDS * 5 // 4]
    if len(settled) < 8:
        wrong.append(f"only {len(settled)} samples behind the first {POOL_RECORDS * 5 // 4} events: too few to "
                     "speak of growth; let it run longer or faster")
    else:
        wrong += judge(settled, options.log_max_mib * 1024)
    wrong += account(round_, samples[-1] if samples else None)
    if not options.folder:
        shutil.rmtree(folder, ignore_errors=True)
    for what in wrong:
        print(f"FAILED: {what}")
    print("soak run: " + ("FAILED" if wrong else "flat"))
    return 1 if wrong else 0


def account(round_, last):
    """The recording's own last line against what the program counted."""
    launches, graphs, _ = kill_rounds.counted(round_.counters)
    lines = (round_.log.read_bytes() if segments(round_.log) else b"").splitlines()
    end = json.loads(lines[-1]) if lines else {}
    if end.get("type") != "session_end":
        return ["the log has no session_end"]
    rate = (launches + graphs) / last["seconds"] if last else 0
    print(f"\n{launches + graphs} launches ({rate:.0f} per second); "
          + ", ".join(f"{k} {end[k]}" for k in ("seen", "written", "summarised", "pending", "lost", "rotated_away")))
    wrong = []
    if end["seen"] != launches + graphs:
        wrong.append(f"seen {end['seen']}, the program counted {launches + graphs}")
    if end["seen"] != end["written"] + end["summarised"] + end["pending"] + end["lost"]:
        wrong.append("the ledger does not balance")
    if end["lost"]:
        wrong.append(f"lost {end['lost']}: {end['lost_by_cause']}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
