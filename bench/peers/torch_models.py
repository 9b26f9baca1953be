"""The networks of bench/models.cpp in PyTorch, with the weights that this engine made."""

import torch
import torch.nn.functional as F

WIDTH, HEADS, LAYERS, POSITION = 768, 12, 12, 512
STAGES = [(3, 64, 1), (4, 128, 2), (6, 256, 2), (3, 512, 2)]
INVERTED = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def split(weights):
    weights = iter(weights)
    tokens, positions = next(weights), next(weights)
    layers = [[next(weights) for _ in range(12)] for _ in range(LAYERS)]
    return tokens, positions, layers, next(weights), next(weights)


def heads(x, layer):
    y = F.linear(F.layer_norm(x, (WIDTH,), layer[0], layer[1]), layer[2], layer[3])
    return y.reshape(x.shape[0], 3, HEADS, WIDTH // HEADS).permute(1, 2, 0, 3).unbind()


def after_attention(x, seen, layer):
    y = x + F.linear(seen.permute(1, 0, 2).reshape(x.shape[0], WIDTH), layer[4], layer[5])
    wide = F.gelu(F.linear(F.layer_norm(y, (WIDTH,), layer[6], layer[7]), layer[8], layer[9]))
    return y + F.linear(wide, layer[10], layer[11])


def gpt2_loss(given, wanted, *weights):
    tokens, positions, layers, norm, bias = split(weights)
    x = F.embedding(given, tokens) + positions[: given.shape[0]]
    for layer in layers:
        q, k, v = heads(x, layer)
        x = after_attention(x, F.scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0], layer)
    return F.cross_entropy(F.linear(F.layer_norm(x, (WIDTH,), norm, bias), tokens), wanted)


def gpt2_training(engine, inputs):
    given, wanted, *weights = inputs
    for w in weights:
        w.requires_grad_(True)
    optimizer = torch.optim.AdamW(weights, lr=1e-4, weight_decay=0.01, fused=True)
    loss_of = torch.compile(gpt2_loss, dynamic=False) if engine.compiled else gpt2_loss

    def run():
        optimizer.zero_grad()
        loss = loss_of(given, wanted, *weights)
        loss.backward()
        optimizer.step()
        return [loss]

    return run


def gpt2_decoding(engine, inputs):
    token, caches, weights = inputs[0], inputs[1 : 1 + 2 * LAYERS], inputs[1 + 2 * LAYERS :]

    def step(token, caches, weights):
        tokens, positions, layers, norm, bias = split(weights)
        x = F.embedding(token, tokens) + positions[POSITION : POSITION + 1]
        for i, layer in enumerate(layers):
            q, k, v = heads(x, layer)
            keys, values = caches[2 * i], caches[2 * i + 1]
            keys[:, POSITION : POSITION + 1] = k
            values[:, POSITION : POSITION + 1] = v
            seen = F.scaled_dot_product_attention(q[None], keys[None, :, : POSITION + 1], values[None, :, : POSITION + 1])
            x = after_attention(x, seen[0], layer)
        return F.linear(F.layer_norm(x, (WIDTH,), norm, bias), tokens)

    return engine.prepared(step, [token, caches, weights])


def reader(weights):
    weights = iter(weights)

    def convolve(x, stride, padding, groups=1):
        w, scale, shift, mean, variance = (next(weights) for _ in range(5))
        return F.batch_norm(F.conv2d(x, w, None, stride, padding, 1, groups), mean, variance, scale, shift)

    def classify(x):
        return F.linear(x.mean((2, 3)), next(weights), next(weights))

    return convolve, classify


def resnet50(images, *weights):
    convolve, classify = reader(weights)
    x = F.max_pool2d(F.relu(convolve(images, 2, 3)), 3, 2, 1)
    for blocks, _, first_stride in STAGES:
        for i in range(blocks):
            stride = first_stride if i == 0 else 1
            y = F.relu(convolve(x, 1, 0))
            y = F.relu(convolve(y, stride, 1))
            y = convolve(y, 1, 0)
            x = F.relu(y + (convolve(x, stride, 0) if i == 0 else x))
    return classify(x)


def mobilenet_v2(images, *weights):
    convolve, classify = reader(weights)
    x = F.relu6(convolve(images, 2, 1))
    for widening, channels, blocks, first_stride in INVERTED:
        for i in range(blocks):
            stride = first_stride if i == 0 else 1
            y = x if widening == 1 else F.relu6(convolve(x, 1, 0))
            y = F.relu6(convolve(y, stride, 1, y.shape[1]))
            y = convolve(y, 1, 0)
            x = x + y if stride == 1 and x.shape[1] == channels else y
    return classify(F.relu6(convolve(x, 1, 0)))


def network_of(row):
    """The function of a row of images; nothing for other rows."""
    return resnet50 if row.startswith("resnet50") else mobilenet_v2 if row.startswith("mobilenet_v2") else None


def of_bf16(function):
    def run(*inputs):
        with torch.autocast("cpu", torch.bfloat16):
            return function(*inputs).float()

    return run


def write_onnx(row, inputs, path):
    """The network of a row, with its weights, as a model of its images."""

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            for i, w in enumerate(inputs[1:]):
                self.register_buffer(f"w{i}", w)

        def forward(self, images):
            return network_of(row)(images, *self.buffers())

    torch.onnx.export(Network().eval(), (inputs[0],), path, input_names=["images"], output_names=["scores"],
                      opset_version=18, dynamo=False)


def prepare(engine, row, inputs):
    if row == "gpt2_small_training_128":
        return gpt2_training(engine, inputs)
    if row == "gpt2_small_decoding_512":
        return gpt2_decoding(engine, inputs)
    network = network_of(row)
    return network and engine.prepared(of_bf16(network) if row.endswith("_bf16") else network, inputs)
