// An MCP server (2026-07-28) with one tool, `whoami`, which returns the user of the call according to a real authorization
// server. Responds with 401 to invalid tokens.
//
//   serve guarded "$node" target/authorization/guarded.mjs ISSUER [CLIENT SECRET]     sets `url` to its own
//
// With a client of the issuer, the server introspects each token (RFC 7662); without one, it verifies tokens locally (RFC 9068).
// `GET /seen` lists the received tokens, for tests only.

import { createServer } from 'node:http';
import process from 'node:process';
import { createRemoteJWKSet, jwtVerify } from 'jose';

const [issuer, client, secret] = process.argv.slice(2);
const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
const seen = [];
const server = createServer();
await new Promise(listening => server.listen(0, '127.0.0.1', listening));
const origin = `http://127.0.0.1:${server.address().port}`;
const resource = `${origin}/mcp`;
const metadata = `${origin}/.well-known/oauth-protected-resource/mcp`;

const read = async token => (await jwtVerify(token, keys, { issuer, audience: resource, typ: 'at+jwt' })).payload;

async function introspected(token) {
  const authorization = `Basic ${btoa(`${client}:${secret}`)}`;
  const body = new URLSearchParams({ token });
  const response = await fetch(`${issuer}/token/introspection`, { method: 'POST', headers: { authorization }, body });
  const said = await response.json();
  if (!said.active || said.aud !== resource) throw new Error('not for us');
  return said;
}

// The user of a token that is valid for this server, or undefined.
async function person(token) {
  try {
    const { sub, scope } = await (client ? introspected(token) : read(token));
    return scope.split(' ').includes('mcp') ? sub : undefined;
  } catch {
    return undefined;
  }
}

const RESULTS = {
  'server/discover': () => ({ supportedVersions: ['2026-07-28'], capabilities: { tools: {} } }),
  'tools/list': () => ({ tools: [{ name: 'whoami', inputSchema: { type: 'object' } }] }),
  'tools/call': who => ({ content: [{ type: 'text', text: `you are ${who}` }] }),
};

async function answer(request, response) {
  const send = (status, body, headers) =>
    response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(JSON.stringify(body));
  if (request.url === '/seen') return send(200, seen);
  if (request.url === new URL(metadata).pathname) {
    return send(200, { resource, authorization_servers: [issuer], scopes_supported: ['mcp'] });
  }
  let body = '';
  for await (const part of request) body += part;
  const token = /^Bearer (.*)$/.exec(request.headers.authorization)?.[1];
  if (token) seen.push(token);
  const who = token && (await person(token));
  if (!who) return send(401, {}, { 'www-authenticate': `Bearer resource_metadata="${metadata}"` });
  const { id, method } = JSON.parse(body);
  const result = RESULTS[method]?.(who);
  if (!result) return send(404, { jsonrpc: '2.0', id, error: { code: -32601, message: 'no' } });
  send(200, { jsonrpc: '2.0', id, result: { resultType: 'complete', ttlMs: 0, cacheScope: 'private', ...result } });
}

server.on('request', (request, response) => {
  answer(request, response).catch(error => {
    console.error(error);
    response.writeHead(500).end();
  });
});
console.log(`ready ${resource}`);
