"""What every agent answers: its status, once or as a stream, and whether it is well."""

from aiohttp import web

from carico_agent.lib.net.http import ApiError, Handler, answer, stream_lines
from carico_agent.lib.net.openapi import LINES, Operation, operation
from carico_agent.node.publish.latest import LatestStatus

NOT_YET = {503: "no number, or an old one"}
_NUMBER = {"type": ["number", "null"]}
STATUS = {
    "type": "object",
    "required": ["node", "time", "sequence", "ttl_s", "age_s", "pod_capacity", "slots", "pods", "mode", "limiting"],
    "properties": {
        "pod_capacity": _NUMBER,
        "low": _NUMBER,
        "high": _NUMBER,
        "slots": _NUMBER,
        "pods": {"type": "integer"},
        "mode": {"enum": ["learning", "measured", "predicted"]},
        "limiting": {"type": ["string", "null"]},
        "sequence": {"type": "integer"},
        "ttl_s": {"type": "number"},
        "age_s": {"type": "number"},
    },
}


def status_routes(latest: LatestStatus) -> dict[str, dict[str, Handler]]:
    """What every agent answers: its status, once or as a stream, and whether it is well."""

    @operation(Operation(answer=STATUS, errors=NOT_YET))
    async def status(request: web.BaseRequest) -> web.StreamResponse:
        """the number, its interval, mode, limiting resource, usage, cost per Pod"""
        if not latest.sequence:
            raise ApiError(503, "no sample yet; ask again in a second", {"Retry-After": "1"})
        await latest.current()
        return web.Response(body=latest.encoded(), content_type="application/json")

    @operation(Operation(content=LINES))
    async def watch(request: web.BaseRequest) -> web.StreamResponse:
        """the status, one JSON line per update"""
        updates = latest.updates()

        async def next_line() -> bytes:
            await anext(updates)
            return latest.encoded()

        return await stream_lines(request, next_line)

    @operation(Operation(errors=NOT_YET))
    async def healthz(request: web.BaseRequest) -> web.StreamResponse:
        """whether the last number is valid"""
        await latest.current()
        if latest.fresh:
            return answer({"ok": True})
        raise ApiError(503, "the last status is older than its TTL" if latest.sequence else "no sample yet", ok=False)

    return {"/v1/status": {"GET": status}, "/v1/watch": {"GET": watch}, "/healthz": {"GET": healthz}}
