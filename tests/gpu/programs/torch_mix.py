"""A bit of everything PyTorch does to launch kernels, with output that is the same on every run of one machine:
matrix products (fp32, bf16), elementwise, reductions, autograd, streams, a captured and replayed graph, threads."""
import hashlib
import threading

import torch

DEVICE = torch.device("cuda")


def show(name, tensor):
    torch.cuda.synchronize()
    data = tensor.detach().to("cpu", torch.float64).contiguous().numpy().tobytes()
    print(f"{name} {tuple(tensor.shape)} {hashlib.sha256(data).hexdigest()[:16]}", flush=True)


def whole_numbers(*shape):
    """Small integers: sums and products of them are exact in any order."""
    return torch.randint(-4, 5, shape, generator=torch.Generator().manual_seed(len(shape))).to(DEVICE, torch.float32)


def matrix_products():
    a, b = whole_numbers(384, 256), whole_numbers(256, 320)
    show("matmul_fp32", a @ b)
    show("matmul_bf16", (a[:, :64].bfloat16() @ b[:64].bfloat16()).float())
    show("bmm", torch.bmm(a.view(4, 96, 256), b.view(1, 256, 320).expand(4, -1, -1)))


def elementwise_and_reductions():
    a = whole_numbers(1000, 777)
    for _ in range(50):
        a.add_(1).mul_(-1)
    show("elementwise", a)
    show("sum", a.sum(dim=1))
    show("max", a.max(dim=0).values)
    show("sorted", torch.sort(a.flatten())[0])
    show("where", torch.where(a > 0, a, a * 2).cumsum(dim=1))


def training_steps():
    torch.manual_seed(1)
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8)).to(DEVICE)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.125)
    x, y = whole_numbers(32, 64), whole_numbers(32, 8)
    for _ in range(5):
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    show("trained", model[2].weight)


def two_streams():
    a, b = whole_numbers(512, 512), whole_numbers(512, 512)
    streams = [torch.cuda.Stream(), torch.cuda.Stream(priority=-1)]
    torch.cuda.synchronize()
    for stream, tensor in zip(streams, (a, b)):
        with torch.cuda.stream(stream):
            for _ in range(20):
                tensor.add_(2).clamp_(max=50)
    torch.cuda.synchronize()
    show("streams", a - b)


def graph_replay():
    x = whole_numbers(256, 256)
    y = torch.zeros_like(x)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            y.copy_((x @ x).clamp(-9, 9))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_((x @ x).clamp(-9, 9))
        y.add_(1).mul_(2)
    for _ in range(25):
        graph.replay()
    show("graph", y)


def threads():
    results = [None] * 4

    def body(i):
        with torch.cuda.stream(torch.cuda.Stream()):
            t = torch.full((64, 64), float(i), device=DEVICE)
            for _ in range(200):
                t.add_(1)
            torch.cuda.current_stream().synchronize()
            results[i] = t

    workers = [threading.Thread(target=body, args=(i,)) for i in range(4)]
    for w in workers:
        w.start()
    for w in workers:
        w.join()
    show("threads", torch.stack(results))


def main():
    torch.backends.cuda.matmul.allow_tf32 = False
    matrix_products()
    elementwise_and_reductions()
    training_steps()
    two_streams()
    graph_replay()
    threads()


main()
