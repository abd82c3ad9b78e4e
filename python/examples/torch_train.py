"""Trains a small transformer on the characters of a text, with PyTorch on several ranks of one machine:

    torchrun --nproc-per-node 2 python/examples/torch_train.py [--attached] [--steps 200] [--text FILE]

Everything is an ordinary PyTorch program but for three lines, which are marked with "zro".
"""
import argparse
import os
import time

import torch
import torch.distributed as dist
import torch.nn.functional as F

# zro: in place of torch.nn.parallel.DistributedDataParallel and torch.distributed.optim.ZeroRedundancyOptimizer
from zro.torch import DistributedDataParallel, ZeroRedundancyOptimizer, keep_freed_memory

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 128, 4, 2, 8


class Block(torch.nn.Module):
    """Attention to what came before, and a layer of its own for each position."""

    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(WIDTH), torch.nn.LayerNorm(WIDTH)
        self.qkv, self.out = torch.nn.Linear(WIDTH, 3 * WIDTH), torch.nn.Linear(WIDTH, WIDTH)
        self.mlp = torch.nn.Sequential(torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.GELU(), torch.nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (part.view(b, t, HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(self.norm1(x)).chunk(3, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, WIDTH))
        return x + self.mlp(self.norm2(x))


class Transformer(torch.nn.Module):
    def __init__(self, characters):
        super().__init__()
        self.tokens, self.places = torch.nn.Embedding(characters, WIDTH), torch.nn.Embedding(CONTEXT, WIDTH)
        self.blocks = torch.nn.Sequential(*(Block() for _ in range(LAYERS)))
        self.norm, self.head = torch.nn.LayerNorm(WIDTH), torch.nn.Linear(WIDTH, characters)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(tokens.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def batch(data, generator):
    starts = torch.randint(len(data) - CONTEXT, (BATCH,), generator=generator)
    rows = torch.stack([data[i:i + CONTEXT + 1] for i in starts.tolist()])
    return rows[:, :-1], rows[:, 1:]


def write(model, alphabet, characters=200):
    tokens = torch.zeros(1, 1, dtype=torch.long)
    with torch.no_grad():
        for _ in range(characters):
            likely = F.softmax(model(tokens[:, -CONTEXT:])[0, -1], dim=0)
            tokens = torch.cat([tokens, torch.multinomial(likely, 1).view(1, 1)], dim=1)
    return "".join(alphabet[i] for i in tokens[0].tolist())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0].rstrip(":"))
    parser.add_argument("--attached", action="store_true", help="average, update and publish in one pass over memory")
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--text", default=os.path.abspath(__file__), help="the file to learn from; by default this one")
    options = parser.parse_args()

    keep_freed_memory()  # zro: optional, and faster in every PyTorch program
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # ranks may begin with different values: those of rank 0 count
    with open(options.text, encoding="utf-8") as file:
        text = file.read()
    alphabet = sorted(set(text))
    data = torch.tensor([alphabet.index(c) for c in text])

    model = DistributedDataParallel(Transformer(len(alphabet)), attached=options.attached)
    # zro: clipping is a setting here, since in the attached form gradients are averaged in the step
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3, clip_norm=1.0,
                                        ddp=model if options.attached else None)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.steps)
    generator, begun = torch.Generator().manual_seed(100 + rank), time.monotonic()
    for step in range(1, options.steps + 1):
        inputs, targets = batch(data, generator)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0 and (step % 50 == 0 or step == options.steps):
            print(f"step {step}: loss {loss.item():.3f}, norm of the gradients {optimizer.grad_norm:.3f}, "
                  f"{(time.monotonic() - begun) / step * 1e3:.1f} ms per step", flush=True)

    optimizer.consolidate_state_dict(to=0)
    if rank == 0:
        state = optimizer.state_dict()
        torch.save({"model": model.module.state_dict(), "optimizer": state}, os.devnull)
        print(write(model.module, alphabet))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
