// Tests `@modelcontextprotocol/sdk`, the predecessor of `@modelcontextprotocol/client`, which supports only the handshake.

import { discoverOAuthProtectedResourceMetadata, extractWWWAuthenticateParams } from '@modelcontextprotocol/sdk/client/auth.js';
import { Client } from '@modelcontextprotocol/sdk/client/index.js';
import { SSEClientTransport, SseError } from '@modelcontextprotocol/sdk/client/sse.js';
import { StdioClientTransport } from '@modelcontextprotocol/sdk/client/stdio.js';
import { StreamableHTTPClientTransport, StreamableHTTPError } from '@modelcontextprotocol/sdk/client/streamableHttp.js';
import { ResourceUpdatedNotificationSchema } from '@modelcontextprotocol/sdk/types.js';
import { bridge, clientInfo, run, sse, url } from './checks.mjs';

// The SDK always offers its newest version. An older release offers the version that was the newest at its time.
function offering(version, transport) {
  const { send, setProtocolVersion } = transport;
  transport.send = (message, options) => {
    const offers = message.method === 'initialize';
    const offer = offers ? { ...message, params: { ...message.params, protocolVersion: version } } : message;
    return send.call(transport, offer, options);
  };
  transport.setProtocolVersion = agreed => {
    transport.agreed = agreed;
    setProtocolVersion?.call(transport, agreed);
  };
  return transport;
}

const headers = token => (token ? { authorization: `Bearer ${token}` } : {});

const TRANSPORTS = {
  http: {
    connect: (token, fetch) => new StreamableHTTPClientTransport(url, { fetch, requestInit: { headers: headers(token) } }),
    isUnauthorized: error => error instanceof StreamableHTTPError && error.code === 401,
  },
  sse: {
    connect: (token, fetch) => new SSEClientTransport(sse, { fetch, requestInit: { headers: headers(token) } }),
    isUnauthorized: error => error instanceof SseError && error.code === 401,
  },
  stdio: {
    connect: token => new StdioClientTransport(bridge(token)),
    isUnauthorized: error => error.message.includes('WARDGATE_TOKEN'),
  },
};

const era = (transport, version, mode) => ({
  transport,
  version,
  mode,
  modern: false,
  open: (token, fetch) => ({
    client: new Client(clientInfo),
    transport: offering(version, TRANSPORTS[transport].connect(token, fetch)),
  }),
  negotiated: client => client.transport.agreed,
  whenUpdated: (client, tell) => client.setNotificationHandler(ResourceUpdatedNotificationSchema, tell),
  isUnauthorized: TRANSPORTS[transport].isUnauthorized,
  discoverOAuthProtectedResourceMetadata,
  extractWWWAuthenticateParams,
});

const over = transport => [
  era(transport, '2025-11-25', 'default'),
  era(transport, '2025-06-18', 'offered'),
  era(transport, '2025-03-26', 'offered'),
];

await run('npm sdk', [
  ...over('http'),
  ...over('stdio'),
  era('sse', '2025-11-25', 'default'),
  era('sse', '2024-11-05', 'offered'),
]);
