"""A node of a Mooncake store, with the client that the reference uses.

Usage: node.py HOST:PORT BYTES: of the master, and of the memory for blocks. Each line of standard input is a JSON array of
a command and its arguments; each is answered by one line of JSON.
"""

import json
import sys

from mooncake.store import MooncakeDistributedStore, ReplicateConfig

PART = 1000  # keys put at a time
EVENTS_TIMEOUT = 100  # milliseconds


def put(store, keys, size=1, fields=None):
    config = ReplicateConfig()
    for name, value in (fields or {}).items():
        setattr(config, name, value)
    for i in range(0, len(keys), PART):
        part = keys[i : i + PART]
        error = store.put_batch(part, [b"x" * size] * len(part), config)
        if error:
            return error
    return 0


def follow(endpoint):
    import zmq

    socket = zmq.Context.instance().socket(zmq.SUB)
    socket.set_hwm(0)
    socket.subscribe(b"")
    socket.connect(endpoint)
    return socket


def events(socket):
    import msgpack

    found = []
    while socket.poll(0 if found else EVENTS_TIMEOUT):
        _, _, payload = socket.recv_multipart()
        found += [[e["event_type"], e.get("object_key", "")] for e in msgpack.unpackb(payload, strict_map_key=False)[1]]
    return found


def answer(result):
    print(json.dumps(result), flush=True)


def main():
    store = MooncakeDistributedStore()
    error = store.setup("127.0.0.1", "P2PHANDSHAKE", int(sys.argv[2]), 16 << 20, "tcp", "", sys.argv[1])
    if error:
        sys.exit(f"setup: {error}")
    answer("ready")
    followed = None
    for line in sys.stdin:
        command, *arguments = json.loads(line)
        if command == "put":
            result = put(store, *arguments)
        elif command == "exist":
            result = store.batch_is_exist(*arguments)
        elif command == "remove":
            result = store.remove(*arguments)
        elif command == "get":
            result = len(store.get(*arguments))
        elif command == "follow":
            followed = follow(*arguments)
            result = True
        elif command == "events":
            result = events(followed)
        elif command == "remove all":
            result = store.remove_all(True)
        else:
            sys.exit(f"unknown command {command}")
        answer(result)


if __name__ == "__main__":
    main()
