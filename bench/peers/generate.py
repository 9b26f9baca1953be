#!/usr/bin/env python3
"""Writing text with a Llama-shaped model: examples/gpt beside PyTorch, token by token with a cache, on one thread.

usage: generate.py BUILD [--layers N] [--width N] [--tokens N] [--folder FOLDER]

Makes a checkpoint of random weights. Times are those of processors, from the difference of a long and a short text.
Needs torch and numpy.
"""
import argparse
import json
import os
import pathlib
import resource
import struct
import subprocess
import sys
import time

import numpy
import torch
from torch.nn import functional as F

HEADS, KEY_HEADS, WORDS, CONTEXT, PROMPT = 12, 4, 8192, 1024, "The cat sat on the mat"


def write_checkpoint(folder, layers, width):
    rng, inner = numpy.random.default_rng(1), width * 8 // 3 // 32 * 32
    small = width // HEADS * KEY_HEADS
    shapes = {"model.embed_tokens.weight": (WORDS, width), "model.norm.weight": (width,), "lm_head.weight": (WORDS, width)}
    for i in range(layers):
        shapes |= {f"model.layers.{i}.{name}.weight": shape for name, shape in {
            "input_layernorm": (width,), "post_attention_layernorm": (width,), "self_attn.q_proj": (width, width),
            "self_attn.k_proj": (small, width), "self_attn.v_proj": (small, width), "self_attn.o_proj": (width, width),
            "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width), "mlp.down_proj": (width, inner)}.items()}
    weights = {name: (1 + 0.1 * rng.standard_normal(s) if len(s) == 1 else rng.standard_normal(s) / width**0.5).astype("float32")
               for name, s in shapes.items()}
    folder.mkdir(parents=True, exist_ok=True)
    config = {"model_type": "llama", "num_hidden_layers": layers, "num_attention_heads": HEADS, "num_key_value_heads": KEY_HEADS,
              "hidden_size": width, "intermediate_size": inner, "max_position_embeddings": CONTEXT, "vocab_size": WORDS,
              "rms_norm_eps": 1e-5, "rope_theta": 10000.0}
    (folder / "config.json").write_text(json.dumps(config))
    golden = pathlib.Path(__file__).parents[2] / "tests/gpt/golden/llama/tokenizer.json"
    (folder / "tokenizer.json").write_text(golden.read_text())
    header, at = {}, 0
    for name, w in weights.items():
        header[name] = {"dtype": "F32", "shape": list(w.shape), "data_offsets": [at, at + w.nbytes]}
        at += w.nbytes
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for w in weights.values():
            file.write(w.tobytes())
    return config, {name: torch.from_numpy(w) for name, w in weights.items()}


class Decoder:
    """The same model in PyTorch, with keys and values of the positions so far."""

    def __init__(self, config, weights):
        self.w, self.layers, self.width = weights, config["num_hidden_layers"], config["hidden_size"]
        self.size = self.width // HEADS
        self.cache = torch.zeros(self.layers, 2, KEY_HEADS, CONTEXT, self.size)
        places = torch.arange(CONTEXT)[:, None] * config["rope_theta"] ** (-torch.arange(0, self.size, 2) / self.size)
        self.cos, self.sin, self.at = torch.cat([places.cos()] * 2, 1), torch.cat([places.sin()] * 2, 1), 0

    def turn(self, x, first, last):
        a, b = x.chunk(2, -1)
        return x * self.cos[first:last] + torch.cat([-b, a], -1) * self.sin[first:last]

    @torch.inference_mode()
    def forward(self, tokens):
        first, last = self.at, self.at + len(tokens)
        x = self.w["model.embed_tokens.weight"][tokens]
        for i in range(self.layers):
            w = lambda name, i=i: self.w[f"model.layers.{i}.{name}.weight"]
            y = F.rms_norm(x, (self.width,), w("input_layernorm"), 1e-5)
            heads = lambda name, y=y: F.linear(y, w(name)).view(len(tokens), -1, self.size).transpose(0, 1)
            self.cache[i, 0, :, first:last] = self.turn(heads("self_attn.k_proj"), first, last)
            self.cache[i, 1, :, first:last] = heads("self_attn.v_proj")
            q = self.turn(heads("self_attn.q_proj"), first, last)
            seen = F.scaled_dot_product_attention(q[None], self.cache[None, i, 0, :, :last], self.cache[None, i, 1, :, :last],
                                                  is_causal=len(tokens) > 1, enable_gqa=True)[0]
            x = x + F.linear(seen.transpose(0, 1).reshape(len(tokens), self.width), w("self_attn.o_proj"))
            y = F.rms_norm(x, (self.width,), w("post_attention_layernorm"), 1e-5)
            x = x + F.linear(F.silu(F.linear(y, w("mlp.gate_proj"))) * F.linear(y, w("mlp.up_proj")), w("mlp.down_proj"))
        self.at = last
        return F.linear(F.rms_norm(x[-1], (self.width,), self.w["model.norm.weight"], 1e-5), self.w["lm_head.weight"])


def ours(build, folder, tokens):
    """Seconds of processors that the example takes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([pathlib.Path(build) / "bin/examples/gpt", folder, PROMPT, "--tokens", str(tokens), "--temperature", "0"],
                            env={**os.environ, "FERMATA_NUM_THREADS": "1"}, capture_output=True, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--folder", default="/tmp/fermata_generate")
    options = parser.parse_args()
    torch.set_num_threads(1)
    folder = pathlib.Path(options.folder)
    config, weights = write_checkpoint(folder, options.layers, options.width)
    short, long = 8, 8 + options.tokens
    ours(options.build, folder, short)  # kernels are in the disk cache from now on
    few, many, best_torch = [], [], 1e9
    for number in range(3):
        print(f"generate: {number + 1} of 3", file=sys.stderr, flush=True)
        few.append(ours(options.build, folder, short)), many.append(ours(options.build, folder, long))
        decoder = Decoder(config, weights)
        logits = decoder.forward(torch.arange(12))
        for i in range(long):
            if i == short:
                start = time.process_time()
            logits = decoder.forward(logits.argmax()[None])
        best_torch = min(best_torch, (time.process_time() - start) / (long - short))
    best_ours = (min(many) - min(few)) / options.tokens
    size = sum(w.numel() for w in weights.values()) * 4 / 2**20
    print(f"{options.layers} layers of width {options.width}, {size:.0f} MiB of f32, one thread, in time of processors")
    print(f"fermata  {1 / best_ours:8.1f} tokens/s")
    print(f"PyTorch  {1 / best_torch:8.1f} tokens/s ({torch.__version__})")


if __name__ == "__main__":
    main()
