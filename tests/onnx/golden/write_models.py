#!/usr/bin/env python3
"""Writes the models of golden_test.cpp with PyTorch's exporters, and models.npz: inputs, and what ONNX Runtime gives.

usage: write_models.py [FOLDER]

Needs torch, onnx, onnxscript and onnxruntime. Models have the shape of well-known ones and small random weights.
"""
import pathlib
import sys
import warnings

import numpy
import onnx
import onnxruntime
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(1)
WIDTH, HEADS, WORDS = 16, 2, 40


class Bottleneck(nn.Module):
    def __init__(self, inputs, middle, outputs, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, middle, 3, stride, 1, bias=False), nn.BatchNorm2d(middle), nn.ReLU(),
            nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs))
        self.side = nn.Sequential(nn.Conv2d(inputs, outputs, 1, stride, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        return F.relu(self.body(x) + self.side(x))


class ResNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, 8, 7, 2, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(3, 2, 1))
        self.blocks = nn.Sequential(Bottleneck(8, 4, 16, 1), Bottleneck(16, 8, 32, 2))
        self.head = nn.Linear(32, 10)

    def forward(self, x):
        return self.head(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


class InvertedResidual(nn.Module):
    def __init__(self, inputs, outputs, stride, kernel):
        super().__init__()
        middle = inputs * 4
        self.adds = stride == 1 and inputs == outputs
        self.expand = nn.Sequential(
            nn.Conv2d(inputs, middle, 1, bias=False), nn.BatchNorm2d(middle), nn.Hardswish(),
            nn.Conv2d(middle, middle, kernel, stride, kernel // 2, groups=middle, bias=False), nn.BatchNorm2d(middle), nn.ReLU6())
        self.excite = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(middle, 8, 1), nn.ReLU(), nn.Conv2d(8, middle, 1), nn.Hardsigmoid())
        self.project = nn.Sequential(nn.Conv2d(middle, outputs, 1, bias=False), nn.BatchNorm2d(outputs))

    def forward(self, x):
        y = self.expand(x)
        y = self.project(y * self.excite(y))
        return x + y if self.adds else y


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, 2, 1)
        self.blocks = nn.Sequential(InvertedResidual(8, 8, 1, 3), InvertedResidual(8, 16, 2, 5))
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.blocks(F.hardswish(self.stem(x))).mean([2, 3]))


class Embeddings(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(32, WIDTH)

    def forward(self, ids):
        return self.words(ids) + self.places(torch.arange(ids.shape[1]))


class Block(nn.Module):
    """Attention written out, as older models have it."""

    def __init__(self):
        super().__init__()
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)

    def heads(self, x):
        return [part.view(x.shape[0], x.shape[1], HEADS, WIDTH // HEADS).transpose(1, 2) for part in self.qkv(x).split(WIDTH, 2)]

    def joined(self, y, x):
        return self.out(y.transpose(1, 2).reshape(x.shape[0], x.shape[1], WIDTH))


class Bert(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings, self.norm = Embeddings(), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids, mask):
        x = self.norm(self.embeddings(ids))
        seen = (1.0 - mask[:, None, None, :].float()) * -10000.0
        for b in self.blocks:
            q, k, v = b.heads(x)
            scores = q @ k.transpose(-1, -2) / (WIDTH // HEADS) ** 0.5 + seen
            x = b.first(x + b.joined(F.softmax(scores, -1) @ v, x))
            x = b.second(x + b.down(F.gelu(b.up(x))))
        return x, torch.tanh(x[:, 0])


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.embeddings, self.norm = Embeddings(), nn.LayerNorm(WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])

    def forward(self, ids):
        x = self.embeddings(ids)
        for b in self.blocks:
            q, k, v = b.heads(b.first(x))
            x = x + b.joined(F.scaled_dot_product_attention(q, k, v, is_causal=True), x)
            x = x + b.down(F.gelu(b.up(b.second(x)), approximate="tanh"))
        return self.norm(x) @ self.embeddings.words.weight.T


class Whisper(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(10, WIDTH, 3, 1, 1), nn.Conv1d(WIDTH, WIDTH, 3, 2, 1)
        options = {"dim_feedforward": 2 * WIDTH, "dropout": 0.0, "activation": "gelu", "batch_first": True, "norm_first": True}
        self.encoder = nn.TransformerEncoderLayer(WIDTH, HEADS, **options)
        self.decoder = nn.TransformerDecoderLayer(WIDTH, HEADS, **options)
        self.words = nn.Embedding(WORDS, WIDTH)

    def forward(self, mel, ids):
        x = F.gelu(self.second(F.gelu(self.first(mel)))).transpose(1, 2)
        length = ids.shape[1]
        later = torch.triu(torch.full((length, length), float("-inf")), 1)
        return self.decoder(self.words(ids), self.encoder(x), tgt_mask=later) @ self.words.weight.T


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(6, 8, 2, batch_first=True, bidirectional=True)
        self.gru = nn.GRU(16, 8, batch_first=True)

    def forward(self, x):
        return self.gru(self.lstm(x)[0])[0]


def words(*shape):
    return torch.randint(0, WORDS, shape)


# Name, module, inputs by name, the axes of each that vary, exporters.
MODELS = [
    ("resnet", ResNet, {"x": torch.randn(2, 3, 32, 32)}, [{0: "n"}], ("script", "dynamo")),
    ("mobilenet", MobileNet, {"x": torch.randn(2, 3, 32, 32)}, [{0: "n"}], ("script",)),
    ("bert", Bert, {"ids": words(2, 9), "mask": (torch.arange(9) < torch.tensor([[9], [5]])).long()},
     [{0: "n", 1: "t"}, {0: "n", 1: "t"}], ("script", "dynamo")),
    ("gpt", Gpt, {"ids": words(2, 7)}, [{0: "n", 1: "t"}], ("script", "dynamo")),
    ("whisper", Whisper, {"mel": torch.randn(2, 10, 24), "ids": words(2, 6)}, [{0: "n"}, {0: "n", 1: "t"}], ("dynamo",)),
    ("lstm", Recurrent, {"x": torch.randn(3, 5, 6)}, [{0: "n"}], ("script",)),
]


def export(module, inputs, axes, exporter, path):
    arguments, names = tuple(inputs.values()), list(inputs)
    if exporter == "dynamo":
        dynamic = [{axis: torch.export.Dim.AUTO for axis in each} for each in axes]
        torch.onnx.export(module, arguments, path, input_names=names, dynamic_shapes=dynamic, dynamo=True, opset_version=18,
                          external_data=False, verbose=False)
    else:
        torch.onnx.export(module, arguments, path, input_names=names, dynamic_axes=dict(zip(names, axes)), dynamo=False, opset_version=17)
    # What nobody reads takes more room than the weights.
    model = onnx.load(path)
    for thing in [model, model.graph, *model.graph.node, *model.graph.input, *model.graph.output, *model.graph.value_info]:
        del thing.metadata_props[:]
        thing.doc_string = ""
    del model.graph.value_info[:]
    onnx.save(model, path)


def main():
    warnings.filterwarnings("ignore")
    folder = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent)
    arrays = {}
    for name, make, inputs, axes, exporters in MODELS:
        torch.manual_seed(0)
        module = make().eval()
        for part in module.modules():
            if isinstance(part, nn.BatchNorm2d):
                part.running_mean.normal_(0, 0.1), part.running_var.uniform_(0.5, 1.5)
        for exporter in exporters:
            path = str(folder / f"{name}_{exporter}.onnx")
            with torch.no_grad():
                export(module, inputs, axes, exporter, path)
            session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            results = session.run(None, {k: v.numpy() for k, v in inputs.items()})
            arrays.update({f"{name}.input.{k}": v.numpy() for k, v in inputs.items()})
            arrays.update({f"{name}.output.{i}": r for i, r in enumerate(results)})
            print(path, pathlib.Path(path).stat().st_size)
    numpy.savez_compressed(folder / "models.npz", **arrays)


if __name__ == "__main__":
    main()
