"""A rank of PyTorch's side of bench/train: train_ranks.py SETTINGS STORE RESULT RANK

SETTINGS is JSON.  DistributedDataParallel with gradients as bucket views, ZeroRedundancyOptimizer with parameters as bucket
views and a fused AdamW: PyTorch's fastest eager form that shards the state.  Each step is preceded by a forward and backward
of the same batch without communication and without an update, under no_sync: that is the time of forward and backward alone.
After each, gradients are dropped and not filled with zeros, which is the faster way for PyTorch.
"""
import json
import os
import sys
import time

sys.dont_write_bytecode = True
import torch
import torch.distributed as dist
from safetensors.torch import load_file
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from torch_gpt import Gpt, groups_of, sequences


def timed(call):
    """What it returns, and the seconds of the slower rank."""
    dist.barrier()
    began = time.perf_counter()
    value = call()
    seconds = torch.tensor([time.perf_counter() - began], dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return value, seconds.item()


def main():
    settings, store, result, rank = json.loads(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
    ranks, batch, tokens = settings["ranks"], settings["batch"], settings["tokens"]
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=ranks)
    model = Gpt(*settings["model"])
    model.load_state_dict(load_file(settings["weights"]))
    with open(settings["data"], "rb") as file:
        data = torch.frombuffer(bytearray(file.read()), dtype=torch.uint8).long()
    ddp = DistributedDataParallel(model, gradient_as_bucket_view=True)
    optim = ZeroRedundancyOptimizer(groups_of(model, settings["decay"]), torch.optim.AdamW, parameters_as_bucket_view=True,
                                    lr=settings["lr"], fused=True)

    def pass_alone(inputs, targets):
        with ddp.no_sync():
            ddp(inputs, targets).backward()
        optim.zero_grad()

    def step(inputs, targets):
        loss = ddp(inputs, targets)
        loss.backward()
        optim.step()
        optim.zero_grad()
        return loss.detach()

    lines = []
    for i in range(settings["steps"]):
        # Of the sequences of a step, every second one is rank 1's.
        inputs, targets = (rows[rank::ranks] for rows in sequences(data, tokens, i * batch * ranks, batch * ranks))
        _, alone = timed(lambda: pass_alone(inputs, targets))
        loss, whole = timed(lambda: step(inputs, targets))
        dist.all_reduce(loss)
        lines.append({"loss": loss.item() / ranks, "ms": 1e3 * whole, "alone_ms": 1e3 * alone})
    if rank == 0:
        with open(result, "w", encoding="utf-8") as file:
            json.dump({"steps": lines, "torch": torch.__version__}, file)
    dist.barrier()
    os._exit(0)  # what PyTorch does at exit can wait for itself for ever


main()
