"""The seal of a ledger: an HMAC by which burst recognises what burst itself wrote.

The ledger is an annotation of the Job at home, and a user who may create or patch Jobs may write annotations. Without
the seal such a user could tell burst where to create Pods at a target. The seal covers the Job's namespace, name and
UID, so a ledger that is copied from another Job does not hold. A user may still put back an older ledger of the same
Job: that names the same Job, and every check is made again before a copy is created.
"""

import hashlib
import hmac
import json
import secrets
from dataclasses import dataclass, field
from typing import Any

SEAL = "seal"
"""The field of the ledger that holds it."""
KEY_BYTES = 32


@dataclass(frozen=True)
class Seal:
    """The key of one installation of burst. It comes out of a Secret (`seal_secret`).

    >>> seal = Seal(b"k" * 32)
    >>> text = seal.sealed({"state": "away"}, ("shop", "train", "u1"))
    >>> seal.holds(json.loads(text), ("shop", "train", "u1")), seal.holds(json.loads(text), ("shop", "train", "u2"))
    (True, False)
    """

    key: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if len(self.key) < KEY_BYTES:
            raise ValueError(f"a key of {len(self.key)} bytes seals nothing: it needs {KEY_BYTES}")

    @classmethod
    def new(cls) -> "Seal":
        return cls(secrets.token_bytes(KEY_BYTES))

    def sealed(self, record: dict[str, Any], job: tuple[str, str, str]) -> str:
        """The annotation's text. `job`: namespace, name and UID."""
        return json.dumps({**record, SEAL: self._mac(record, job)}, separators=(",", ":"))

    def holds(self, value: dict[str, Any], job: tuple[str, str, str]) -> bool:
        """Whether burst wrote this for this Job."""
        record = {name: one for name, one in value.items() if name != SEAL}
        return hmac.compare_digest(str(value.get(SEAL, "")).encode(), self._mac(record, job).encode())

    def _mac(self, record: dict[str, Any], job: tuple[str, str, str]) -> str:
        text = json.dumps([*job, record], sort_keys=True, separators=(",", ":"))
        return hmac.new(self.key, text.encode(), hashlib.sha256).hexdigest()
