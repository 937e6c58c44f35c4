"""sd_notify: reports to systemd "ready", "still sampling", "stopping". Does nothing outside a systemd service."""

import os
import socket


class Notifier:
    """Speaks the sd_notify(3) protocol: one datagram to $NOTIFY_SOCKET."""

    def __init__(self) -> None:
        address = os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) if address else None

    def send(self, message: str) -> None:
        if self._socket is None:
            return
        try:
            self._socket.sendto(message.encode(), self._address)
        except OSError:  # a full or vanished notify socket must never stop the sampling
            return

    def ready(self) -> None:
        self.send("READY=1")

    def alive(self, status: str) -> None:
        self.send(f"WATCHDOG=1\nSTATUS={status}")

    def stopping(self) -> None:
        self.send("STOPPING=1")
