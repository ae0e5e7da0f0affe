#!/usr/bin/python3
"""PyTorch's side of the rows of push and pull: one process per rank, rank 0 is the worker. A round sends a gradient to
the servers, a part to each, and receives as many weights; nothing is computed. By Gloo's send and receive, or by RPC.
  RANK=0 WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT=29500 peer_push_pull.py --by gloo
Rank 0 reads "run FLOATS N" and "check FLOATS" from standard input and answers as bench/push_pull.cc does."""
import argparse
import os
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.rpc as rpc

FLOATS = 32 << 20
STOP = 0


class Gloo:
    """Servers are told how many rounds come, and send back what they got."""

    def __init__(self, rank, world):
        dist.init_process_group("gloo", rank=rank, world_size=world)
        self.rank, self.servers = rank, range(1, world)
        parts = torch.zeros(FLOATS).chunk(world - 1)
        self.gradient, self.weights = [part.clone() for part in parts], [part.clone() for part in parts]

    def serve(self):
        count, own = torch.zeros(1, dtype=torch.int64), self.gradient[self.rank - 1]
        while True:
            dist.recv(count, 0)
            if count.item() == STOP:
                return
            for _ in range(count.item()):
                dist.recv(own, 0)
                dist.send(own, 0)

    def rounds(self, count):
        for server in self.servers:
            dist.send(torch.tensor([count]), server)
        for _ in range(count):
            waits = [dist.isend(self.gradient[server - 1], server) for server in self.servers]
            waits += [dist.irecv(self.weights[server - 1], server) for server in self.servers]
            for wait in waits:
                wait.wait()

    def close(self):
        for server in self.servers:
            dist.send(torch.tensor([STOP]), server)


def give_back(part):
    return part


class Rpc:
    def __init__(self, rank, world):
        options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=0)
        rpc.init_rpc(f"rank{rank}", rank=rank, world_size=world, rpc_backend_options=options)
        self.servers = range(1, world)
        self.gradient = [part.clone() for part in torch.zeros(FLOATS).chunk(world - 1)]
        self.weights = []

    def serve(self):
        rpc.shutdown()  # waits for the worker's end

    def rounds(self, count):
        for _ in range(count):
            calls = [rpc.rpc_async(f"rank{server}", give_back, args=(self.gradient[server - 1],)) for server in self.servers]
            self.weights = [call.wait() for call in calls]

    def close(self):
        rpc.shutdown()


def wrong_floats(way):
    for part in way.gradient:
        part.copy_(torch.arange(part.numel()) % 1009)
    way.rounds(1)
    return sum(int((a != b).sum()) for a, b in zip(way.gradient, way.weights))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--by", choices=["gloo", "rpc"], default="gloo")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    way = {"gloo": Gloo, "rpc": Rpc}[parser.parse_args().by](rank, world)
    if rank > 0:
        return way.serve()
    for line in sys.stdin:
        words = line.split()
        if int(words[1]) != FLOATS:
            sys.exit("error: not 128 MiB")
        if words[0] == "check":
            print(wrong_floats(way), flush=True)
            continue
        begin = time.perf_counter()
        way.rounds(int(words[2]))
        print(time.perf_counter() - begin, flush=True)
    way.close()


if __name__ == "__main__":
    main()
