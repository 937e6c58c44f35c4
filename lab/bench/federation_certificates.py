"""Certificates for the federation's benchmark: an authority, the aggregator's and one per node."""

import os
import subprocess
import time
from pathlib import Path


def certificates(nodes: int) -> Path:
    """A folder with an authority, the aggregator's certificate and one per node; made once and kept in the cache."""
    base = Path(os.environ.get("CARICO_CACHE") or Path.home() / ".cache" / "carico")
    folder = base / "bench-federation"
    fresh = folder / "names.ext"  # written last
    if not fresh.exists() or time.time() - fresh.stat().st_mtime > 20 * 86_400:
        for old in folder.glob("*"):
            old.unlink()
        folder.mkdir(parents=True, exist_ok=True)
        key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")
        _openssl(folder, "req", "-x509", *key, "-days", "30", "-keyout", "ca.key", "-out", "ca.pem", "-subj", "/CN=ca")
        _openssl(folder, "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "node.key")
        _openssl(folder, "ec", "-in", "node.key", "-pubout", "-out", "node.pub")
        (folder / "names.ext").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    for name in ("aggregator", *(f"node-{i:05d}" for i in range(nodes))):
        if not (folder / f"{name}.pem").exists():
            signed = ("-CA", "ca.pem", "-CAkey", "ca.key", "-days", "30", "-extfile", "names.ext")
            named = ("-subj", f"/CN={name}", "-force_pubkey", "node.pub", "-out", f"{name}.pem")
            _openssl(folder, "x509", "-new", *named, *signed)
    return folder


def _openssl(folder: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
