"""The steps before and after a Job's own container: fetch the models it reads, publish the one it made.

    python3 -m carico_agent.burst.data_step fetch --registry URL --namespace NS --to FOLDER NAME@VERSION…
    python3 -m carico_agent.burst.data_step publish --registry URL --namespace NS --job NAME MODEL=PATH…

`fetch` takes VERSION `latest` at the moment at which it runs, unless CARICO_DATA_NAME_URL names a version: burst sets
this variable when it moves the Job, so that every try of the Job reads the same model. With `--cache FOLDER` a model
that another Pod of this node fetched is not fetched again. A cached file counts only with the checksum of the model's
record: a Pod that can write to the cache cannot give another one a false model.

Standard library only: the image of the steps needs Python and this package, nothing else.
"""

import argparse
import os
import re
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from pathlib import Path

from carico_agent.burst.registry import LATEST, ModelRecord, Registry, open_registry, sha256_of

CACHE_BYTES = 20_000_000_000
"""The least recently used models beyond this are removed from a node's cache."""


def variable(name: str) -> str:
    """
    >>> variable("churn-eu.2")
    'CARICO_DATA_CHURN_EU_2'
    """
    return "CARICO_DATA_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def pinned(registry: Registry, name: str, version: str, environ: Mapping[str, str]) -> str:
    """The version to take: the one of the URL that burst has resolved, else the one that the Job names."""
    url = environ.get(f"{variable(name)}_URL", "")
    if not url:
        return version
    base, _, file = url.rpartition("/")
    if base != registry.url(name):
        raise ValueError(f"{variable(name)}_URL is {url}, which is not in {registry.url(name)}")
    return file.removesuffix(".model")


def fetch(registry: Registry, wanted: str, to: Path, cache: Path | None, environ: Mapping[str, str]) -> ModelRecord:
    """One model into `to`/NAME; raises OSError, LookupError or ValueError."""
    name, _, version = wanted.partition("@")
    record = registry.find(name, pinned(registry, name, version or LATEST, environ))
    to.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=to) as scratch:
        file, kept = Path(scratch) / "model", cache / record.sha256 if cache is not None else None
        if kept is not None and _from_cache(kept, file, record):
            how = "from this node's cache"
        else:
            registry.download(record, file)
            how = f"from {record.url}"
            if kept is not None:
                _keep(file, kept)
        _place(file, to / name, record.folder)
    sys.stdout.write(f"{name}@{record.version}: {record.size_bytes} bytes {how}\n")
    return record


def _from_cache(kept: Path, file: Path, record: ModelRecord) -> bool:
    """Take it from the cache if it is there. The copy is checked, not the original: a Pod may change that meanwhile."""
    if not kept.is_file() or kept.is_symlink() or kept.stat().st_size != record.size_bytes:
        return False
    shutil.copyfile(kept, file)
    if sha256_of(file) != record.sha256:
        return False
    os.utime(kept)
    return True


def _keep(file: Path, kept: Path) -> None:
    kept.parent.mkdir(parents=True, exist_ok=True)
    beside = kept.with_name(f".{kept.name}.{os.getpid()}.{os.urandom(4).hex()}")
    shutil.copyfile(file, beside)
    beside.rename(kept)
    others = sorted((one for one in kept.parent.iterdir() if one.is_file() and one != kept), key=_used_s)
    size = kept.stat().st_size + sum(one.stat().st_size for one in others)
    while others and size > CACHE_BYTES:
        size -= others[0].stat().st_size
        others.pop(0).unlink(missing_ok=True)


def _used_s(path: Path) -> float:
    return path.stat().st_mtime


def _place(file: Path, place: Path, folder: bool) -> None:
    """Where the Job's container looks for it: a try before this one may have left something there."""
    if place.is_dir():
        shutil.rmtree(place)
    if not folder:
        file.chmod(0o644)
        file.replace(place)
        return
    place.mkdir()
    with tarfile.open(file) as tar:
        tar.extractall(place, filter="data")


def publish(registry: Registry, made: str, job: str) -> ModelRecord:
    name, _, path = made.partition("=")
    if not Path(path).exists():
        raise LookupError(f"the Job has ended well and left no model {name} at {path}")
    with tempfile.TemporaryDirectory() as scratch:
        record = registry.publish(name, Path(path), job, Path(scratch))
    sys.stdout.write(f"{name}@{record.version}: {record.size_bytes} bytes to {record.url}\n")
    return record


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="data_step", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("step", choices=("fetch", "publish"))
    parser.add_argument("models", nargs="+", help="fetch: NAME@VERSION; publish: NAME=PATH")
    parser.add_argument("--registry", required=True, metavar="URL")
    parser.add_argument("--namespace", required=True)
    parser.add_argument("--endpoint", default="", metavar="URL", help="of an S3-compatible store")
    parser.add_argument("--region", default="", help="of the bucket")
    parser.add_argument("--to", type=Path, default=Path("/carico/data"), metavar="FOLDER")
    parser.add_argument("--cache", type=Path, metavar="FOLDER")
    parser.add_argument("--job", default="")
    given = parser.parse_args(argv)
    try:
        registry = open_registry(given.registry, given.namespace, given.endpoint, given.region)
        for model in given.models:
            if given.step == "fetch":
                fetch(registry, model, given.to, given.cache, os.environ)
            else:
                publish(registry, model, given.job)
    except (OSError, LookupError, ValueError, tarfile.TarError) as error:
        sys.stderr.write(f"data_step {given.step}: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
