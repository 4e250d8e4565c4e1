"""Kills a launching program at random, many times over. Used by tools/soak.sh kill."""
import argparse
import pathlib
import shutil
import sys
import tempfile
import time

from kill_rounds import random_kill, seeded


def main():
    parser = argparse.ArgumentParser(prog="tools/soak.sh kill", description=__doc__)
    parser.add_argument("--rounds", type=int, default=500)
    parser.add_argument("--seconds", type=float, default=0, help="stop after so long, however many rounds were made")
    options = parser.parse_args()
    rng = seeded()
    folder = pathlib.Path(tempfile.mkdtemp(prefix="gpuflight-soak."))
    began = time.monotonic()
    launches = recovered = unfinished = done = 0
    try:
        while done < options.rounds and (not options.seconds or time.monotonic() - began < options.seconds):
            threads, returned, ledger = random_kill(folder / f"round{done}", rng)
            shutil.rmtree(folder / f"round{done}")
            done += 1
            launches += returned
            recovered += ledger["recovered"]
            unfinished += ledger["lost_by_cause"]["unfinished"]
            if done % 10 == 0 or done == options.rounds:
                print(f"{done:>5} rounds, {time.monotonic() - began:7.0f} s: {launches} launches returned, {recovered} "
                      f"events recovered, {unfinished} records cut off while being written, lost 0", flush=True)
    except AssertionError as error:
        print(f"FAILED in round {done} (kept in {folder}): {error}")
        return 1
    shutil.rmtree(folder, ignore_errors=True)
    print(f"soak kill: {done} rounds, nothing lost")
    return 0


if __name__ == "__main__":
    sys.exit(main())
