// A real authorization server for tests: the npm package `oidc-provider`.
//
//   . tests/checks; npm_install tests/authorization target/authorization
//   cp tests/authorization/*.mjs target/authorization/
//   serve issuer "$node" target/authorization/server.mjs [SETTINGS.json]     sets `url` to the issuer
//
// It listens on a free port of 127.0.0.1, prints `ready ISSUER`, and runs until it is killed. It supports authorization_code
// with PKCE (S256 required), refresh_token, client_credentials, token exchange (RFC 8693), identity assertions (ID-JAG, both
// parts: `requested_token_type`, and jwt-bearer); RFC 8707 resource indicators; dynamic registration; client ids that are
// URLs of metadata documents; introspection and revocation. Access tokens are JWTs (RFC 9068, RS256) whose `aud` is the
// requested resource.
//
// `login_hint` of the authorization request names the user, who signs in without pages; the user `nobody` refuses. Without a
// hint, the provider shows its own pages. browser.mjs simulates a browser for both. All members of SETTINGS.json are
// optional:
//
//   port      default: a free port
//   scopes    scopes of the resource, separated by spaces; default "mcp"
//   lifetime  lifetime of an access token in seconds; default 300
//   format    `opaque` for access tokens that only introspection can read; default `jwt`
//   clients   registered clients in the format of RFC 7591; default: `machine` (client_credentials and token exchange,
//             secret `machine-secret`)
//   claims    by subject (a user or a client): additional claims of its access tokens, such as { "nurse": { "roles": […] } }
//   documents by URL: client metadata documents. No other URL is fetched
//   trusts    additional issuers whose identity assertions are accepted

import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { createServer } from 'node:http';
import process from 'node:process';
import { SignJWT, createLocalJWKSet, createRemoteJWKSet, decodeJwt, exportJWK, generateKeyPair, jwtVerify } from 'jose';
import Provider, { errors } from 'oidc-provider';

const GRANT = 'urn:ietf:params:oauth:grant-type:';
const TYPE = 'urn:ietf:params:oauth:token-type:';
const MACHINE = {
  client_id: 'machine',
  client_secret: 'machine-secret',
  grant_types: ['client_credentials', `${GRANT}token-exchange`],
  redirect_uris: [],
  response_types: [],
};
const {
  port = 0,
  scopes = 'mcp',
  lifetime = 300,
  format = 'jwt',
  clients = [MACHINE],
  claims = {},
  documents = {},
  trusts = [],
} = process.argv[2] ? JSON.parse(readFileSync(process.argv[2], 'utf8')) : {};

const server = createServer();
await new Promise(listening => server.listen(port, '127.0.0.1', listening));
const issuer = `http://127.0.0.1:${server.address().port}`;

const { privateKey } = await generateKeyPair('RS256', { extractable: true });
const key = { ...(await exportJWK(privateKey)), kid: 'signing', alg: 'RS256', use: 'sig' };
const publicKeys = createLocalJWKSet({ keys: [(({ kty, n, e, kid, alg, use }) => ({ kty, n, e, kid, alg, use }))(key)] });

const provider = new Provider(issuer, {
  clients,
  jwks: { keys: [key] },
  cookies: { keys: [randomUUID()] },
  scopes: ['openid', 'offline_access', ...scopes.split(' ')],
  claims: { openid: ['sub'] },
  ttl: { AccessToken: lifetime, ClientCredentials: lifetime },
  pkce: { required: () => true },
  fetch: (url, options) => fetchDocument(String(url), options),
  findAccount: (_, sub) => ({ accountId: sub, claims: () => ({ sub }) }),
  extraTokenClaims: (_, token) => claims[token.accountId ?? token.clientId],
  features: {
    devInteractions: { enabled: true },
    introspection: { enabled: true },
    clientCredentials: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    clientIdMetadataDocument: { enabled: true, ack: 'draft-02' },
    resourceIndicators: {
      enabled: true,
      getResourceServerInfo: (_, resource) => ({
        audience: resource,
        scope: scopes,
        accessTokenFormat: format,
        accessTokenTTL: lifetime,
        jwt: format === 'jwt' ? { sign: { alg: 'RS256' } } : undefined,
      }),
      useGrantedResource: () => true,
    },
  },
});
provider.registerGrantType(`${GRANT}token-exchange`, exchange, [
  'subject_token',
  'subject_token_type',
  'actor_token',
  'actor_token_type',
  'requested_token_type',
  'audience',
  'resource',
  'scope',
]);
provider.registerGrantType(`${GRANT}jwt-bearer`, assertion, ['assertion', 'scope']);

