"""Tests fifty simultaneous requests of one FastMCP server to one legacy client, on the server's own route and on /mcp, with
immediate and late responses.

Reads WARDGATE_URL and TOKEN from the environment. Prints one line per check. The exit code is not 0 if a check failed.
"""

import asyncio
import os
import sys

import fastmcp
from fastmcp.client.transports import StreamableHttpTransport

URL, TOKEN = os.environ["WARDGATE_URL"], os.environ["TOKEN"]
AT_ONCE = 50
# Longer than the time limit of a call.
LATE_SECONDS = 40
PLACES = (("route", f"{URL}/upstream/asking", ""), ("whole view", URL, "asking__"))


async def fifty(url, prefix, seconds):
    async def answer(message, response_type, params, context):
        await asyncio.sleep(seconds)
        return response_type(name="Ann")

    transport = StreamableHttpTransport(url, auth=TOKEN)
    async with fastmcp.Client(transport, mode="legacy", elicitation_handler=answer) as client:
        calls = [client.call_tool(f"{prefix}ask", {}, raise_on_error=False) for _ in range(AT_ONCE)]
        answers = await asyncio.wait_for(asyncio.gather(*calls), seconds + 60)
    texts = [answer.content[0].text for answer in answers]
    assert texts == ["Hello, Ann!"] * AT_ONCE, f"{texts.count('Hello, Ann!')} of {AT_ONCE}; {set(texts)}"


async def unwrapped(url, prefix):
    for mode in ("legacy", "2026-07-28"):
        transport = StreamableHttpTransport(url, auth=TOKEN)
        async with fastmcp.Client(transport, mode=mode) as client:
            answer = await client.call_tool(f"{prefix}seven", {})
            assert answer.data == 7, f"{mode}: {answer.data!r}"


async def check(what, checking):
    try:
        await checking
        print(f"ok   fastmcp: {what}")
        return True
    except Exception as error:
        print(f"FAIL fastmcp: {what}: {error!r}")
        return False


async def main():
    outcomes = []
    for name, url, prefix in PLACES:
        outcomes.append(await check(f"{name}: a wrapped number is unwrapped", unwrapped(url, prefix)))
        for seconds in (0, LATE_SECONDS):
            what = f"{name}: {AT_ONCE} questions at once, answered after {seconds} s"
            outcomes.append(await check(what, fifty(url, prefix, seconds)))
    return all(outcomes)


sys.exit(not asyncio.run(main()))
