"""Certificates for a SuperLink on this machine, and keys for SuperNodes."""

import datetime as dt
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

AUTHORITY, SERVER = "rehearsal authority", "localhost"
VALID = dt.timedelta(days=2)
"""A rehearsal's certificates are for nothing else."""


def write_certificates(folder: Path) -> None:
    """Write a certificate authority, and a certificate that it signed for 127.0.0.1.

    Args:
        folder: gets ``ca.crt``, ``ca.key``, ``server.pem`` and ``server.key``.
    """
    authority = _write_key(folder / "ca.key")
    server = _write_key(folder / "server.key")
    usage = x509.KeyUsage(
        digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
        key_encipherment=False, data_encipherment=False, key_agreement=False,
        encipher_only=False, decipher_only=False,
    )  # fmt: skip
    places = [x509.DNSName(SERVER), x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]
    own = _unsigned(AUTHORITY, authority, authority, is_authority=True).add_extension(
        usage, critical=True
    )
    servers = _unsigned(SERVER, server, authority, is_authority=False).add_extension(
        x509.SubjectAlternativeName(places), critical=False
    )
    for name, certificate in (("ca.crt", own), ("server.pem", servers)):
        signed = certificate.sign(authority, hashes.SHA256())
        (folder / name).write_bytes(signed.public_bytes(serialization.Encoding.PEM))


def write_node_key(path: Path) -> None:
    """Write a SuperNode's key as OpenSSH does: the private half, and ``.pub`` beside it."""
    public = _write_key(path, serialization.PrivateFormat.OpenSSH).public_key()
    path.with_name(f"{path.name}.pub").write_bytes(
        public.public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    )


def _unsigned(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    authority: ec.EllipticCurvePrivateKey,
    *,
    is_authority: bool,
) -> x509.CertificateBuilder:
    """A certificate that waits for its signature."""
    today = dt.datetime.now(dt.UTC)
    issuer = x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key())
    subject = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    return (
        x509.CertificateBuilder()
        .subject_name(_called(name))
        .issuer_name(_called(AUTHORITY))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today - dt.timedelta(days=1))
        .not_valid_after(today + VALID)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        .add_extension(subject, critical=False)
        .add_extension(issuer, critical=False)
    )


def _called(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _write_key(
    path: Path,
    form: serialization.PrivateFormat = serialization.PrivateFormat.TraditionalOpenSSL,
) -> ec.EllipticCurvePrivateKey:
    key = ec.generate_private_key(ec.SECP384R1())
    path.touch(mode=0o600)  # before anything is in it
    path.write_bytes(
        key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())
    )
    return key
