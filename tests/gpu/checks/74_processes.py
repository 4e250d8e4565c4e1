# Processes as frameworks make them: DataLoader workers (fork and spawn), multiprocessing with CUDA in the children, and
# eight ranks side by side.
# limit_s: 150
# parallel: 1
import glob
import importlib.util
import os
import sys

import gpu_check as g

RANKS = 8
PROGRAM = r"""
import os, sys
import torch
import torch.multiprocessing as mp
from torch.utils.data import DataLoader, Dataset

class Numbers(Dataset):
    def __len__(self):
        return 64
    def __getitem__(self, i):
        return torch.full((4,), float(i))

def child(rank, out):
    x = torch.ones(1024, device="cuda")
    for _ in range(10 + rank):
        x.add_(1)
    torch.cuda.synchronize()
    out[rank] = float(x[0])

if __name__ == "__main__":
    x = torch.zeros(4, device="cuda")
    for context in ("fork", "spawn"):
        for batch in DataLoader(Numbers(), batch_size=16, num_workers=2, multiprocessing_context=context):
            x.add_(batch.cuda().sum(0))
    torch.cuda.synchronize()
    print("sum", x.tolist())
    out = mp.get_context("spawn").Manager().list([0.0, 0.0])
    mp.spawn(child, args=(out,), nprocs=2)
    print("children", list(out))
"""


def adds(log):
    return sum("CUDAFunctor" in (e["name"] or "") and "add" in (e["name"] or "").lower() for e in log.kernels())


with g.Check() as check:
    ranks = {}
    for rank in range(RANKS):
        label = f"rank{rank}"
        ranks[label] = g.start_preloaded(label, [g.program("incident_host"), "clean"], count=False, limit_s=60,
                                         extra={"RANK": str(rank), "WORLD_SIZE": str(RANKS),
                                                "GPUFLIGHT_LOG": g.work("ranks", "%r.ndjson")})
    torch_runs = {}
    if importlib.util.find_spec("torch"):
        path = g.work("processes.py")
        with open(path, "w") as f:
            f.write(PROGRAM)
        torch_runs = {"bare": g.start_plain("bare", [sys.executable, path], limit_s=120),
                      "recorded": g.start_preloaded("recorded", [sys.executable, path], count=False, limit_s=120)}
    for label, run in ranks.items():
        run.wait().succeeded(check)
    paths = sorted(glob.glob(g.work("ranks", "*.ndjson")))
    check.expect_equal([os.path.basename(p) for p in paths], [f"{r}.ndjson" for r in range(RANKS)], "files of the ranks")
    log = g.Log(paths)
    g.check_sound(check, log, "ranks")
    each = {os.path.basename(p): len(g.Log([p]).kernels()) for p in paths}
    check.expect_equal(set(each.values()), {316}, "launches of each rank")
    if torch_runs:
        for run in torch_runs.values():
            run.wait().succeeded(check)
        bare, recorded = torch_runs["bare"], torch_runs["recorded"]
        check.expect_equal(recorded.out, bare.out, "DataLoader and children: output")
        log = g.read_logs("recorded")
        g.check_sound(check, log, "processes")
        # The parent and the two children; the workers never use CUDA.
        check.expect_equal(len(log.paths), 3, "logs of the torch program")
        counts = sorted(adds(g.Log([p])) for p in log.paths)
        check.expect_equal(counts, [8, 10, 11], "additions by process")
        check.fact("additions", counts)
        check.fact("forks", len(log.of("fork_event")))
        check.fact("flights", len(glob.glob(g.work("recorded.*.flight"))))
        check.key = f"{RANKS} ranks of 316 launches each; DataLoader workers leave no file, 2 children have their own"
    else:
        check.key = f"{RANKS} ranks of 316 launches each; no torch here"
