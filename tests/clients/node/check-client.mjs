// Tests `@modelcontextprotocol/client` with 2026-07-28 by `server/discover`, and with the versions that have a handshake.

import {
  Client,
  SSEClientTransport,
  StreamableHTTPClientTransport,
  UnauthorizedError,
  discoverOAuthProtectedResourceMetadata,
  extractWWWAuthenticateParams,
} from '@modelcontextprotocol/client';
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio';
import { bridge, clientInfo, run, sse, url } from './checks.mjs';

const TRANSPORTS = {
  http: {
    connect: (token, fetch) => new StreamableHTTPClientTransport(url, { fetch, authProvider: { token: async () => token } }),
    isUnauthorized: error => error instanceof UnauthorizedError,
  },
  sse: {
    connect: (token, fetch) => new SSEClientTransport(sse, { fetch, authProvider: { token: async () => token } }),
    isUnauthorized: error => error instanceof UnauthorizedError,
  },
  stdio: {
    connect: token => new StdioClientTransport(bridge(token)),
    // A client with a pinned version reports in its own words that the server does not support it.
    isUnauthorized: error => /WARDGATE_TOKEN|did not offer pinned/.test(error.message),
  },
};

const era = (transport, version, mode, options) => ({
  transport,
  version,
  mode,
  modern: version === '2026-07-28',
  open: (token, fetch) => ({
    client: new Client(clientInfo, options),
    transport: TRANSPORTS[transport].connect(token, fetch),
  }),
  negotiated: client => client.getNegotiatedProtocolVersion(),
  whenUpdated: (client, tell) => client.setNotificationHandler('notifications/resources/updated', tell),
  isUnauthorized: TRANSPORTS[transport].isUnauthorized,
  discoverOAuthProtectedResourceMetadata,
  extractWWWAuthenticateParams,
});

const over = transport => [
  era(transport, '2026-07-28', 'auto', { versionNegotiation: { mode: 'auto' } }),
  era(transport, '2026-07-28', 'pinned', { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
  era(transport, '2025-11-25', 'default', {}),
  era(transport, '2025-06-18', 'offered', { supportedProtocolVersions: ['2025-06-18'] }),
  era(transport, '2025-03-26', 'offered', { supportedProtocolVersions: ['2025-03-26'] }),
];

await run('npm client', [
  ...over('http'),
  ...over('stdio'),
  era('sse', '2025-11-25', 'default', {}),
  era('sse', '2024-11-05', 'offered', { supportedProtocolVersions: ['2024-11-05'] }),
]);
