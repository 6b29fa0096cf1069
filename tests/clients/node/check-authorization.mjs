// Tests authorization with `@modelcontextprotocol/client`, from a 401 to a call: it discovers the authorization server,
// registers there in each way that it supports, signs a user in, and requests more scopes when a call needs them.
//
// Reads WARDGATE_URL and ISSUER from the environment. Prints one line per check. The exit code is not 0 if a check failed.

import assert from 'node:assert/strict';
import process from 'node:process';
import { Client, ClientCredentialsProvider, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { login } from './browser.mjs';
import { report } from './report.mjs';
import { SignInProvider, afterSignIn } from './sign-in.mjs';

const { WARDGATE_URL, ISSUER } = process.env;
const PLACES = { '/mcp': 'open__test_simple_text', '/mcp/near': 'open__test_simple_text', '/mcp/upstream/open': 'test_simple_text' };
const TEXT = 'This is a simple text response for testing.';

// The user is dana.
const byLogin = settings => new SignInProvider(url => login(url, 'dana'), settings);
const registered = () => ({ client_id: 'registered', issuer: ISSUER });
const WAYS = {
  'registered beforehand': () => byLogin({ client: registered() }),
  'by the URL of its metadata': () => byLogin({ document: 'https://client.example/app.json' }),
  'registered on the way': () => byLogin(),
  'by a secret of its own': () => new ClientCredentialsProvider({ clientId: 'machine', clientSecret: 'machine-secret' }),
};
const ERAS = {
  '2026-07-28': { versionNegotiation: { mode: { pin: '2026-07-28' } } },
  auto: { versionNegotiation: { mode: 'auto' } },
  '2025-11-25': {},
};

async function use(url, provider, era, tool) {
  let client, transport;
  const connect = async () => {
    client = new Client({ name: 'wardgate-check', version: '1' }, ERAS[era]);
    transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
    await client.connect(transport);
  };
  await afterSignIn(() => transport, provider, connect);
  const { tools } = await client.listTools();
  assert(tools.some(({ name }) => name === tool), tools.map(({ name }) => name).join(' '));
  const { content } = await afterSignIn(() => transport, provider, () => client.callTool({ name: tool, arguments: {} }));
  await client.close();
  assert.equal(content[0].text, TEXT);
}

const scopes = asked => asked.map(request => request.get('scope').split(' ').filter(it => it !== 'offline_access').sort().join(' '));

const CHECKS = [];
for (const era of Object.keys(ERAS)) {
  for (const [way, provider] of Object.entries(WAYS)) {
    for (const [path, tool] of Object.entries(PLACES)) {
      CHECKS.push([
        `${era}, ${path}, ${way}: from a 401 to a call`,
        async () => {
          const [url, own] = [new URL(path, WARDGATE_URL), provider()];
          await use(url, own, era, tool);
          if (!own.asked) return;
          assert.deepEqual(scopes(own.asked), ['mcp']);
          assert.equal(own.asked[0].get('resource'), url.href);
        },
      ]);
    }
  }
  CHECKS.push([
    `${era}: a call that needs more gets it`,
    async () => {
      const provider = byLogin({ client: registered() });
      await use(new URL(WARDGATE_URL), provider, era, 'vault__test_simple_text');
      assert.deepEqual(scopes(provider.asked), ['mcp', 'mcp records']);
    },
  ]);
}
await report('npm client, ', CHECKS);
