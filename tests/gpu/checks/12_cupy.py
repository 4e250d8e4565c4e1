# Launches of a cupy program, counted twice.
# limit_s: 170
# parallel: 1
import framework_check

framework_check.run("cupy", "cupy_mix.py")
