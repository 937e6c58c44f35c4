"""TLS of all that listens: one way to make a server's context, and to notice that its files were replaced."""

import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass

from carico_agent.lib.net.address import BadAddress


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Paths of PEM files: who we are (`cert`, `key`), and whose certificates we believe (`ca`, may be empty)."""

    cert: str
    key: str
    ca: str = ""

    @classmethod
    def mutual(cls, ca: str, cert: str, key: str) -> "TlsFiles | None":
        """For mTLS: all three belong together; None if none is given."""
        if not (ca or cert or key):
            return None
        if not (ca and cert and key):
            raise BadAddress("tls_ca, tls_cert and tls_key are needed together")
        return cls(cert, key, ca)

    def fingerprint(self) -> tuple[tuple[int, int, int], ...]:
        """Changes when a file changes (certificate managers replace files, so the inode counts)."""
        stats = [os.stat(path) for path in (self.ca, self.cert, self.key) if path]
        return tuple((s.st_mtime_ns, s.st_size, s.st_ino) for s in stats)

    def read(self) -> tuple[bytes, bytes, bytes]:
        """Contents of ca, cert, key; raises OSError (ssl.SSLError is one) if they do not fit together."""
        server_context(self)
        contents = []
        for path in (self.ca, self.cert, self.key):
            with open(path, "rb") as file:
                contents.append(file.read())
        return contents[0], contents[1], contents[2]


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """TLS of a server; with a `ca`, clients need a certificate of it. OSError if the files do not fit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(files.cert, files.key)
    if files.ca:
        context.load_verify_locations(files.ca)
        context.verify_mode = ssl.CERT_REQUIRED
    return context


def common_names(certificate: Mapping[str, object]) -> list[str]:
    """The common names in a certificate's subject, as `ssl` hands it out."""
    subject = certificate.get("subject", ())
    assert isinstance(subject, tuple)
    return [str(value) for part in subject for key, value in part if key == "commonName"]
