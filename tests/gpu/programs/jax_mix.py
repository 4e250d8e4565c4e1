"""JAX: compiled functions, a scan, vmap, a gradient and calls from several threads, with output that is the same on
every run: all numbers are small integers."""
import hashlib
import os
import threading

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
import jax  # noqa: E402  the variable must stand before
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402


def show(name, array):
    data = np.asarray(array, dtype=np.float64)
    print(f"{name} {data.shape} {hashlib.sha256(data.tobytes()).hexdigest()[:16]}", flush=True)


def whole_numbers(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).integers(-4, 5, shape), dtype=jnp.float32)


@jax.jit
def layer(x, w):
    return jnp.clip(jnp.matmul(x, w, precision="highest"), -8, 8)


@jax.jit
def many_steps(x, w):
    return jax.lax.scan(lambda carry, _: (layer(carry, w), carry.sum()), x, None, length=12)


def main():
    if jax.devices()[0].platform not in ("gpu", "cuda"):
        raise SystemExit("JAX sees no GPU")
    x, w = whole_numbers(1, 96, 64), whole_numbers(2, 64, 64)
    show("layer", layer(x, w))
    final, sums = many_steps(x, w)
    show("scan", final)
    show("sums", sums)
    show("vmap", jax.vmap(lambda row: jnp.cumsum(row))(x))
    show("gradient", jax.grad(lambda v: (layer(x, v) * 0.5).sum())(w))
    show("sorted", jnp.sort(x.ravel()))
    results = [None] * 3

    def body(i):
        y = x + i
        for _ in range(20):
            y = layer(y, w)
        results[i] = y.block_until_ready()

    workers = [threading.Thread(target=body, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    show("threads", jnp.stack(results))


main()
