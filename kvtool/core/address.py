"""Where the HTTP API listens, as text: HOST:PORT, with an IPv6 address in brackets; "" is nowhere."""

import ipaddress
import re

from kvtool.errors import UsageError

_ADDRESS = re.compile(r"(?:\[([0-9A-Fa-f:.%\w]+)\]|([\w.-]+)):([0-9]{1,5})")


def parse(text: str) -> tuple[str, int]:
    """Host and port (0: any that is free) of an address that is set. Raises UsageError."""
    match = _ADDRESS.fullmatch(text)
    if match is None or int(match[3]) > 65535:
        raise UsageError(f"'{text}' is not HOST:PORT, such as 127.0.0.1:8700 or [::1]:8700")
    if match[1]:
        try:
            ipaddress.IPv6Address(match[1])
        except ValueError:
            raise UsageError(f"'{match[1]}' is not an IPv6 address") from None
    return match[1] or match[2], int(match[3])


def is_address(host: str) -> bool:
    """Whether it is an IP address and no name."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def is_loopback(host: str) -> bool:
    """Whether nobody but this machine reaches it."""
    return host == "localhost" or (is_address(host) and ipaddress.ip_address(host).is_loopback)


def join(host: str, port: int) -> str:
    """The text of an address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
