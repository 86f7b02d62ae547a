"""A certificate authority and a certificate for 127.0.0.1, made at test time."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(slots=True, frozen=True)
class Certificates:
    server: ssl.SSLContext
    """For 127.0.0.1, ::1 and localhost; self-signed, so it is its own authority."""
    ca_file: Path
    other_name: ssl.SSLContext
    """For another host."""
    expired: ssl.SSLContext
    other_ca_file: Path


def certificates(directory: Path) -> Certificates:
    server, ca_file = _made(directory / "own", "localhost")
    other, other_file = _made(directory / "other", "elsewhere.example")
    expired, _ = _made(directory / "old", "localhost", days=(-30, -1))
    return Certificates(server, ca_file, other, expired, other_file)


def _made(stem: Path, host: str, days: tuple[int, int] = (-1, 30)) -> tuple[ssl.SSLContext, Path]:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, host)])
    now = datetime.datetime.now(datetime.UTC)
    names: list[x509.GeneralName] = [x509.DNSName(host)]
    if host == "localhost":
        names += [x509.IPAddress(ipaddress.ip_address(text)) for text in ("127.0.0.1", "::1")]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + datetime.timedelta(days=days[0]))
        .not_valid_after(now + datetime.timedelta(days=days[1]))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    cert_file, key_file = stem.with_suffix(".pem"), stem.with_suffix(".key")
    cert_file.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    pem, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    key_file.write_bytes(key.private_bytes(pem, serialization.PrivateFormat.PKCS8, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert_file, key_file)
    return context, cert_file