// The metadata documents of clients are in the settings, so that the server makes no network requests.
function fetchDocument(url) {
  const document = documents[url];
  if (!document) return Promise.reject(new Error(`no document at ${url}`));
  return Promise.resolve(Response.json(document));
}

const sign = (type, subject, audience, members) =>
  new SignJWT({ ...members, jti: randomUUID() })
    .setProtectedHeader({ alg: 'RS256', kid: key.kid, typ: type })
    .setIssuer(issuer)
    .setSubject(subject)
    .setAudience(audience)
    .setIssuedAt()
    .setExpirationTime(`${lifetime}s`)
    .sign(privateKey);

const granted = (wanted, known = scopes) => {
  const all = known.split(' ');
  return (wanted ?? known).split(' ').filter(scope => all.includes(scope)).join(' ');
};

// RFC 8693: exchanges a token of this server for one with another audience, or for an identity assertion for another server.
async function exchange(ctx) {
  const { client, params } = ctx.oidc;
  const subject = await verified(params.subject_token, { issuer });
  const audience = params.resource ?? params.audience;
  if (!audience) throw new errors.InvalidRequest('name a resource or an audience');
  const scope = granted(params.scope, subject.scope);
  if (params.requested_token_type === `${TYPE}id-jag`) {
    const members = { client_id: client.clientId, resource: params.resource, scope };
    answer(ctx, await sign('oauth-id-jag+jwt', subject.sub, params.audience, members), `${TYPE}id-jag`, 'N_A', scope);
    return;
  }
  const act = params.actor_token && { sub: (await verified(params.actor_token, { issuer })).sub };
  const members = { ...claims[subject.sub], client_id: client.clientId, scope, act };
  answer(ctx, await sign('at+jwt', subject.sub, audience, members), `${TYPE}access_token`, 'Bearer', scope);
}

const used = new Set();

// RFC 7523, restricted by the identity assertion grant: for this server, for this client, and usable once.
async function assertion(ctx) {
  const { client, params } = ctx.oidc;
  const said = await verified(params.assertion, { issuer: [issuer, ...trusts], audience: issuer, typ: 'oauth-id-jag+jwt' });
  if (said.client_id !== client.clientId) throw new errors.InvalidGrant('the assertion is for another client');
  if (used.has(said.jti)) throw new errors.InvalidGrant('the assertion was used before');
  used.add(said.jti);
  const scope = granted(params.scope, said.scope);
  const members = { ...claims[said.sub], client_id: client.clientId, scope };
  answer(ctx, await sign('at+jwt', said.sub, said.resource, members), undefined, 'Bearer', scope);
}

async function verified(token, rules) {
  try {
    const { iss } = decodeJwt(token);
    const keys = trusts.includes(iss) ? createRemoteJWKSet(new URL(`${iss}/jwks`)) : publicKeys;
    return (await jwtVerify(token, keys, rules)).payload;
  } catch (error) {
    throw new errors.InvalidGrant(error.message);
  }
}

function answer(ctx, access_token, issued_token_type, token_type, scope) {
  ctx.body = { access_token, issued_token_type, token_type, expires_in: lifetime, scope };
}

// Signs in the user that the hint names, and consents to every request.
async function interact(request, response) {
  const { prompt, params, session, grantId } = await provider.interactionDetails(request, response);
  if (!params.login_hint) return answerOf(request, response);
  const finish = result => provider.interactionFinished(request, response, result, { mergeWithLastSubmission: true });
  if (params.login_hint === 'nobody') {
    return finish({ error: 'access_denied', error_description: 'they refused' });
  }
  if (prompt.name === 'login') return finish({ login: { accountId: params.login_hint } });
  const grant = grantId
    ? await provider.Grant.find(grantId)
    : new provider.Grant({ accountId: session.accountId, clientId: params.client_id });
  const { missingOIDCScope = [], missingResourceScopes = {} } = prompt.details;
  grant.addOIDCScope(missingOIDCScope.join(' '));
  for (const [resource, names] of Object.entries(missingResourceScopes)) {
    grant.addResourceScope(resource, names.join(' '));
  }
  return finish({ consent: { grantId: await grant.save() } });
}

const answerOf = provider.callback();
server.on('request', (request, response) => {
  if (!request.url.startsWith('/interaction/')) return void answerOf(request, response);
  interact(request, response).catch(error => {
    console.error(error);
    response.writeHead(500).end();
  });
});
console.log(`ready ${issuer}`);
