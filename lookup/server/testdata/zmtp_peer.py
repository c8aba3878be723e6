"""A ZeroMQ client against a hitline server: zmtp_peer.py ADDRESS CHECK [TOKEN ...].

Requests are made as the reference's client makes them. Each check exits with 0, or
says what was wrong; TestZMTPPeers runs them.
"""

import hashlib
import resource
import sys
import threading
import time

import zmq
from zmq.utils.monitor import recv_monitor_message

ADDRESS = sys.argv[1]
TOKENS = [token.encode() for token in sys.argv[3:]]
BLOCK = 16  # tokens a hash covers
PATIENCE = 20_000  # milliseconds
PLACE = bytes(6)  # group 0 on the first ranks


def chain(seed, n):
    return [hashlib.sha256(f"{seed}:{i}".encode()).digest() for i in range(n)]


def frames(hashes):
    """A lookup as the reference's client builds it."""
    hash_len = len(hashes[0]) if hashes else 0
    tokens = BLOCK * len(hashes)
    return [b"lookup", tokens.to_bytes(4, "big"), hash_len.to_bytes(2, "big"), b"".join(hashes)]


def connect(kind=zmq.REQ, ctx=None, **options):
    s = (ctx or zmq.Context.instance()).socket(kind)
    s.setsockopt(zmq.LINGER, 0)
    s.setsockopt(zmq.RCVTIMEO, PATIENCE)
    s.setsockopt(zmq.SNDTIMEO, PATIENCE)
    for name, value in options.items():
        s.setsockopt(getattr(zmq, name), value)
    s.connect(ADDRESS)
    return s


def lookup(s, hashes):
    s.send_multipart(frames(hashes))
    return hit_of(s.recv_multipart())


def hit_of(reply):
    assert len(reply) == 1, f"the reference's client takes replies of one frame: {reply}"
    return int.from_bytes(reply[0], "big")


def request(s, *parts):
    s.send_multipart(list(parts))
    return s.recv_multipart()


def store(s, hashes):
    for at in range(0, len(hashes), 50_000):
        part = hashes[at : at + 50_000]
        same(request(s, b"store", PLACE, (32).to_bytes(2, "big"), b"".join(part)), [b"\x01"])


def same(got, want):
    assert got == want, f"{got!r}, expected {want!r}"


def check_sizes():
    """Lookups of 0 to 131,072 hashes, of which the first 100,000 are stored."""
    keys = chain("sizes", 131_072)
    s = connect()
    store(s, keys[:100_000])
    for n in (0, 1, 2, 3, 64, 1000, 2047, 8192, 32_768, 100_000, 100_001, 131_072):
        same(lookup(s, keys[:n]), BLOCK * min(n, 100_000))
    same(lookup(s, chain("other", 64)), 0)


def check_refusals():
    """What is answered 00, in one frame, and the connection goes on."""
    keys = chain("refusals", 4)
    s = connect()
    store(s, keys)
    for bad in ([b"LOOKUP"], [b""], [b"lookup"], [b"lookup", (17).to_bytes(4, "big"), b"\x00\x20", b"".join(keys)]):
        same(request(s, *bad), [b"\x00"])
    same(lookup(s, keys), 4 * BLOCK)


def check_reset():
    keys = chain("reset", 100)
    s = connect()
    store(s, keys)
    same(lookup(s, keys), 100 * BLOCK)
    same(request(s, b"reset"), [b"\x01"])
    same(lookup(s, keys), 0)


def together(*jobs):
    """Runs jobs in threads and passes on what they raise."""
    failed = []

    def run(job):
        try:
            job()
        except BaseException as e:  # an assertion must reach the main thread, too
            failed.append(e)

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    if failed:
        raise failed[0]


def client(seed, rounds, ctx=None):
    def run():
        s = connect(ctx=ctx)
        keys = chain(seed, 600)
        store(s, keys[:500])
        for n in range(rounds):
            same(lookup(s, keys[: n % 600]), BLOCK * min(n % 600, 500))
        s.close()

    return run


def check_two_clients():
    together(client("one", 600, zmq.Context()), client("two", 600, zmq.Context()))


def check_threads():
    together(*(client(f"thread {i}", 100) for i in range(8)))


def check_correlate():
    """A relaxed REQ that gives up on a reply must not take it for the next one."""
    keys = chain("correlate", 300)
    s = connect(REQ_CORRELATE=1, REQ_RELAXED=1)
    store(s, keys[:200])
    for n in range(1, 200):
        s.send_multipart(frames(keys[:100]))
        same(lookup(s, keys[:n]), BLOCK * n)


