// The client that the suite starts for a scenario: a gateway whose only upstream is the server of the scenario, and the
// official client, which makes the requests of the scenario through this gateway. The suite runs: node client.mjs WAY URL
//
//   route  client ──▶ gateway, /mcp/upstream/scenario ──▶ URL    the client's messages, forwarded
//   whole  client ──▶ gateway, /mcp ──▶ URL                      the gateway's own messages
//
// In most `auth/*` scenarios, a user consents in a browser to the gateway's request to the authorization server of the
// scenario. The issuer that signs this user in at the gateway is the one of ../authorization.
//
// Reads WARDGATE, POLICIES, ISSUER (for these scenarios) and MCP_CONFORMANCE_* (set by the suite) from the environment.

import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import path from 'node:path';
import process from 'node:process';
import { createInterface } from 'node:readline';
import { setTimeout as pause } from 'node:timers/promises';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { connect as browse, tokensOf } from './browser.mjs';

const [way, scenarioUrl] = process.argv.slice(2);
const { WARDGATE, POLICIES, ISSUER, MCP_CONFORMANCE_SCENARIO, MCP_CONFORMANCE_PROTOCOL_VERSION } = process.env;
const context = JSON.parse(process.env.MCP_CONFORMANCE_CONTEXT ?? '{}');
const prefix = way === 'whole' ? 'scenario__' : '';
const call = (client, name, args = {}) => client.callTool({ name: prefix + name, arguments: args });

// The actions of the client in each scenario, given the tools that it sees.
const SCENARIOS = {
  async tools_call(client) {
    const { content } = await call(client, 'add_numbers', { a: 5, b: 3 });
    assert.match(content[0].text, /is 8$/);
  },
  'elicitation-sep1034-client-defaults': client => call(client, 'test_client_elicitation_defaults'),
  async 'sse-retry'(client) {
    const { content } = await call(client, 'test_reconnection');
    assert.match(content[0].text, /completed successfully/);
  },
  async 'sep-2322-client-request-state'(client) {
    for (const name of ['echo_state', 'no_state', 'unrelated']) await call(client, `test_mrtr_${name}`);
    // The suite requires that this result is accepted, but the official client refuses it.
    await assert.rejects(call(client, 'test_mrtr_no_result_type'), /resultType/);
  },
  async 'http-standard-headers'(client) {
    for (const name of ['test_headers', 'my-hyphenated-tool']) await call(client, name);
    if (way === 'whole') return;
    for (const { uri } of (await client.listResources()).resources) await client.readResource({ uri });
    for (const { name } of (await client.listPrompts()).prompts) await client.getPrompt({ name });
  },
  async 'http-custom-headers'(client) {
    for (const { name, arguments: args } of context.toolCalls) await call(client, name, args);
  },
  async 'http-invalid-tool-headers'(client, tools) {
    for (const { name } of tools) await client.callTool({ name, arguments: { region: 'us-west1' } });
  },
  async 'json-schema-2020-12-preservation'(client, tools) {
    const { inputSchema } = tools.find(({ name }) => name === `${prefix}json_schema_2020_12_tool`);
    await call(client, 'json_schema_echo', { schema: inputSchema });
  },
  'auth/client-credentials-basic': () => {},
  'auth/client-credentials-jwt': () => {},
  // The second request has more scopes.
  'auth/scope-step-up': client => granted(client, 2),
  // The server is never satisfied; the user is not asked again for granted scopes.
  'auth/scope-retry-limit': client => refused(client, 'Connected'),
  async 'auth/authorization-server-migration'(client) {
    for (const times of [1, 2]) await granted(client, times);
  },
};
for (const name of ['resource-mismatch', 'metadata-issuer-mismatch', 'iss-supported-missing', 'iss-wrong-issuer', 'iss-unexpected', 'iss-normalized']) {
  SCENARIOS[`auth/${name}`] = client => refused(client, 'Not connected');
}
// The servers of these scenarios have no tools that can be called, so the client only lists tools.
const WITHOUT_TOOLS = ['initialize', 'request-metadata', 'json-schema-ref-no-deref'];

// The pages that the user sees, each by its final heading.
const shown = [];

async function granted(client, times) {
  const { content, isError } = await client.callTool({ name: 'test-tool', arguments: {} });
  assert(!isError, content[0].text);
  assert.equal(content[0].text, 'test');
  assert.deepEqual(shown, Array(times).fill('Connected'));
}

async function refused(client, heading) {
  const { isError } = await client.callTool({ name: 'test-tool', arguments: {} });
  assert(isError);
  assert.deepEqual(shown, [heading]);
}

// Whether a user must consent.
const asksPerson = /^auth\/(?!client-credentials)/.test(MCP_CONFORMANCE_SCENARIO);

