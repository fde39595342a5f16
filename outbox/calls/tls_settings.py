"""Who may sign a provider's certificate."""

import functools
import os
import ssl
import sys

import certifi

from idem.outbox.values.errors import ConfigError


def ssl_context(authorities: str | None = None) -> ssl.SSLContext:
    """The TLS settings of a lane: who may sign the provider's certificate, and nothing else of the environment.

    `authorities` is a file of PEM certificates, and they alone are trusted then; else the file or folder that
    SSL_CERT_FILE or SSL_CERT_DIR names, as of every program; else certifi's roots. The session keys are written
    nowhere, SSLKEYLOGFILE or not. Raises ConfigError where the file has no certificate.
    """
    if authorities is not None:
        return _context(authorities, None, "ca_file")
    file, folder = os.environ.get("SSL_CERT_FILE") or None, os.environ.get("SSL_CERT_DIR") or None
    if file or folder:
        return _context(file, folder, "SSL_CERT_FILE" if file else "SSL_CERT_DIR")
    return _context(certifi.where(), None, "certifi")


@functools.cache
def _context(file: str | None, folder: str | None, named: str) -> ssl.SSLContext:
    # Not `ssl.create_default_context`, which obeys SSLKEYLOGFILE. Cached: loading is slow, and a process may have a
    # lane for each of many accounts.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(file, folder)
    except OSError as error:
        why = "it contains no PEM certificate" if isinstance(error, ssl.SSLError) else error.strerror
        raise ConfigError(
            f"{named}: {file or folder} cannot be used: {why}. Name a file of certificate authorities"
        ) from None
    if sys.version_info >= (3, 13):
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | ssl.VERIFY_X509_STRICT
    return context
