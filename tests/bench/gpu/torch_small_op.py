"""Host time of one small PyTorch operation, a.add_(1): median over batches of 500 with a synchronise, untimed, after
each. One JSON line. Run in turns with and without the recorder by a check."""
import json
import statistics
import sys
import time

import torch

BATCH = 500


def main():
    batches = int(sys.argv[1]) if len(sys.argv) > 1 else 60
    a = torch.zeros(16, device="cuda")
    times = []
    for _ in range(batches + 5):
        begin = time.perf_counter_ns()
        for _ in range(BATCH):
            a.add_(1)
        end = time.perf_counter_ns()
        torch.cuda.synchronize()
        times.append((end - begin) / BATCH)
    print(json.dumps({"ns_per_op": statistics.median(times[5:]), "batches": batches}))


main()