// The configuration of an operator. The token endpoint is read from the metadata of the server.
async function auth() {
  const { client_id, client_secret, private_key_pem } = context;
  if (asksPerson) {
    const type = 'authorization_code';
    if (client_id) return { type, client_id, client_secret, issuer: context.issuer };
    // The only client of the suite that is identified by the URL of its metadata document.
    if (MCP_CONFORMANCE_SCENARIO === 'auth/basic-cimd') return { type, client_id: 'https://conformance-test.local/client-metadata.json' };
    return { type };
  }
  if (!client_id) return { type: 'none' };
  const metadata = async (name, of) => {
    const { origin, pathname } = new URL(of);
    const response = await fetch(`${origin}/.well-known/${name}${pathname.replace(/\/$/, '')}`);
    return await response.json();
  };
  const { authorization_servers } = await metadata('oauth-protected-resource', scenarioUrl);
  const { token_endpoint, issuer } = await metadata('oauth-authorization-server', authorization_servers[0]);
  const proof = private_key_pem ? { private_key: private_key_pem, assertion_audience: issuer } : { client_secret };
  return { type: 'client_credentials', token_url: token_endpoint, client_id, ...proof };
}

const scratch = mkdtempSync(path.join(tmpdir(), 'wardgate-client-'));
const write = (name, value) => writeFileSync(path.join(scratch, name), JSON.stringify(value));
write('tools.yaml', {
  sources: {
    scenario: {
      type: 'mcp',
      url: scenarioUrl,
      auth: await auth(),
      private: ['127.0.0.0/8', '::1/128'],
      pins: 'first_use',
      tags: ['conformance'],
      classes: { content: 'public', structuredContent: 'public', error: 'public' },
      ...(asksPerson && { tools: 'none' }),
    },
  },
  // The server has no public list of tools, so the operator configures them.
  ...(asksPerson && {
    tools: [
      {
        name: 'test-tool',
        description: 'The tool of the scenario.',
        tags: ['conformance'],
        input_schema: { type: 'object' },
        execute: { type: 'mcp', source: 'scenario', tool: 'test-tool' },
        result: { classes: { content: 'public' } },
      },
    ],
  }),
});
const AUDIENCE = 'https://gateway.example/mcp';
write('wardgate.yaml', {
  policy: { policies: POLICIES },
  tool_runner: { catalogue: 'tools.yaml' },
  ...(asksPerson && {
    gateway: {
      auth: { issuers: [{ issuer: ISSUER, audience: AUDIENCE, roles: ['Tester'] }] },
      sign_in: { issuer: ISSUER, client_id: 'pages' },
    },
  }),
});

const data = ['--data-dir', path.join(scratch, 'data')];
const config = ['--config', path.join(scratch, 'wardgate.yaml')];
const listen = ['--listen', '127.0.0.1:0'];
const gateway = spawn(WARDGATE, ['up', ...config, ...data, ...listen], { stdio: ['ignore', 'pipe', 'pipe'] });
// Shorter than the time limit of the suite (60 s), which would leave the gateway running.
setTimeout(() => {
  console.error('not done in time');
  gateway.kill('SIGKILL');
  process.exit(1);
}, 55_000).unref();
const log = createInterface(gateway.stderr);
const looked = new Promise(resolve => {
  log.on('line', line => {
    console.error(line);
    if (line.includes('the tools of the upstream servers were read again')) resolve();
  });
});

async function connect() {
  const [ready] = await once(createInterface(gateway.stdout), 'line');
  const [, url] = ready.split(' ');
  const target = way === 'whole' ? url : url.replace(/\/mcp$/, '/mcp/upstream/scenario');
  const token = asksPerson
    ? (await tokensOf(ISSUER, 'dana', { resource: AUDIENCE, scope: 'openid mcp' })).access_token
    : execFileSync(WARDGATE, ['token', ...data, '--sub', 't.suite', '--role', 'Tester'], { encoding: 'utf8' }).trim();
  const modern = MCP_CONFORMANCE_PROTOCOL_VERSION === '2026-07-28';
  const client = new Client(
    { name: 'wardgate-check', version: '1' },
    {
      capabilities: { elicitation: { form: { applyDefaults: true }, ...(asksPerson && { url: {} }) } },
      versionNegotiation: modern ? { mode: { pin: '2026-07-28' } } : undefined,
    },
  );
  client.setRequestHandler('elicitation/create', async ({ params }) => {
    if (params.mode !== 'url') return { action: 'accept', content: {} };
    const { headings } = await browse(params.url, 'dana');
    shown.push(headings.at(-1));
    return { action: shown.at(-1) === 'Connected' ? 'accept' : 'cancel' };
  });
  const authProvider = { token: async () => token };
  await client.connect(new StreamableHTTPClientTransport(new URL(target), { authProvider }));
  return client;
}

// Lists the tools, after the gateway has listed them.
async function list(client) {
  for (;;) {
    const { tools } = await client.listTools();
    if (tools.length > 0) return tools;
    await pause(50);
  }
}

try {
  const client = await connect();
  if (asksPerson) {
    await (SCENARIOS[MCP_CONFORMANCE_SCENARIO] ?? (client => granted(client, 1)))(client);
  } else if (!WITHOUT_TOOLS.includes(MCP_CONFORMANCE_SCENARIO)) {
    await SCENARIOS[MCP_CONFORMANCE_SCENARIO](client, await list(client));
  } else if (way === 'whole') {
    await looked;
  } else {
    await client.listTools();
  }
  await client.close();
} finally {
  gateway.kill();
  await once(gateway, 'exit');
  rmSync(scratch, { recursive: true });
}
