"""The key of the seal, in a Secret of burst's own namespace: made once, then the same for every replica and command."""

import base64
import binascii

from carico_agent.burst.seal import KEY_BYTES, Seal
from carico_agent.lib.kube.client import KubeClient, Object
from carico_agent.lib.kube.errors import BadAccess, Refused

SECRET = "carico-burst-seal"
MAX_TRIES = 5


async def read_seal(client: KubeClient, namespace: str) -> Seal | None:
    """The seal, or None where no key was made yet; raises KubeError."""
    found = await _read(client, namespace)
    return None if found is None else _seal_of(found)


async def load_seal(client: KubeClient, namespace: str) -> Seal:
    """The seal; where there is no key, one is made. Of two that make one at a time, the first counts."""
    for _ in range(MAX_TRIES):
        found = await _read(client, namespace)
        if found is not None and (seal := _seal_of(found)) is not None:
            return seal
        made = Seal.new()
        try:
            await _write(client, namespace, found, made)
        except Refused as refused:
            if refused.status != 409:
                raise
        else:
            return made
    raise BadAccess(f"Secret {namespace}/{SECRET}: another client keeps changing it")


def _path(namespace: str, name: str = "") -> str:
    return f"/api/v1/namespaces/{namespace}/secrets" + (f"/{name}" if name else "")


async def _read(client: KubeClient, namespace: str) -> Object | None:
    path = _path(namespace, SECRET)
    try:
        return await client.get(path)
    except Refused as refused:
        if refused.says_absent(path):
            return None
        raise


def _seal_of(secret: Object) -> Seal | None:
    """The Secret's key. deploy/burst ships the Secret empty, so that burst needs no right to create Secrets."""
    text = (secret.get("data") or {}).get("key")
    if not text:
        return None
    try:
        return Seal(base64.b64decode(str(text), validate=True))
    except (binascii.Error, ValueError) as error:
        raise BadAccess(f"Secret {SECRET}: its key is not {KEY_BYTES} bytes in base64: {error}") from error


async def _write(client: KubeClient, namespace: str, found: Object | None, seal: Seal) -> None:
    data = {"key": base64.b64encode(seal.key).decode()}
    if found is None:
        body = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": SECRET}, "data": data}
        await client.post(_path(namespace), body)
        return
    guarded = {"metadata": {"resourceVersion": found["metadata"]["resourceVersion"]}, "data": data}
    await client.patch(_path(namespace, SECRET), guarded)
