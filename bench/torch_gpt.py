"""A GPT-2 in PyTorch with the names and shapes of Hugging Face's: the model that gpt/ is compared with, in numbers and in time."""
import torch
from torch import nn
from torch.nn import functional as F


class Conv1D(nn.Module):
    """A linear layer whose weight is [in, out], as in Hugging Face's GPT-2."""

    def __init__(self, n_in, n_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(n_in, n_out).normal_(0, 0.02))
        self.bias = nn.Parameter(torch.zeros(n_out))

    def forward(self, x):
        return torch.addmm(self.bias, x.reshape(-1, x.shape[-1]), self.weight).view(*x.shape[:-1], -1)


class Attention(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.heads, self.width = heads, width
        self.c_attn = Conv1D(width, 3 * width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        batch, tokens, _ = x.shape
        q, k, v = (y.view(batch, tokens, self.heads, -1).transpose(1, 2) for y in self.c_attn(x).split(self.width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(batch, tokens, self.width))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc = Conv1D(width, 4 * width)
        self.c_proj = Conv1D(4 * width, width)

    def forward(self, x):
        return self.c_proj(F.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, heads, width):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(heads, width)
        self.ln_2 = nn.LayerNorm(width)
        self.mlp = Mlp(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class Gpt(nn.Module):
    def __init__(self, layers, heads, width, context, vocab):
        super().__init__()
        self.vocab = vocab
        self.wte = nn.Embedding(vocab, width)
        self.wpe = nn.Embedding(context, width)
        self.h = nn.ModuleList(Block(heads, width) for _ in range(layers))
        self.ln_f = nn.LayerNorm(width)
        nn.init.normal_(self.wte.weight, 0, 0.02)
        nn.init.normal_(self.wpe.weight, 0, 0.02)

    def forward(self, inputs, targets):
        x = self.wte(inputs) + self.wpe(torch.arange(inputs.shape[1]))
        for block in self.h:
            x = block(x)
        logits = F.linear(self.ln_f(x), self.wte.weight)
        return F.cross_entropy(logits.view(-1, self.vocab), targets.reshape(-1))


def groups_of(model, decay):
    """As `zro train` has them: matrices decay, vectors do not."""
    matrices = [p for p in model.parameters() if p.dim() == 2]
    vectors = [p for p in model.parameters() if p.dim() != 2]
    return [{"params": matrices, "weight_decay": decay}, {"params": vectors, "weight_decay": 0.0}]


def sequences(data, tokens, first, count):
    """Inputs and targets of windows [first, first + count) of a text, one after another, as with `--shuffle off`."""
    windows = (len(data) - 1) // tokens
    starts = [i % windows * tokens for i in range(first, first + count)]
    rows = torch.stack([data[s : s + tokens + 1] for s in starts])
    return rows[:, :-1], rows[:, 1:]
