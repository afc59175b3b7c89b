"""Where etcd is, and how to get in."""

from __future__ import annotations

import ssl
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class EtcdSettings:
    """Of one etcd cluster."""

    endpoints: tuple[str, ...]  # URLs, such as http://10.0.0.1:2379
    user: str = ""  # empty: etcd has no authentication
    password: str = field(default="", repr=False)
    ca: str = (
        ""  # the file with the certificates that etcd's certificates are signed with; empty: the system's
    )
    cert: str = ""  # the file with our own certificate, if etcd wants one
    key: str = ""  # the file with its key; empty: the key is in the file of the certificate

    def tls(self) -> ssl.SSLContext | bool:
        """How to verify etcd's certificate; `True` is the way of the system."""
        if not self.ca and not self.cert:
            return True
        context = ssl.create_default_context(cafile=self.ca or None)
        if self.cert:
            context.load_cert_chain(self.cert, self.key or None)
        return context
