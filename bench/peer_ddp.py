#!/usr/bin/python3
"""PyTorch's side of the rows with workers: DistributedDataParallel over Gloo, one process per rank.

The same models, samples and weights as ours (fixture.h), each rank with its part of the batch. Every
rank reads its orders from standard input (see server.h), so that all of them sleep between orders.
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 peer_ddp.py --model cnn --batch 64
"""
import argparse
import json
import time

import numpy
import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

FEATURES = {"cnn": 784, "mlp": 784, "large": 1024}


def uniform(stream, count):
    """As in fixture.h: SplitMix64's finaliser of the stream and the index, in [-1, 1)."""
    z = numpy.arange(count, dtype=numpy.uint64) + numpy.uint64((stream << 40) + 0x9E3779B97F4A7C15)
    z = (z ^ (z >> numpy.uint64(30))) * numpy.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> numpy.uint64(27))) * numpy.uint64(0x94D049BB133111EB)
    z ^= z >> numpy.uint64(31)
    return (z >> numpy.uint64(40)).astype(numpy.float32) * numpy.float32(2 / 16777216) - numpy.float32(1)


def make_model(name):
    if name == "mlp":
        return nn.Sequential(nn.Linear(784, 256), nn.ReLU(True), nn.Linear(256, 10))
    if name == "large":
        return nn.Sequential(nn.Linear(1024, 4096), nn.ReLU(True), nn.Linear(4096, 4096), nn.ReLU(True), nn.Linear(4096, 10))
    return nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(True), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(32 * 13 * 13, 10))


def set_weights(model, name):
    products = 0
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() < 2:
                parameter.zero_()
                continue
            scale = 1 / numpy.sqrt(numpy.float32(parameter.numel() // parameter.size(0)))
            values = torch.from_numpy(numpy.float32(scale) * uniform(16 + products, parameter.numel()))
            products += 1
            if name == "cnn" and parameter.dim() == 2:  # images are channels-last on our side
                values = values.view(10, 13, 13, 32).permute(0, 3, 1, 2)
            parameter.copy_(values.reshape(parameter.shape))


class Training:
    def __init__(self, options):
        rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
        model = make_model(options.model)
        set_weights(model, options.model)
        features = torch.from_numpy(0.5 + 0.5 * uniform(1, options.batch * FEATURES[options.model]))
        features = features.view(options.batch, -1)
        labels = torch.from_numpy(numpy.floor((0.5 + 0.5 * uniform(2, options.batch)) * 10)).long()
        own = slice(rank * options.batch // world, (rank + 1) * options.batch // world)
        self.features, self.labels = features[own].contiguous(), labels[own].contiguous()
        if options.model == "cnn":
            self.features = self.features.view(-1, 1, 28, 28)
            if options.layout == "channels_last":
                model = model.to(memory_format=torch.channels_last)
                self.features = self.features.contiguous(memory_format=torch.channels_last)
        self.model = DistributedDataParallel(model, gradient_as_bucket_view=True, bucket_cap_mb=options.bucket_mb)
        self.optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
        self.loss = None

    def steps(self, count):
        begin = time.perf_counter()
        for _ in range(count):
            self.optimizer.zero_grad(set_to_none=True)
            self.loss = nn.functional.cross_entropy(self.model(self.features), self.labels)
            self.loss.backward()
            self.optimizer.step()
        return time.perf_counter() - begin

    def mean_loss(self):
        loss = self.loss.detach().clone()
        torch.distributed.all_reduce(loss)
        return loss.item() / torch.distributed.get_world_size()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="cnn")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--layout", default="nchw")
    parser.add_argument("--bucket-mb", type=int, default=25)
    parser.add_argument("--rate", type=float, default=1e-6)
    options = parser.parse_args()
    torch.set_num_threads(1)
    torch.set_flush_denormal(True)
    torch.distributed.init_process_group("gloo")
    training = Training(options)
    print(json.dumps({"program": "PyTorch DDP", "version": torch.__version__, "backend": torch.distributed.get_backend()}), flush=True)
    while True:
        try:
            command, steps = input().split()
        except EOFError:
            return
        if command == "run":
            training.steps(max(1, int(steps) // 10))
            print(f"{training.steps(int(steps)):.9f}", flush=True)
        else:
            training.steps(int(steps))
            print(f"{training.mean_loss():.9g}", flush=True)


if __name__ == "__main__":
    main()