def check_dealer():
    """200 requests in flight, each with an id of its own; some have two frames."""
    keys = chain("dealer", 200)
    store(connect(), keys[:150])
    s = connect(zmq.DEALER)
    want = {}
    for n in range(200):
        envelope = [n.to_bytes(4, "big")] + [b"second"] * (n % 3 == 0) + [b""]
        s.send_multipart(envelope + frames(keys[:n]))
        want[n] = (envelope, BLOCK * min(n, 150))
    while want:
        reply = s.recv_multipart()
        envelope, hit = want.pop(int.from_bytes(reply[0], "big"))
        same(reply[:-1], envelope)
        same(hit_of(reply[-1:]), hit)


def check_no_delimiter():
    """A DEALER that forgets the delimiter gets no answer, and the next request one."""
    keys = chain("delimiter", 20)
    s = connect(zmq.DEALER)
    s.send_multipart(frames(keys))
    s.send_multipart([b"id", b""] + frames(keys))
    same(s.recv_multipart()[:2], [b"id", b""])


def disconnects(monitor, milliseconds):
    count, end = 0, time.monotonic() + milliseconds / 1000
    while (left := end - time.monotonic()) > 0 and monitor.poll(int(1000 * left) + 1):
        count += recv_monitor_message(monitor)["event"] == zmq.EVENT_DISCONNECTED
    return count


def check_heartbeats():
    keys = chain("heartbeats", 10)
    beats = dict(HEARTBEAT_IVL=100, HEARTBEAT_TIMEOUT=2000, HEARTBEAT_TTL=2000)
    s, d = connect(**beats), connect(zmq.DEALER, **beats)
    monitor = s.get_monitor_socket()
    store(s, keys)
    for _ in range(200):
        d.send_multipart([b""] + frames(keys))
    same(disconnects(monitor, 3500), 0)
    same(lookup(s, keys), 10 * BLOCK)
    for _ in range(200):
        same(d.recv_multipart(), [b"", (10 * BLOCK).to_bytes(4, "big")])


def check_many():
    """A thousand REQ sockets, all with a request in flight at once."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    ctx = zmq.Context()
    ctx.set(zmq.MAX_SOCKETS, 2000)
    keys = chain("many", 1100)
    store(connect(), keys)
    sockets = [connect(ctx=ctx) for _ in range(1000)]
    for _ in range(2):
        for n, s in enumerate(sockets):
            s.send_multipart(frames(keys[:n]))
        for n, s in enumerate(sockets):
            same(hit_of(s.recv_multipart()), BLOCK * n)


def failure(monitor):
    """Waits for the end of a handshake and returns its event."""
    ends = (zmq.EVENT_HANDSHAKE_SUCCEEDED, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.EVENT_HANDSHAKE_FAILED_NO_DETAIL,
            zmq.EVENT_HANDSHAKE_FAILED_AUTH, zmq.EVENT_DISCONNECTED)
    while monitor.poll(PATIENCE):
        event = recv_monitor_message(monitor)
        if event["event"] in ends:
            return event
    raise AssertionError("the handshake did not end")


def refusal(kind, **options):
    """Connects in vain and returns the event that ends the handshake."""
    s = zmq.Context().socket(kind)
    s.setsockopt(zmq.LINGER, 0)
    monitor = s.get_monitor_socket()
    for name, value in options.items():
        s.setsockopt(getattr(zmq, name), value)
    s.connect(ADDRESS)
    event = failure(monitor)
    assert event["event"] != zmq.EVENT_HANDSHAKE_SUCCEEDED, "the handshake succeeded"
    tries = 1
    while monitor.poll(700):
        tries += recv_monitor_message(monitor)["event"] == zmq.EVENT_CONNECTED
    same(tries, 1)  # told why, libzmq does not try again
    return event


def refused(kind, **options):
    good, keys = connect(), chain("refused", 10)
    store(good, keys)
    refusal(kind, **options)
    same(lookup(good, keys), 10 * BLOCK)


def check_pub():
    refused(zmq.PUB)


def check_sub():
    refused(zmq.SUB, SUBSCRIBE=b"")


def check_plain():
    refused(zmq.REQ, PLAIN_USERNAME=b"user", PLAIN_PASSWORD=b"secret")


def plain(token, name=b""):
    """The options of PLAIN. libzmq takes no empty ones, but sends those that are missing as empty."""
    return {k: v for k, v in dict(PLAIN_USERNAME=name, PLAIN_PASSWORD=token).items() if v}


def plain_client(name):
    """A token with heartbeats, for longer than a missing PONG would be borne."""

    def run():
        keys = chain("token", 100)
        options = dict(plain(TOKENS[0], name), HEARTBEAT_IVL=100, HEARTBEAT_TIMEOUT=2000, HEARTBEAT_TTL=2000)
        s, d = connect(**options), connect(zmq.DEALER, **options)
        monitor = s.get_monitor_socket()
        store(s, keys)
        same(lookup(s, keys), 100 * BLOCK)
        for n in range(100):
            d.send_multipart([n.to_bytes(4, "big"), b""] + frames(keys[:n]))
        for n in range(100):
            same(d.recv_multipart(), [n.to_bytes(4, "big"), b"", (n * BLOCK).to_bytes(4, "big")])
        same(disconnects(monitor, 2500), 0)
        same(lookup(s, keys), 100 * BLOCK)

    return run


def check_plain_token():
    """The username is empty or the credential's name."""
    together(plain_client(b""), plain_client(b"engines"))


