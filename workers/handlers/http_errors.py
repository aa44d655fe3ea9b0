"""What went wrong with a request that got no answer, in words for whoever wrote the job."""

from __future__ import annotations

import os
import ssl

import aiohttp

from workers.handlers.addresses import AddressRefused


def words(error: aiohttp.ClientError | OSError) -> str:
    """One line: where it could not connect and why, or how the answer failed."""
    match error:
        case aiohttp.ClientConnectorCertificateError():
            said = getattr(error.certificate_error, "verify_message", None) or error.certificate_error
            return f"{error.host}:{error.port} has a certificate that is not accepted: {said}"
        case aiohttp.ClientConnectorSSLError():
            return f"no TLS with {error.host}:{error.port}: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorDNSError():
            return f"the name {error.host} does not lead to an address: {_reason(error.os_error)}"
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {_reason(error.os_error)}"
        case aiohttp.ServerDisconnectedError():
            return "the connection was closed before an answer came"
        case aiohttp.ClientPayloadError():
            return "the answer broke off before its end"
        case aiohttp.ClientResponseError():
            return f"what came is no HTTP answer: {error.message.partition(chr(10))[0].rstrip(': ')}"
        case OSError():
            return f"the connection broke: {_reason(error)}"
    return f"{type(error).__name__}: {error}"


def _reason(error: OSError) -> str:
    """Without the client's own words: `Connection refused`, not `Connect call failed (...)`."""
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    if error.errno is None or error.errno <= 0 or isinstance(error, AddressRefused):
        return error.strerror or str(error) or type(error).__name__
    return os.strerror(error.errno)
