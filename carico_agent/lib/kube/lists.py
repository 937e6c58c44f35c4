"""A list of objects as the API server sends it, read item by item.

Why not page by page: the API server answers pages out of etcd, every one of them, and ignores `limit` only for lists
that may come out of its watch cache. 5,000 nodes in one answer are 50 MB and more; item by item they need no more
memory than the largest object and one chunk.
"""

import codecs
import json
import re
from typing import Any

Object = dict[str, Any]

_ITEMS = re.compile(r'"items"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")


class ListReader:
    """Feed it chunks; it returns the items that are complete. `metadata` is the list's own, complete at the end.

    >>> reader = ListReader()
    >>> reader.feed(b'{"metadata":{"resourceVersion":"7"},"items":[{"a":1},{"b"'), reader.feed(b':2}]}')
    ([{'a': 1}], [{'b': 2}])
    >>> reader.finish()
    {'resourceVersion': '7'}
    """

    def __init__(self) -> None:
        self._utf8 = codecs.getincrementaldecoder("utf-8")()
        self._decoder = json.JSONDecoder()
        self._head = ""
        self._rest = ""
        self._inside = False

    def feed(self, chunk: bytes) -> list[Object]:
        self._rest += self._utf8.decode(chunk)
        if not self._inside:
            if (found := _ITEMS.search(self._rest)) is None:
                return []
            self._inside = True
            self._head, self._rest = self._rest[: found.end()], self._rest[found.end() :]
        items, at = [], 0
        while True:
            at = self._next(at)
            try:
                item, at = self._decoder.raw_decode(self._rest, at)
            except ValueError:  # the end of the items, or the rest of this one has not come yet
                break
            items.append(item)
        self._rest = self._rest[at:]
        return items

    def finish(self) -> Object:
        """The list's metadata; raises ValueError if it broke off. A list without items has `"items": null`."""
        metadata: Object = json.loads(self._head + self._rest)["metadata"]
        return metadata

    def _next(self, at: int) -> int:
        found = _BETWEEN.match(self._rest, at)
        assert found is not None
        return found.end()
