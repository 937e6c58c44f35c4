"""Trained models by name and version: a bucket or a folder, with a record beside each model.

    PREFIX/NAMESPACE/NAME/VERSION.model     the file, or a tar of the folder
    PREFIX/NAMESPACE/NAME/VERSION.json      its record, written last: only a version with a record exists

The newest version is the last key of the list: a version begins with the time of its publisher. So no pointer must be
updated, and two Jobs that publish at once make two versions. The document keeps the same record {name, time, place} in
a database (4.6). NAMESPACE is the one of the Job at home, whatever cluster runs it.
"""

import hashlib
import json
import re
import secrets
import shutil
import tarfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol
from urllib.parse import urlsplit

from carico_agent.burst.s3 import MAX_TEXT_BYTES, S3Store, StoreError

MODEL_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
VERSION = re.compile(r"[0-9]{8}T[0-9]{9}Z-[0-9a-f]{8}")
SHA256 = re.compile(r"[0-9a-f]{64}")
"""The name of a file in a node's cache."""
LATEST = "latest"


class Store(Protocol):
    """Objects by key."""

    @property
    def url(self) -> str: ...
    def keys(self, prefix: str) -> list[str]: ...
    def read(self, key: str) -> bytes: ...
    def write(self, key: str, data: bytes) -> None: ...
    def download(self, key: str, to: Path) -> None: ...
    def upload(self, key: str, path: Path, sha256: str) -> None: ...


@dataclass(frozen=True)
class FileStore:
    """A folder that all nodes mount. A file appears whole: it is written beside its place and renamed."""

    folder: Path

    @property
    def url(self) -> str:
        return f"file://{self.folder}"

    def keys(self, prefix: str) -> list[str]:
        where = self.folder / prefix
        found = [path for path in where.iterdir() if not path.name.startswith(".")] if where.is_dir() else []
        return sorted(str(path.relative_to(self.folder)) for path in found)

    def read(self, key: str) -> bytes:
        place = self.folder / key
        if not place.is_file():  # a pipe, which no process writes to, would be read without end
            raise FileNotFoundError(f"{place} is no file")
        with place.open("rb") as file:
            return file.read(MAX_TEXT_BYTES)

    def write(self, key: str, data: bytes) -> None:
        beside = self._beside(key)
        beside.write_bytes(data)
        beside.rename(self.folder / key)

    def download(self, key: str, to: Path) -> None:
        shutil.copyfile(self.folder / key, to)

    def upload(self, key: str, path: Path, sha256: str) -> None:
        beside = self._beside(key)
        shutil.copyfile(path, beside)
        beside.rename(self.folder / key)

    def _beside(self, key: str) -> Path:
        place = self.folder / key
        place.parent.mkdir(parents=True, exist_ok=True)
        return place.with_name(f".{place.name}.{secrets.token_hex(4)}")


@dataclass(frozen=True)
class ModelRecord:
    """What is known of one version. `folder`: the model is a tar of a folder."""

    name: str
    version: str
    url: str
    sha256: str
    size_bytes: int
    time_s: float
    job: str = ""
    folder: bool = False


