"""Tests Python clients, in every era that each supports, with a tool of the fixture: on the fixture's own route, on /mcp,
and over HTTP+SSE of 2024-11-05.

Reads WARDGATE_URL and TOKEN from the environment. Prints one line per check. The exit code is not 0 if a check failed.
"""

import asyncio
import logging
import os
import sys
from contextlib import asynccontextmanager
from dataclasses import dataclass

import fastmcp
import httpx2
import mcp
from fastmcp.client.transports import SSETransport, StreamableHttpTransport
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

URL, TOKEN = os.environ["WARDGATE_URL"], os.environ["TOKEN"]
PAYLOAD, SIGNATURE = TOKEN.rsplit(".", 1)
# A token with an invalid signature.
FORGED = f"{PAYLOAD}.{SIGNATURE[::-1]}"
CHECK_SECONDS = 20
TEXT = "This is a simple text response for testing."
MODES = ("auto", "2026-07-28", "legacy")
PROMISES = ("a tool is listed, and answers", "a wrong token ends in an error")


@dataclass(frozen=True)
class Place:
    name: str
    url: str
    tool: str
    sse: bool = False


ROUTE = Place("route", f"{URL}/upstream/fixture", "test_simple_text")
WHOLE = Place("whole view", URL, "fixture__test_simple_text")
SSE = Place("whole view over SSE", f"{URL.removesuffix('/mcp')}/sse", WHOLE.tool, sse=True)


@asynccontextmanager
async def official(place, mode, token):
    headers = {"Authorization": f"Bearer {token}"}
    if place.sse:
        async with mcp.Client(sse_client(place.url, headers=headers), mode=mode) as client:
            yield client
    else:
        async with httpx2.AsyncClient(headers=headers, timeout=CHECK_SECONDS) as http:
            async with mcp.Client(streamable_http_client(place.url, http_client=http), mode=mode) as client:
                yield client


@asynccontextmanager
async def fast(place, mode, token):
    transport = SSETransport if place.sse else StreamableHttpTransport
    async with fastmcp.Client(transport(place.url, auth=token), mode=mode) as client:
        yield client


async def use(client, place):
    """Lists the tools, calls one, and returns its text."""
    listed = await client.list_tools()
    names = [tool.name for tool in getattr(listed, "tools", listed)]
    assert place.tool in names, f"{place.tool} is not listed"
    return (await client.call_tool(place.tool, {})).content[0].text


async def answers(connect, place, mode):
    async with asyncio.timeout(CHECK_SECONDS), connect(place, mode, TOKEN) as client:
        assert await use(client, place) == TEXT


async def is_refused(connect, place, mode):
    try:
        async with asyncio.timeout(CHECK_SECONDS), connect(place, mode, FORGED) as client:
            await use(client, place)
    except TimeoutError:
        raise
    except Exception:
        return
    raise AssertionError("not refused")


async def main():
    # Silences the clients' logs of the errors that these checks cause.
    logging.disable()
    failed = False
    for name, connect in (("python mcp", official), ("fastmcp", fast)):
        for place, modes in ((ROUTE, MODES), (WHOLE, MODES), (SSE, ["legacy"])):
            for mode in modes:
                for promise, check in zip(PROMISES, (answers, is_refused), strict=True):
                    line = f"{name}, {mode}, {place.name}: {promise}"
                    try:
                        await check(connect, place, mode)
                        print(f"ok    {line}")
                    except Exception as error:
                        failed = True
                        print(f"FAIL  {line}: {error!r}".replace("\n", " "))
    return failed


sys.exit(asyncio.run(main()))
