# Launches of a triton program, counted twice.
# limit_s: 170
# parallel: 1
import framework_check

framework_check.run("triton", "triton_mix.py")
