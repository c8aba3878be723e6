"""Records the lookups of an engine and asks each of vLLM's own server and of hitline too.

Runs in vLLM's environment.
"""

import time

import zmq

SERVER_TIMEOUT = 20  # seconds that vLLM's own server may take
DIRECT_TIMEOUT = 20  # seconds that hitline may take


class Lookups:
    """Wraps lookup of the engine's client."""

    def __init__(self, client, vllm_config):
        self.client = client
        self.original = client.lookup
        self.server = OwnServer(vllm_config)
        self.direct = None
        client.lookup = self.lookup
        self.begin(ask=False)

    def begin(self, ask, answered=None):
        """answered is called once, after the first answer."""
        self.ask, self.answered = ask, answered
        self.records, self.waits = {}, {}

    def of(self, request_id):
        """Returns the records of a request. vLLM may append to its identifier."""
        return [r for name, records in self.records.items() if name.partition("-")[0] == request_id for r in records]

    def summary(self):
        """Returns the longest that the engine waited for a call of lookup, in seconds, the tokens found, and which
        hits prompts of each length had."""
        records = [record for records in self.records.values() for record in records]
        found = {}
        for record in records:
            found.setdefault(record["tokens"], set()).add(record["engine"][0])
        return {
            "waited": max((wait for record in records for wait in record["waits"]), default=0),
            "hits": sum(record["engine"][0] for record in records),
            "found": {tokens: sorted(hits) for tokens, hits in found.items()},
        }

    def lookup(self, req_id, num_tokens, block_hashes, non_block=False):
        hashes = [bytes(h) for h in block_hashes] if self.ask else []
        before = self.server.lookup(num_tokens, hashes) if self.ask else None
        start = getattr(self.client, "num_computed", 0)
        started = time.monotonic()
        result = self.original(req_id, num_tokens, block_hashes, non_block=non_block)
        self.waits.setdefault(req_id, []).append(time.monotonic() - started)
        if result is not None:
            waits = self.waits.pop(req_id)
            record = {"tokens": num_tokens, "start": start, "engine": answer(result), "waits": waits}
            if self.ask:
                record.update(self.others(num_tokens, hashes), before=before)
                record["hashes"] = [h.hex() for h in hashes]
            self.records.setdefault(req_id, []).append(record)
            answered, self.answered = self.answered, None
            if answered:
                answered()
        return result

    def others(self, num_tokens, hashes):
        """Returns the answers of hitline, and then of vLLM's own server."""
        if self.direct is None or self.direct.address != self.client.address:  # a new server of the engine's own
            self.direct = connect(self.client)
        found = answer(self.direct.lookup_result(num_tokens, hashes))
        return {"hitline": found, "server": self.server.lookup(num_tokens, hashes)}


def answer(result):
    """Returns a result of any release as a list: the hit, then the tail boundaries."""
    if isinstance(result, int):
        return [result]
    return [result.hit_length, *([b.group_id, b.num_tokens] for b in result.tail_key_boundaries)]


def connect(client):
    """Returns a client of hitline for the engine's pool."""
    from hitline import Client

    reply = client.pool_reply
    if reply is None:
        raise ConnectionError("the engine's client has not described its pool to hitline")
    return Client(client.address, timeout=DIRECT_TIMEOUT, raise_errors=True, pool={"name": reply["name"]})


class OwnServer:
    """A client of the lookup server in vLLM's worker, with a deadline."""

    def __init__(self, vllm_config):
        self.vllm_config = vllm_config
        self.socket = None

    def lookup(self, num_tokens, hashes):
        from vllm.distributed.kv_transfer.kv_connector.v1.mooncake.store.worker import get_zmq_rpc_path_lookup

        if self.socket is None:
            self.socket = zmq.Context.instance().socket(zmq.REQ)
            self.socket.setsockopt(zmq.LINGER, 0)
            self.socket.setsockopt(zmq.RCVTIMEO, SERVER_TIMEOUT * 1000)
            self.socket.connect(get_zmq_rpc_path_lookup(self.vllm_config))
        size = len(hashes[0]) if hashes else 0
        frames = [b"lookup", num_tokens.to_bytes(4, "big"), size.to_bytes(2, "big"), b"".join(hashes)]
        self.socket.send_multipart(frames)
        return decode(self.socket.recv())


def decode(reply):
    """Returns the hit and the tail boundaries of a reply of vLLM's own server."""
    numbers = [int.from_bytes(reply[i : i + 4], "big") for i in range(0, len(reply), 4)]
    return [numbers[0], *(numbers[i : i + 2] for i in range(1, len(numbers), 2))]
