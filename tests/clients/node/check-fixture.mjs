// Tests JavaScript clients and bridges, in every era that each supports, with a tool of the fixture: on the fixture's own
// route, on /mcp, and over HTTP+SSE of 2024-11-05. The official client uses the bridges over stdio.
//
// Reads WARDGATE_URL, TOKEN, NODE (a Node.js that is new enough for the inspector) and HOME (where some clients write) from
// the environment. Prints one line per check. The exit code is not 0 if a check failed.

import assert from 'node:assert/strict';
import { execFile } from 'node:child_process';
import process from 'node:process';
import { fileURLToPath } from 'node:url';
import { promisify } from 'node:util';
import { Client, SSEClientTransport, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { Client as OldClient } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport as OldSse } from '@modelcontextprotocol/sdk/client/sse.js';
import { StreamableHTTPClientTransport as OldHttp } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { report } from './report.mjs';

const { WARDGATE_URL, TOKEN, NODE } = process.env;
// A token with an invalid signature.
const FORGED = TOKEN.replace(/[^.]+$/, signature => [...signature].reverse().join(''));
const CHECK_MS = 20_000;
const TEXT = 'This is a simple text response for testing.';

const ROUTE = { name: 'route', url: `${WARDGATE_URL}/upstream/fixture`, tool: 'test_simple_text', transport: 'http' };
const WHOLE = { name: 'whole view', url: WARDGATE_URL, tool: 'fixture__test_simple_text', transport: 'http' };
const SSE = { ...WHOLE, name: 'whole view over SSE', url: new URL('/sse', WARDGATE_URL).href, transport: 'sse' };
const EVERYWHERE = [ROUTE, WHOLE, SSE];

const info = { name: 'wardgate-check', version: '1' };
const bearer = token => ({ authorization: `Bearer ${token}` });
const program = name => fileURLToPath(import.meta.resolve(name));

// Lists the tools, calls one, and returns its text.
async function use(client, transport, { tool }) {
  try {
    await client.connect(transport);
    const { tools } = await client.listTools();
    assert(tools.some(({ name }) => name === tool), `${tool} is not listed`);
    const { content } = await client.callTool({ name: tool, arguments: {} });
    return content[0].text;
  } finally {
    await client.close();
  }
}

const client = negotiation => async (place, token) => {
  const Transport = place === SSE ? SSEClientTransport : StreamableHTTPClientTransport;
  const transport = new Transport(new URL(place.url), { authProvider: { token: async () => token } });
  return await use(new Client(info, negotiation), transport, place);
};

async function sdk(place, token) {
  const Transport = place === SSE ? OldSse : OldHttp;
  const transport = new Transport(new URL(place.url), { requestInit: { headers: bearer(token) } });
  return await use(new OldClient(info), transport, place);
}

const bridge = (negotiation, args) => async (place, token) => {
  const env = { ...process.env, BEARER: `Bearer ${token}` };
  const transport = new StdioClientTransport({ command: NODE, args: args(place, token), env, stderr: 'ignore' });
  return await use(new Client(info, negotiation), transport, place);
};
const mcpRemote = ({ url, transport }) => [
  program('mcp-remote/dist/proxy.js'),
  url,
  ...['--header', 'Authorization:${BEARER}', '--transport', `${transport}-only`, '--protocol', 'auto'],
];
const supergateway = ({ url, transport }, token) => [
  program('supergateway/dist/index.js'),
  ...[transport === 'sse' ? '--sse' : '--streamableHttp', url, '--oauth2Bearer', token, '--logLevel', 'none'],
];

const inspector = era => async ({ url, tool, transport }, token) => {
  const args = [
    program('@modelcontextprotocol/inspector/clients/launcher/build/index.js'),
    ...['--cli', url, '--transport', transport, '--protocol-era', era, '--stored-auth-only'],
    ...['--header', `Authorization: Bearer ${token}`, '--method', 'tools/call', '--tool-name', tool],
  ];
  const running = promisify(execFile)(NODE, args, { timeout: CHECK_MS });
  running.child.stdin.end();
  const { stdout } = await running;
  return JSON.parse(stdout).content[0].text;
};

const PINNED = { versionNegotiation: { mode: { pin: '2026-07-28' } } };
const AUTO = { versionNegotiation: { mode: 'auto' } };
const CLIENTS = [
  ['npm client, legacy', EVERYWHERE, client({})],
  ['npm client, modern', [ROUTE, WHOLE], client(PINNED)],
  ['npm sdk', EVERYWHERE, sdk],
  ['mcp-remote, legacy', EVERYWHERE, bridge({}, mcpRemote)],
  ['mcp-remote, modern', [ROUTE, WHOLE], bridge(PINNED, mcpRemote)],
  ['supergateway', EVERYWHERE, bridge({}, supergateway)],
  ['inspector, legacy', EVERYWHERE, inspector('legacy')],
  ['inspector, auto', [ROUTE, WHOLE], inspector('auto')],
  ['inspector, modern', [ROUTE, WHOLE], inspector('modern')],
];

function within(milliseconds, work) {
  let timer;
  const late = new Promise((_, reject) => {
    timer = setTimeout(() => reject(new Error(`no end after ${milliseconds} ms`)), milliseconds);
  });
  return Promise.race([work, late]).finally(() => clearTimeout(timer));
}

for (const [name, places, reach] of CLIENTS) {
  const good = places.map(place => [
    `${place.name}: a tool is listed, and answers`,
    async () => assert.equal(await within(CHECK_MS, reach(place, TOKEN)), TEXT),
  ]);
  const bad = places.map(place => [
    `${place.name}: a wrong token ends in an error`,
    () => within(CHECK_MS, assert.rejects(reach(place, FORGED))),
  ]);
  await report(`${name}, `, [...good, ...bad]);
}