@dataclass(frozen=True)
class Registry:
    """The models of one namespace."""

    store: Store
    prefix: str
    namespace: str

    def versions(self, name: str) -> list[str]:
        """All versions of a model, oldest first."""
        keys = self.store.keys(f"{self._folder(name)}/")
        found = [key.rpartition("/")[2].removesuffix(".json") for key in keys if key.endswith(".json")]
        return sorted(one for one in found if VERSION.fullmatch(one))

    def find(self, name: str, version: str = LATEST) -> ModelRecord:
        """Raises LookupError for one that does not exist, StoreError, ValueError."""
        if version == LATEST:
            found = self.versions(name)
            if not found:
                raise LookupError(f"no model {name} is published in {self.url(name)}")
            version = found[-1]
        elif not VERSION.fullmatch(version):
            raise ValueError(f"model {name}: {version!r} is no version")
        try:
            record = _record(self.store.read(f"{self._folder(name)}/{version}.json"))
        except (TypeError, RecursionError, FileNotFoundError) as error:
            raise LookupError(f"model {name}@{version} has no record: {error}") from error
        if (record.name, record.version) != (name, version):
            raise ValueError(f"the record of {name}@{version} is of {record.name}@{record.version}")
        return record

    def publish(self, name: str, path: Path, job: str, scratch: Path) -> ModelRecord:
        """The model first, its record last."""
        now_s, whole = time.time(), path
        if path.is_symlink() or not (path.is_file() or path.is_dir()):
            raise ValueError(f"{path} is neither a file nor a folder: what a link leads to is not the Job's")
        if path.is_dir():
            whole = scratch / f"{name}.tar"
            with tarfile.open(whole, "w") as tar:
                tar.add(path, ".")
        version = f"{_stamp(now_s)}-{secrets.token_hex(4)}"
        key = f"{self._folder(name)}/{version}"
        url = f"{self.store.url}/{key}.model"
        size = whole.stat().st_size
        record = ModelRecord(name, version, url, sha256_of(whole), size, now_s, job, path.is_dir())
        self.store.upload(f"{key}.model", whole, record.sha256)
        self.store.write(f"{key}.json", json.dumps(asdict(record)).encode())
        return record

    def download(self, record: ModelRecord, to: Path) -> None:
        """The bytes of one version, checked."""
        self.store.download(f"{self._folder(record.name)}/{record.version}.model", to)
        if (found := sha256_of(to)) != record.sha256:
            to.unlink()
            raise StoreError(f"{record.url} has checksum {found}, its record says {record.sha256}")

    def url(self, name: str) -> str:
        return f"{self.store.url}/{self._folder(name)}"

    def _folder(self, name: str) -> str:
        if not MODEL_NAME.fullmatch(name):
            raise ValueError(f"{name!r} is no name of a model: small letters, digits, dashes and dots, at most 63")
        return "/".join(filter(None, (self.prefix, self.namespace, name)))


def _record(text: bytes) -> ModelRecord:
    """A Job with the registry's credentials may write anything there; raises ValueError or TypeError.

    >>> _record(b'{"name": "a", "version": "1", "url": "", "sha256": "", "size_bytes": "9", "time_s": 0}')
    Traceback (most recent call last):
        ...
    ValueError: its record has no size: '9'
    """
    record = ModelRecord(**json.loads(text))
    if type(record.size_bytes) is not int or not 0 <= record.size_bytes < 1 << 60:
        raise ValueError(f"its record has no size: {str(record.size_bytes)[:50]!r}")
    if not (isinstance(record.url, str) and isinstance(record.sha256, str) and SHA256.fullmatch(record.sha256)):
        raise ValueError("its record has no address and checksum")
    return record


def open_registry(url: str, namespace: str, endpoint: str = "", region: str = "") -> Registry:
    """
    >>> open_registry("file:///srv/models/team", "shop").url("arpu")
    'file:///srv/models/team/shop/arpu'
    >>> open_registry("s3://models/team", "shop", "http://127.0.0.1:9000").url("arpu")
    's3://models/team/shop/arpu'
    """
    parts = urlsplit(url)
    if parts.scheme == "file" and parts.path.startswith("/"):
        return Registry(FileStore(Path(parts.path)), "", namespace)
    if parts.scheme == "s3" and parts.netloc:
        region = region or "us-east-1"
        store = S3Store(parts.netloc, (endpoint or f"https://s3.{region}.amazonaws.com").rstrip("/"), region)
        return Registry(store, parts.path.strip("/"), namespace)
    raise ValueError(f"{url!r} is no registry: s3://BUCKET/PREFIX or file:///FOLDER")


def sha256_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _stamp(time_s: float) -> str:
    """
    >>> _stamp(0.25)
    '19700101T000000250Z'
    """
    return f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime(time_s))}{int(time_s % 1 * 1000):03d}Z"
