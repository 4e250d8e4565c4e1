#!/usr/bin/env python3
"""Takes what names the machine out of recordings that are kept: paths, host, user, ids of processes and boots.

    scrub.py RECORDING.ndjson[.gz] ... FOLDER        writes FOLDER/RECORDING.ndjson.zst"""
import gzip
import json
import os
import pathlib
import subprocess
import sys

NEUTRAL = {"cwd": "/home/user", "host": "gpu", "user": None, "boot_id": "00000000-0000-0000-0000-000000000000", "pid": 1000,
           "ppid": 999}


def neutral(line):
    if not line.startswith(b'{"type":"session_start"'):
        return line
    event = json.loads(line)
    event.update(NEUTRAL)
    event["program"] = "/home/user/" + os.path.basename(event["program"])
    event["args"] = [os.path.basename(a) for a in event["args"]]
    event["configuration"] = {**event["configuration"], "log": os.path.basename(event["configuration"]["log"])}
    event["flight_path"] = None
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def main():
    *recordings, folder = map(pathlib.Path, sys.argv[1:])
    folder.mkdir(parents=True, exist_ok=True)
    for path in recordings:
        with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
            lines = b"".join(map(neutral, file))
        name = path.name.removesuffix(".gz") + ".zst"
        subprocess.run(["zstd", "-q", "-f", "-19", "-o", str(folder / name)], input=lines, check=True)


if __name__ == "__main__":
    main()
