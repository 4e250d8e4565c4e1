# Launches of a jax program, counted twice.
# limit_s: 170
# parallel: 1
import framework_check

framework_check.run("jax", "jax_mix.py")
