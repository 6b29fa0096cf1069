// `@modelcontextprotocol/client`: 2026-07-28 by `server/discover`, and the versions with a handshake.

import {
  Client,
  StreamableHTTPClientTransport,
  UnauthorizedError,
  discoverOAuthProtectedResourceMetadata,
  extractWWWAuthenticateParams,
} from '@modelcontextprotocol/client';
import { clientInfo, run, url } from './checks.mjs';

const era = (version, mode, options) => ({
  version,
  mode,
  modern: version === '2026-07-28',
  open: (token, fetch) => ({
    client: new Client(clientInfo, options),
    transport: new StreamableHTTPClientTransport(url, { fetch, authProvider: { token: async () => token } }),
  }),
  negotiated: client => client.getNegotiatedProtocolVersion(),
  whenUpdated: (client, tell) => client.setNotificationHandler('notifications/resources/updated', tell),
  isUnauthorized: error => error instanceof UnauthorizedError,
  discoverOAuthProtectedResourceMetadata,
  extractWWWAuthenticateParams,
});

await run('npm client', [
  era('2026-07-28', 'auto', { versionNegotiation: { mode: 'auto' } }),
  era('2026-07-28', 'pinned', { versionNegotiation: { mode: { pin: '2026-07-28' } } }),
  era('2025-11-25', 'default', {}),
  era('2025-06-18', 'offered', { supportedProtocolVersions: ['2025-06-18'] }),
  era('2025-03-26', 'offered', { supportedProtocolVersions: ['2025-03-26'] }),
]);
