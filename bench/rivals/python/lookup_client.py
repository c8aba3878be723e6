"""A ZeroMQ client in Python that times its own requests, for hitbench compare.

It asks as an engine's lookup client does: a REQ socket of pyzmq, one request at a
time, of which the hashes are joined anew each time. It is written anew, not a copy of
any engine's.

Usage: lookup_client.py --chains N --hashes N --tokens N [--timeout SECONDS]

Standard input has the chains first, N times N hashes of 32 bytes, then one command a
line, in JSON; each is answered with a line of JSON on standard output:

    {"connect": "tcp://127.0.0.1:5555"}          {"socket": 0}
    {"socket": 0, "chains": [4, 2],              {"hits": [1024, 256], "ns": [81000, 79000]}
     "blocks": [64, 16], "absent": ["", "5f…"]}

Each chain of a batch is sent with the absent hash, in hex, at its block; an empty one
leaves the chain as it is. What went wrong is {"error": …}, with "bad": true if the
server sent what is no answer. The first line of output says that it is ready.
"""

import argparse
import gc
import json
import sys
import time

HASH_LEN = 32


class BadAnswer(Exception):
    """The server sent what is no answer to a lookup."""


def read_chains(stream, chains, hashes):
    """The chains, as lists of hashes."""
    size = hashes * HASH_LEN
    read = []
    for _ in range(chains):
        blob = stream.read(size)
        if len(blob) != size:
            raise EOFError(f"{len(blob)} of {size} bytes of a chain")
        read.append([blob[i : i + HASH_LEN] for i in range(0, size, HASH_LEN)])
    return read


def ask(socket, tokens, hashes, now=time.perf_counter_ns):
    """The hit of a lookup in tokens, and how many nanoseconds it took."""
    start = now()
    frames = (b"lookup", tokens.to_bytes(4, "big"), HASH_LEN.to_bytes(2, "big"), b"".join(hashes))
    socket.send_multipart(frames, copy=False)
    reply = socket.recv()
    hit = int.from_bytes(reply, "big")
    took = now() - start
    if len(reply) != 4:
        raise BadAnswer(reply[:64].hex())
    return hit, took


class Client:
    """Sockets that ask for the same chains."""

    def __init__(self, chains, tokens, connect):
        self.chains = chains
        self.tokens = tokens
        self.connect = connect  # makes a socket
        self.sockets = []

    def batch(self, socket, chains, blocks, absent):
        hits = []
        times = []
        for chain, block, block_hash in zip(chains, blocks, absent):
            hashes = self.chains[chain]
            if block_hash:
                hashes[block] = bytes.fromhex(block_hash)
            hit, took = ask(self.sockets[socket], self.tokens, hashes)
            hits.append(hit)
            times.append(took)
        return {"hits": hits, "ns": times}

    def do(self, command):
        """The reply to a command."""
        if "connect" in command:
            self.sockets.append(self.connect(command["connect"]))
            return {"socket": len(self.sockets) - 1}
        return self.batch(**command)


def serve(client, lines, out):
    """Answers the commands, each on its line."""
    for line in lines:
        try:
            reply = client.do(json.loads(line))
        except BadAnswer as e:
            reply = {"error": str(e), "bad": True}
        except Exception as e:
            reply = {"error": f"{type(e).__name__}: {e}", "bad": False}
        out.write(json.dumps(reply) + "\n")
        out.flush()


def connector(timeout):
    """A function that connects a REQ socket."""
    import zmq  # not above: the tests of the rest do without

    context = zmq.Context()

    def connect(address):
        socket = context.socket(zmq.REQ)
        for option in zmq.RCVTIMEO, zmq.SNDTIMEO:
            socket.setsockopt(option, int(timeout * 1000))
        socket.setsockopt(zmq.LINGER, 0)
        socket.connect(address)
        return socket

    return connect


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--chains", type=int, required=True)
    parser.add_argument("--hashes", type=int, required=True, help="of a chain")
    parser.add_argument("--tokens", type=int, required=True, help="of a chain")
    parser.add_argument("--timeout", type=float, default=20, help="seconds, the longest wait for an answer")
    args = parser.parse_args()
    connect = connector(args.timeout)
    print(json.dumps({"ready": True}), flush=True)
    chains = read_chains(sys.stdin.buffer, args.chains, args.hashes)
    gc.freeze()
    gc.disable()  # as the collector of the clients in Go
    serve(Client(chains, args.tokens, connect), sys.stdin.buffer, sys.stdout)


if __name__ == "__main__":
    main()
