"""A log that shows all of a page: the steps of a training program on two streams, with copies beside and host waits,
after the device of tests/analyze/timeline.py. What each kernel gets on an SM is what `gpuflight occupancy` says."""
import json
import random
import sys

from cli_support import SOURCE, tool

sys.path.insert(0, str(SOURCE / "tests" / "analyze"))
from made_logs import golden  # noqa: E402
from timeline import Timeline  # noqa: E402

#          mangled name, registers, block, static, dynamic shared memory, grid, ns
KERNELS = {
    "gemm": ("_ZN7cutlass6KernelI10DeviceGemmEEvNT_6ParamsE", 168, 256, 0, 98304, 264, 84_000),
    "attention": ("_Z13flash_forwardILi128ELi64EEvPKfS1_S1_Pfi", 152, 128, 0, 73728, 1056, 52_000),
    "norm": ("_Z10layer_normIfEvPKT_PS0_if", 40, 256, 2048, 0, 4096, 9_000),
    "softmax": ("_Z12softmax_warpIfLi10EEvPT_PKS0_ii", 32, 128, 0, 0, 8192, 11_000),
    "reduce": ("_Z18block_reduce_naivePKfPfi", 16, 256, 40960, 0, 2048, 14_000),
    "adam": ("_Z11adam_updatePfS_S_PKffff", 48, 512, 0, 0, 1400, 21_000),
}


def configured(timeline, name, regs, block, static, dynamic):
    number = timeline.kernel("x", block=block, regs=regs)
    answer = json.loads(tool("occupancy", "--arch", "sm_90", "--regs", regs, "--block", block, "--smem", static,
                             "--dynamic", dynamic, "--json").stdout)
    now = answer["boards"][0]["now"]
    timeline.configs[number - 1].update(
        name=name, static_shared_bytes=static, dyn_shared_bytes=dynamic, occupancy=now["occupancy"],
        max_active_blocks=now["max_active_blocks"], limit_blocks=now["limit_blocks"],
        limiting_resources=now["limiting_resources"], limiting_resource=now["limiting_resources"][0])
    return number


def training(path, steps=60, names=KERNELS, lost=0, **of_timeline):
    random.seed(5)
    t = Timeline(**of_timeline)
    compute, side, up, down = t.stream(), t.stream(priority=-1), t.stream(), t.stream()
    kernels = {key: (configured(t, *facts[:5]), facts[5], facts[6]) for key, facts in names.items()}

    def launch(key, stream, beside=False):
        config, grid, ns = kernels[key]
        t.launch(config, grid, stream, int(ns * random.uniform(.93, 1.1)), beside=beside)

    for step in range(steps):
        t.copy("htod", 3 << 20, up)
        for _ in range(4):
            launch("norm", compute)
            launch("gemm", compute)
            launch("attention", compute)
            launch("softmax", side, beside=True)
            launch("gemm", compute)
        launch("reduce", side, beside=True)
        for _ in range(3):
            launch("adam", compute)
        t.copy("dtoh", 1 << 16, down, memory="pageable", sync=True)
        t.sync()
        t.wait(140_000 if step % 10 == 9 else 25_000)
    t.write(path)
    program = '"/opt/app/train","args":["train","--steps","%d"]' % steps
    path.write_text(path.read_text().replace('"/opt/app/pairs","args":[]', program))
    end = golden("session_end")
    end.update(time_ns=t.now, seen=t.counter + lost, written=t.counter, summarised=0, pending=0, lost=lost,
               lost_by_cause={cause: 0 for cause in end["lost_by_cause"]} | {"pool_empty": lost}, rotated_away=0,
               null_time=0, table_full=0, occupancy_mismatch=0)
    with open(path, "a") as file:
        file.write(json.dumps(end) + "\n")
    return path
