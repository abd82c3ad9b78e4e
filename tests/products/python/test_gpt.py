#!/usr/bin/env python3
"""The training of gpt/ against PyTorch's: test_gpt.py ZRO

PyTorch makes the first weights of a model whose names and shapes are Hugging Face's, and writes them with the safetensors
package; `zro train` begins with them, on two ranks.  PyTorch trains the same model on the same batches.  The losses of 20 steps
must agree within 1e-3, relative; and the weights that zro has written, read with the safetensors package into the model in
PyTorch, must give the loss of zro's next step, which shows that names and layout mean the same on both sides.
"""
import json
import math
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file, save_file
from torch import nn

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
from torch_gpt import Gpt, groups_of, sequences

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 3, 4, 64, 64, 256  # the preset nano
RANKS, BATCH, ACCUMULATE, STEPS = 2, 4, 2, 20
LR, DECAY, BETA1, BETA2, CLIP, WARMUP = 2e-3, 0.1, 0.9, 0.95, 1.0, 4
TOLERANCE = 1e-3


def batch_of_step(data, step):
    """All sequences of a step."""
    count = RANKS * BATCH * ACCUMULATE
    return sequences(data, CONTEXT, step * count, count)


def train_torch(model, data):
    optim = torch.optim.AdamW(groups_of(model, DECAY), lr=LR, betas=(BETA1, BETA2))
    losses = []
    for step in range(STEPS):
        for group in optim.param_groups:
            group["lr"] = LR * min(1, (step + 1) / WARMUP)
        optim.zero_grad()
        loss = model(*batch_of_step(data, step))
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optim.step()
        losses.append(loss.item())
    return losses


def train_zro(zro, folder, text, more):
    """Returns the losses of all steps in the log."""
    log = folder / "log"
    command = [zro, "train", "-n", RANKS, "--model", "nano", "--data", text, "--shuffle", "off", "--val-fraction", 0]
    command += ["--batch", BATCH, "--accumulate", ACCUMULATE, "--lr", LR, "--weight-decay", DECAY, "--warmup", WARMUP]
    command += ["--value", f"beta1={BETA1}", "--value", f"beta2={BETA2}", "--clip", CLIP, "--log", log]
    subprocess.run([str(x) for x in command + more], check=True, stdout=subprocess.DEVNULL, timeout=300)
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def check(what, got, wanted):
    off = abs(got - wanted) / abs(wanted)
    if not off <= TOLERANCE or math.isnan(off):
        sys.exit(f"{what}: zro {got}, PyTorch {wanted}: relative difference {off:.2g}, at most {TOLERANCE}")
    return off


def main():
    zro = pathlib.Path(sys.argv[1]).resolve()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    source = ROOT / "include" / "zro.h"
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "first").mkdir()
        model = Gpt(LAYERS, HEADS, WIDTH, CONTEXT, VOCAB)
        names = {k: v.clone() for k, v in model.state_dict().items()}
        # The real files have masks, which are no parameters, and some have a prefix.
        names = {"transformer." + k: v for k, v in names.items()}
        names["transformer.h.0.attn.bias"] = torch.ones(1, 1, CONTEXT, CONTEXT, dtype=torch.uint8)
        save_file(names, folder / "first" / "model.safetensors", metadata={"format": "pt"})
        data = torch.tensor(list(source.read_bytes()))
        losses = train_zro(zro, folder, source, ["--init", folder / "first", "--steps", STEPS, "--out", folder / "out"])
        wanted = train_torch(model, data)
        if len(losses) != STEPS or not wanted[-1] < wanted[0] - 1:
            sys.exit(f"{len(losses)} steps, loss from {wanted[0]} to {wanted[-1]}")
        worst = max(check(f"loss of step {i + 1}", *pair) for i, pair in enumerate(zip(losses, wanted)))

        written = load_file(folder / "out" / "model.safetensors")
        if set(written) != set(model.state_dict()):
            sys.exit(f"names differ: {set(written) ^ set(model.state_dict())}")
        model.load_state_dict(written)
        config = json.loads((folder / "out" / "config.json").read_text())
        if (config["n_layer"], config["n_head"], config["n_embd"], config["n_positions"]) != (LAYERS, HEADS, WIDTH, CONTEXT):
            sys.exit(f"config.json has {config}")
        more = train_zro(zro, folder, source, ["--out", folder / "out", "--resume", "--steps", STEPS + 1])
        with torch.no_grad():
            off = check("loss of the weights read back", more[-1], model(*batch_of_step(data, STEPS)).item())
        print(f"losses of {STEPS} steps: from {losses[0]:.4f} to {losses[-1]:.4f}, worst relative difference {worst:.2g}; "
              f"weights read back: {off:.2g}")


main()
