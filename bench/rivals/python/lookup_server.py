"""A lookup server in Python over ZeroMQ, to compare hitline with.

It does the work that an engine's own lookup thread does for one full-attention
group: it parses the frames, slices the hashes, builds the keys of the store, looks
each of them up, and computes the hit. The store is a set in this process, so no
network is in its answers. It is written anew, not a copy of any engine's.

Usage: lookup_server.py [--keys strings|hashes] [--block-size N]

With strings (the default) the set holds the store's keys as engines write them; with
hashes it holds the hashes as they came, which leaves out all that can be left out.
Requests are hitline's lookup and store over a ZeroMQ REP socket; the line on standard
error that says where it listens is hitline's own.
"""

import argparse
import json
import sys

import zmq


def slice_hashes(blob, hash_len):
    """The hashes of a request; a partial one at its end is ignored."""
    if hash_len == 0:
        return []
    return [blob[i : i + hash_len] for i in range(0, len(blob) - hash_len + 1, hash_len)]


def leading(hashes, present):
    """How many hashes from the first on are present."""
    count = 0
    for block_hash in hashes:
        if block_hash not in present:
            break
        count += 1
    return count


class KeyedStore:
    """A store of keys, asked for all that a lookup could need, as engines ask.

    The pool's groups are full-attention groups with equal specs: a block is there
    for the engine if every group has it, on all of its ranks.
    """

    model, tp_size, pp_size, groups = "m", 1, 1, 1  # looped over as engines do

    def __init__(self, block_size=16):
        self.block_size = block_size
        self.held = set()

    def key(self, group, block_hash, tp_rank, pp_rank):
        return f"{self.model}@tp_rank:{tp_rank}@pcp0@dcp0@pp_rank:{pp_rank}@group:{group}@{block_hash.hex()}"

    def candidates(self, hashes):
        """The places and the keys of all blocks, in the order in which they are asked for."""
        places = []
        keys = []
        for group in range(self.groups):
            for block_hash in hashes:
                for tp_rank in range(self.tp_size):
                    for pp_rank in range(self.pp_size):
                        places.append((group, block_hash))
                        keys.append(self.key(group, block_hash, tp_rank, pp_rank))
        return places, keys

    def store(self, hashes):
        _, keys = self.candidates(hashes)
        self.held.update(keys)

    def batch_is_exist(self, keys):
        held = self.held
        return [1 if key in held else 0 for key in keys]

    def present(self, hashes):
        """The pairs of group and hash that are on all ranks."""
        places, keys = self.candidates(hashes)
        counts = {}
        for place, answer in zip(places, self.batch_is_exist(keys)):
            if answer == 1:
                counts[place] = counts.get(place, 0) + 1
        ranks = self.tp_size * self.pp_size
        return {place for place, count in counts.items() if count >= ranks}

    def find(self, hashes, present):
        """The mask of the blocks that are hit."""
        mask = []
        for block_hash in hashes:
            for group in range(self.groups):
                if (group, block_hash) not in present:
                    return mask
            mask.append(True)
        return mask

    def lookup(self, token_len, hashes):
        """The hit in tokens."""
        asked = hashes[: token_len // self.block_size]
        if not asked:
            return 0
        return len(self.find(asked, self.present(asked))) * self.block_size


class BareStore:
    """A set of hashes: the least that Python has to do."""

    def __init__(self, block_size=16):
        self.block_size = block_size
        self.held = set()

    def store(self, hashes):
        self.held.update(hashes)

    def lookup(self, token_len, hashes):
        """The hit in tokens."""
        return leading(hashes[: token_len // self.block_size], self.held) * self.block_size


DONE = b"\x01"
REFUSED = b"\x00"


def answer(store, frames):
    """The reply to a request."""
    if len(frames) < 4:
        return REFUSED
    hashes = slice_hashes(frames[3], int.from_bytes(frames[2], "big"))
    if frames[0] == b"lookup":
        return store.lookup(int.from_bytes(frames[1], "big"), hashes).to_bytes(4, "big")
    if frames[0] == b"store":
        store.store(hashes)
        return DONE
    return REFUSED


def serve(store):
    socket = zmq.Context().socket(zmq.REP)
    port = socket.bind_to_random_port("tcp://127.0.0.1")
    ready = {"msg": "ready", "listen": [f"tcp://127.0.0.1:{port}"]}
    print(json.dumps(ready), file=sys.stderr, flush=True)
    while True:
        socket.send(answer(store, socket.recv_multipart()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--keys", choices=["strings", "hashes"], default="strings")
    parser.add_argument("--block-size", type=int, default=16, help="tokens a hash covers")
    args = parser.parse_args()
    serve((KeyedStore if args.keys == "strings" else BareStore)(block_size=args.block_size))


if __name__ == "__main__":
    main()
