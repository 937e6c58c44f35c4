"""Which nodes sent last to this aggregator, in an order that other aggregators can follow."""

from collections.abc import Iterator


class OwnedNodes:
    """Node → its own time when that began here. Entries are numbered: a peer that has seen those up to one number needs
    the later ones only.

    >>> owned = OwnedNodes()
    >>> owned.put("a", 10), owned.put("b", 20), owned.put("a", 30)
    (None, None, None)
    >>> list(owned.after(0)), list(owned.after(2)), owned.time_ns("a")
    ([('b', 2, 20), ('a', 3, 30)], [('a', 3, 30)], 30)
    """

    def __init__(self) -> None:
        self._entries: dict[str, tuple[int, int]] = {}  # node: (number, time), in the order of numbers
        self._number = 0

    def put(self, node: str, time_ns: int) -> None:
        """A new entry; it replaces the node's last one."""
        self._number += 1
        self._entries.pop(node, None)
        self._entries[node] = (self._number, time_ns)

    def drop(self, node: str) -> None:
        self._entries.pop(node, None)

    def time_ns(self, node: str) -> int:
        """The time of its entry; raises KeyError if it has none."""
        return self._entries[node][1]

    def after(self, number: int) -> Iterator[tuple[str, int, int]]:
        """Node, number and time of the entries after `number`, oldest first."""
        newest: list[tuple[str, int, int]] = []
        for node, (mine, time_ns) in reversed(self._entries.items()):
            if mine <= number:
                break
            newest.append((node, mine, time_ns))
        return reversed(newest)
