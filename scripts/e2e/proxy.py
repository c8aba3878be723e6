"""Forwards connections to a server of ZMTP, cuts them, and drops its messages by their numbers."""

import contextlib
import socket
import threading

GREETING = 64  # bytes of ZMTP 3's greeting
MORE, LONG, COMMAND = 1, 2, 4  # flags of a frame


class Proxy:
    """Listens on loopback and forwards to a unix socket, which need not be there yet."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.connections = set()
        self.refused = False
        self.dropping = range(0)  # sequence numbers
        self.dropped = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        self.refuse(True)
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def refuse(self, refused):
        """Cuts all connections and refuses new ones, or accepts them again."""
        with self.lock:
            self.refused = refused
        self.cut()

    def cut(self):
        with self.lock:
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    def drop(self, numbers):
        """Drops the messages with these sequence numbers."""
        with self.lock:
            self.dropping, self.dropped = numbers, 0

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(self.path)
            except OSError:
                client.close()
                server.close()
                continue
            with self.lock:
                refused = self.refused
                if not refused:
                    self.connections |= {client, server}
            if refused:
                client.close()
                server.close()
                continue
            for forward in (self.requests, self.messages):
                threading.Thread(target=self.run, args=(forward, client, server), daemon=True).start()

    def run(self, forward, client, server):
        """Forwards one direction; both end with it."""
        with contextlib.suppress(OSError, EOFError):
            forward(client, server)
        with self.lock:
            self.connections -= {client, server}
        for connection in (client, server):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def requests(self, client, server):
        while data := client.recv(1 << 16):
            server.sendall(data)

    def messages(self, client, server):
        with server.makefile("rb") as stream:
            client.sendall(read(stream, GREETING))
            while True:
                raw, frames = message(stream)
                if not self.drops(frames):
                    client.sendall(raw)

    def drops(self, frames):
        if len(frames) != 3 or len(frames[1]) != 8:
            return False
        with self.lock:
            dropped = int.from_bytes(frames[1], "big") in self.dropping
            self.dropped += dropped
        return dropped


def read(stream, size):
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return data


def message(stream):
    """Returns a message as it is on the wire, and its frames; a command has none."""
    raw, frames = b"", []
    while True:
        flags = read(stream, 1)
        size = read(stream, 8 if flags[0] & LONG else 1)
        body = read(stream, int.from_bytes(size, "big"))
        raw += flags + size + body
        if flags[0] & COMMAND:
            return raw, []
        frames.append(body)
        if not flags[0] & MORE:
            return raw, frames