def not_authenticated(event):
    """Requires that the handshake failed by the server's ERROR. libzmq 4.3 spells that command wrong
    (in its plain_common.hpp), so it does not know it and reports an unexpected one."""
    if event["event"] != zmq.EVENT_HANDSHAKE_FAILED_AUTH:
        same((event["event"], event["value"]), (zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL, zmq.PROTOCOL_ERROR_ZMTP_UNEXPECTED_COMMAND))


def check_plain_wrong():
    """libzmq tells the application that the server does not take its credentials."""
    token = TOKENS[0]
    wrong = (plain(token[:-1]), plain(token + b"x"), plain(b"", b"engines"), plain(token, b"ops"), plain(b"x" * 255, b"y" * 255))
    together(*(lambda k=kind, o=options: not_authenticated(refusal(k, **o)) for kind in (zmq.REQ, zmq.DEALER) for options in wrong))
    same(lookup(connect(**plain(token)), chain("wrong", 10)), 0)


def check_plain_anonymous():
    """A NULL peer may do what peers without a credential may."""
    s = connect()
    same(request(s, b"ping", b"x"), [b"\x01", b"x"])
    same(request(s, *frames(chain("anonymous", 10))), [b"\x00"])
    same(request(s, b"ping", b"y"), [b"\x01", b"y"])


def said(line):
    """Asks the test for something and waits until it is done."""
    print(line, flush=True)
    same(sys.stdin.readline(), f"{line} done\n")


def check_plain_rotation():
    """The server gets a second token, and then no longer has the first."""
    old, new = TOKENS
    keys = chain("rotation", 10)
    s, before = connect(REQ_RELAXED=1, REQ_CORRELATE=1, **plain(old)), connect(zmq.DEALER, **plain(old))
    store(s, keys)
    monitor = s.get_monitor_socket()
    said("add")
    same(lookup(s, keys), 10 * BLOCK)
    after = connect(**plain(new))
    same(lookup(after, keys), 10 * BLOCK)
    same(disconnects(monitor, 300), 0)  # both are taken for now
    said("remove")
    same(failure(monitor)["event"], zmq.EVENT_DISCONNECTED)
    not_authenticated(failure(monitor))  # it has come back with the old one
    same(lookup(after, keys), 10 * BLOCK)
    for socket in (s, before):
        socket.setsockopt(zmq.PLAIN_PASSWORD, new)
        socket.disconnect(ADDRESS)  # otherwise connect does nothing
        socket.connect(ADDRESS)
    same(lookup(s, keys), 10 * BLOCK)
    before.send_multipart([b""] + frames(keys))
    same(before.recv_multipart(), [b"", (10 * BLOCK).to_bytes(4, "big")])


def check_restart():
    """The server goes away and comes back on the same port, empty."""
    keys = chain("restart", 50)
    s, idle = connect(REQ_RELAXED=1, REQ_CORRELATE=1), connect(zmq.DEALER)
    store(s, keys)
    same(lookup(s, keys), 50 * BLOCK)
    said("restart")
    same(lookup(s, keys), 0)
    store(s, keys)
    same(lookup(s, keys), 50 * BLOCK)
    idle.send_multipart([b""] + frames(keys))
    same(idle.recv_multipart(), [b"", (50 * BLOCK).to_bytes(4, "big")])


globals()["check_" + sys.argv[2]]()
