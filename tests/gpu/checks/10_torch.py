# Launches of a torch program, counted twice.
# limit_s: 170
# parallel: 1
import framework_check

framework_check.run("torch", "torch_mix.py")
