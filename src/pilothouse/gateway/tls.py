"""TLS on the data plane: certificates from files, read again when they change."""

import logging
import os
import ssl

from pilothouse.model.errors import PilothouseError
from pilothouse.model.spec import TlsSpec

log = logging.getLogger("pilothouse.gateway")

_Stamp = tuple[tuple[int, int, int], ...]


def make_context(spec: TlsSpec) -> ssl.SSLContext:
    """A context for the listener.

    Raises PilothouseError `tls_unusable`, which names the files.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without a passphrase: a worker has no terminal to ask at.
        context.load_cert_chain(spec.certificate, spec.key, password=lambda: "")
        if spec.client_ca is not None:
            context.load_verify_locations(spec.client_ca)
            context.verify_mode = ssl.CERT_REQUIRED
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        files = ", ".join(name for name in (spec.certificate, spec.key, spec.client_ca) if name is not None)
        reason = getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
        raise PilothouseError("tls_unusable", f"{files}: {reason}") from error
    return context


class CertificateWatch:
    """Says when there is a new context to use. Files that cannot be used are told of once and change nothing."""

    def __init__(self, spec: TlsSpec) -> None:
        self._spec = spec
        self._stamp = self._read_stamp()

    def changed(self) -> ssl.SSLContext | None:
        """A context from the files as they are now, if they are not as they were."""
        stamp = self._read_stamp()
        if stamp == self._stamp:
            return None
        self._stamp = stamp
        try:
            context = make_context(self._spec)
        except PilothouseError as error:
            log.error("certificates not replaced: %s", error.message, extra={"code": error.code})
            return None
        log.info("certificates replaced")
        return context

    def _read_stamp(self) -> _Stamp:
        """What tells that a file was replaced or rewritten. Symbolic links are followed: Kubernetes changes those."""
        found = []
        for name in (self._spec.certificate, self._spec.key, self._spec.client_ca):
            try:
                status = os.stat(name) if name is not None else None
            except OSError:
                status = None
            found.append((status.st_ino, status.st_mtime_ns, status.st_size) if status is not None else (0, 0, 0))
        return tuple(found)
