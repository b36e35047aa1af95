"""TLS over a socket that never blocks: encrypted bytes in and out by memory."""

import ssl


class TlsLayer:
    """One connection's TLS; the caller moves the bytes."""

    def __init__(self, context: ssl.SSLContext, host: str) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_hostname=host)
        self.ready = False

    def shake(self, received: bytes = b"") -> bytes:
        """One step of the handshake, with what came from the peer; what to send to it.

        Raises:
            ssl.SSLError: no TLS, or a certificate that does not hold.
        """
        self._incoming.write(received)
        try:
            self._object.do_handshake()
            self.ready = True
        except ssl.SSLWantReadError:
            pass
        return self._outgoing.read()

    def encrypt(self, plain: bytes) -> bytes:
        """What to send so that the peer reads these bytes."""
        self._object.write(plain)
        return self._outgoing.read()

    def decrypt(self, received: bytes) -> tuple[bytes, bool]:
        """The plain bytes that are whole by now, and whether the peer has said its last.

        Raises:
            ssl.SSLError: bytes that are no TLS.
        """
        self._incoming.write(received)
        parts: list[bytes] = []
        while True:
            try:
                part = self._object.read(65536)
            except ssl.SSLWantReadError:
                return b"".join(parts), False
            except ssl.SSLZeroReturnError:
                return b"".join(parts), True
            if not part:
                return b"".join(parts), True
            parts.append(part)


def client_context() -> ssl.SSLContext:
    """What a client trusts: the system's certificates."""
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context
