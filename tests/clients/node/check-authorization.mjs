// `@modelcontextprotocol/client`, by itself from a 401 to a call: it finds the authorization server, makes itself known
// there in each way it can, logs somebody in, and asks for more when a call needs it.
//
// Takes WARDGATE_URL and ISSUER from the environment. Prints a line per check; the process exits non-zero when one failed.

import assert from 'node:assert/strict';
import process from 'node:process';
import {
  Client,
  ClientCredentialsProvider,
  StreamableHTTPClientTransport,
  UnauthorizedError,
} from '@modelcontextprotocol/client';
import { login } from './browser.mjs';
import { report } from './report.mjs';

const { WARDGATE_URL, ISSUER } = process.env;
const CALLBACK = 'http://127.0.0.1:9/callback';
const PLACES = { '/mcp': 'open__test_simple_text', '/mcp/near': 'open__test_simple_text', '/mcp/upstream/open': 'test_simple_text' };
const TEXT = 'This is a simple text response for testing.';
const METADATA = {
  client_name: 'wardgate-check',
  redirect_uris: [CALLBACK],
  grant_types: ['authorization_code', 'refresh_token'],
  response_types: ['code'],
  token_endpoint_auth_method: 'none',
};

// A client whose user, dana, logs in at a browser that needs no window; `asked` is what for.
class ByLogin {
  asked = [];
  redirectUrl = CALLBACK;
  clientMetadata = METADATA;

  constructor({ client, document } = {}) {
    this.client = client;
    this.clientMetadataUrl = document;
  }
  clientInformation() {
    return this.client;
  }
  saveClientInformation(client) {
    this.client = client;
  }
  tokens() {
    return this.kept;
  }
  saveTokens(tokens) {
    this.kept = tokens;
  }
  saveCodeVerifier(verifier) {
    this.verifier = verifier;
  }
  codeVerifier() {
    return this.verifier;
  }
  async redirectToAuthorization(url) {
    this.asked.push(url.searchParams);
    this.back = await login(url, 'dana');
  }
}

const registered = () => ({ client_id: 'registered', issuer: ISSUER });
const WAYS = {
  'registered beforehand': () => new ByLogin({ client: registered() }),
  'by the URL of its metadata': () => new ByLogin({ document: 'https://client.example/app.json' }),
  'registered on the way': () => new ByLogin(),
  'by a secret of its own': () => new ClientCredentialsProvider({ clientId: 'machine', clientSecret: 'machine-secret' }),
};
const ERAS = {
  '2026-07-28': { versionNegotiation: { mode: { pin: '2026-07-28' } } },
  auto: { versionNegotiation: { mode: 'auto' } },
  '2025-11-25': {},
};

// Tries, and after each time that its user logged in once more.
async function afterLogin(transport, provider, attempt) {
  for (let times = 0; ; times++) {
    try {
      return await attempt();
    } catch (error) {
      if (!(error instanceof UnauthorizedError) || !provider.back || times > 1) throw error;
      const { searchParams } = provider.back;
      provider.back = undefined;
      await transport().finishAuth(searchParams);
    }
  }
}

async function use(url, provider, era, tool) {
  let client, transport;
  const connect = async () => {
    client = new Client({ name: 'wardgate-check', version: '1' }, ERAS[era]);
    transport = new StreamableHTTPClientTransport(url, { authProvider: provider });
    await client.connect(transport);
  };
  await afterLogin(() => transport, provider, connect);
  const { tools } = await client.listTools();
  assert(tools.some(({ name }) => name === tool), tools.map(({ name }) => name).join(' '));
  const { content } = await afterLogin(() => transport, provider, () => client.callTool({ name: tool, arguments: {} }));
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
      const provider = new ByLogin({ client: registered() });
      await use(new URL(WARDGATE_URL), provider, era, 'vault__test_simple_text');
      assert.deepEqual(scopes(provider.asked), ['mcp', 'mcp records']);
    },
  ]);
}
await report('npm client, ', CHECKS);
