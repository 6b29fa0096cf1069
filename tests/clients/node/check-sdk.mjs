// `@modelcontextprotocol/sdk`, the line before `@modelcontextprotocol/client`: it knows the handshake only.

import { discoverOAuthProtectedResourceMetadata, extractWWWAuthenticateParams } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { StreamableHTTPClientTransport, StreamableHTTPError } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { clientInfo, run, url } from './checks.mjs';

// The SDK always offers its newest version. An older release offers what was newest then.
class OfferingTransport extends StreamableHTTPClientTransport {
  constructor(version, options) {
    super(url, options);
    this.version = version;
  }

  send(message, options) {
    const offers = message.method === 'initialize';
    const offer = offers ? { ...message, params: { ...message.params, protocolVersion: this.version } } : message;
    return super.send(offer, options);
  }
}

const era = (version, mode) => ({
  version,
  mode,
  modern: false,
  open: (token, fetch) => ({
    client: new Client(clientInfo),
    transport: new OfferingTransport(version, {
      fetch,
      requestInit: { headers: token ? { authorization: `Bearer ${token}` } : {} },
    }),
  }),
  negotiated: client => client.transport.protocolVersion,
  whenUpdated: (client, tell) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, tell),
  isUnauthorized: error => error instanceof StreamableHTTPError && error.code === 401,
  discoverOAuthProtectedResourceMetadata,
  extractWWWAuthenticateParams,
});

await run('npm sdk', [era('2025-11-25', 'default'), era('2025-06-18', 'offered'), era('2025-03-26', 'offered')]);
