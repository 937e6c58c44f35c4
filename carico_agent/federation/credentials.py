"""The aggregator's certificates, as they are at each handshake: renewing them needs no restart."""

import logging

import grpc

from carico_agent.lib.net.tls import TlsFiles

log = logging.getLogger(__name__)


class CertificateFiles:
    """Called by gRPC at each handshake, in a thread of its own; gives new certificates when the files changed.

    A broken new file does not replace a good old one.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._fingerprint = files.fingerprint()
        self._broken: object = None
        self.initial = _configuration(files)

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        fingerprint = None
        try:
            fingerprint = self._files.fingerprint()
            if fingerprint == self._fingerprint:
                return None
            fresh = _configuration(self._files)
        except OSError as error:
            if self._broken != (fingerprint, str(error)):
                log.warning("certificates: keeping the old ones: %s", error)
                self._broken = fingerprint, str(error)
            return None
        self._fingerprint = fingerprint
        log.info("certificates: read again, they changed")
        return fresh


def server_credentials(files: TlsFiles) -> grpc.ServerCredentials:
    """mTLS that follows its files; raises OSError if they cannot be read or do not fit together."""
    certificates = CertificateFiles(files)
    return grpc.dynamic_ssl_server_credentials(
        certificates.initial,
        certificates,  # type: ignore[arg-type]  # grpc-stubs leaves out None, which means unchanged
        require_client_authentication=True,
    )


def _configuration(files: TlsFiles) -> grpc.ServerCertificateConfiguration:
    ca, cert, key = files.read()
    return grpc.ssl_server_certificate_configuration([(key, cert)], root_certificates=ca)
