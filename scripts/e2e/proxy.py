"""Forwards TCP connections to a unix socket."""

import contextlib
import socket
import threading


class Proxy:
    """Listens on loopback and forwards to a unix socket, which need not be there yet."""

    def __init__(self, path):
        self.path = path
        self.lock = threading.Lock()
        self.connections = set()
        self.stopped = False
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.endpoint = f"tcp://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self.accept, daemon=True).start()

    def stop(self):
        with self.lock:
            self.stopped = True
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

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
                if self.stopped:
                    client.close()
                    server.close()
                    return
                self.connections |= {client, server}
            for source, target in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=(source, target), daemon=True).start()

    def forward(self, source, target):
        """Forwards one direction; both end with it."""
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                target.sendall(data)
        with self.lock:
            self.connections -= {source, target}
        for connection in (source, target):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
