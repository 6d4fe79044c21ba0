"""The key and the certificate for HTTPS, read at start and at every reload.

A file that cannot be used is told then, in words for whoever wrote the configuration,
and not by the first client that cannot connect.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlxceld.problems import Problem, Refused
from mlxceld.settings import ServerSettings

if TYPE_CHECKING:
    import ssl


def tls_context(server: ServerSettings) -> ssl.SSLContext | None:
    """What encrypts connections; None for plain HTTP. Raises `Refused`."""
    key, certificate = server.ssl_key_file, server.ssl_cert_file
    if key is None and certificate is None:
        return None
    # Half of the time that a check of a configuration may take, for those who need it.
    import ssl

    if key is None or certificate is None:
        have, want = "ssl_key_file", "ssl_cert_file"
        if key is None:
            have, want = want, have
        flag = "--" + want.replace("_", "-")
        raise _refused(
            f"HTTPS needs server.{want} too",
            f"server.{have}",
            f"give `{flag}`, or leave both out for plain HTTP",
        )
    for option, name in (("ssl_key_file", key), ("ssl_cert_file", certificate)):
        try:
            Path(name).read_bytes()
        except OSError as error:
            reason = error.strerror or "it is not readable"
            raise _refused(f"cannot read server.{option}: {reason}", name) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without the empty password the library would ask for one on the terminal.
        context.load_cert_chain(certificate, key, password=lambda: "")
    except (ssl.SSLError, OSError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not a PEM file"
        words = str(reason).replace("_", " ").lower()
        raise _refused(
            f"the key and the certificate cannot be used: {words}",
            f"{key}, {certificate}",
            "give PEM files that belong together, the key without a password",
        ) from None
    return context


def renew(context: ssl.SSLContext, server: ServerSettings) -> None:
    """Read the files again, for the connections to come. Raises `Refused`."""
    # Tried on the side first: a context with half a pair would serve nobody.
    if tls_context(server) is not None:
        assert server.ssl_key_file is not None
        assert server.ssl_cert_file is not None
        key, certificate = server.ssl_key_file, server.ssl_cert_file
        context.load_cert_chain(certificate, key, password=lambda: "")


def _refused(what: str, where: str, hint: str = "") -> Refused:
    return Refused([Problem(what, where=where, hint=hint)])
