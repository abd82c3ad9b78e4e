#!/usr/bin/env python3
"""Weights of gpt/ and Hugging Face's transformers: test_transformers.py ZRO

transformers makes a GPT-2 and writes it as save_pretrained does.  `zro train` begins with it on two ranks: its first loss must be
that of transformers' model on the same sequences.  transformers reads what zro has written after some steps, with from_pretrained
and without a warning; the loss of that model must be that of zro's next step, and the tensors that it writes must be zro's, bit
for bit.
"""
import json
import logging
import pathlib
import subprocess
import sys
import tempfile

import torch
from safetensors.torch import load_file
from transformers import GPT2Config, GPT2LMHeadModel

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path.insert(0, str(ROOT / "bench"))
from torch_gpt import sequences

LAYERS, HEADS, WIDTH, CONTEXT, VOCAB = 3, 4, 64, 64, 256  # the preset nano
RANKS, BATCH, STEPS, TOLERANCE = 2, 4, 5, 1e-5
TEXT = ROOT / "include" / "zro.h"


class Loud(logging.Handler):
    """Whatever transformers warns of is a failure."""

    def emit(self, record):
        sys.exit(f"transformers: {record.getMessage()}")


def train(zro, folder, options):
    """The losses in the log."""
    log = folder / "log"
    command = [zro, "train", "-n", RANKS, "--model", "nano", "--data", TEXT, "--shuffle", "off", "--val-fraction", 0, "--batch",
               BATCH, "--log", log, *options]
    subprocess.run([str(word) for word in command], check=True, stdout=subprocess.DEVNULL, timeout=600)
    return [json.loads(line)["loss"] for line in log.read_text().splitlines()]


def loss_of(model, data, step):
    """Of all sequences of a step."""
    inputs, targets = sequences(data, CONTEXT, step * RANKS * BATCH, RANKS * BATCH)
    with torch.no_grad():
        logits = model.eval()(inputs).logits
    return torch.nn.functional.cross_entropy(logits.view(-1, VOCAB), targets.reshape(-1)).item()


def check(what, got, wanted):
    off = abs(got - wanted) / wanted
    if not off <= TOLERANCE:
        sys.exit(f"{what}: zro {got}, transformers {wanted}: relative difference {off:.2g}, at most {TOLERANCE}")


def main():
    zro = pathlib.Path(sys.argv[1]).resolve()
    logging.getLogger("transformers").addHandler(Loud(logging.WARNING))
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = torch.tensor(list(TEXT.read_bytes()))
    config = GPT2Config(vocab_size=VOCAB, n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS, bos_token_id=None,
                        eos_token_id=None)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        first = GPT2LMHeadModel(config)
        first.save_pretrained(folder / "first")
        losses = train(zro, folder, ["--init", folder / "first", "--steps", STEPS, "--out", folder / "out"])
        check("loss of the weights of transformers", losses[0], loss_of(first, data, 0))

        read, about = GPT2LMHeadModel.from_pretrained(folder / "out", output_loading_info=True)
        if any(about.values()):
            sys.exit(f"from_pretrained: {about}")
        more = train(zro, folder, ["--steps", STEPS + 1, "--out", folder / "out", "--resume"])
        check("loss of the weights of zro", more[-1], loss_of(read, data, STEPS))

        train(zro, folder, ["--steps", 1, "--out", folder / "one", "--init", folder / "first", "--lr", 1e-12, "--weight-decay", 0])
        GPT2LMHeadModel.from_pretrained(folder / "one").save_pretrained(folder / "back")
        ours, back = load_file(folder / "one" / "model.safetensors"), load_file(folder / "back" / "model.safetensors")
        back = {key.removeprefix("transformer."): value for key, value in back.items()}
        if set(ours) != set(back):
            sys.exit(f"names differ: {set(ours) ^ set(back)}")
        changed = [key for key in ours if not torch.equal(ours[key], back[key])]
        if changed:
            sys.exit(f"changed on the way through transformers: {changed}")
        print(f"{len(ours)} tensors to transformers and back; losses {losses[0]:.6f} and {more[-1]:.6f} on both sides")


main()
