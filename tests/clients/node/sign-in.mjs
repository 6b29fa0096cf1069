// An `OAuthClientProvider` of the official client whose user signs in with a simulated browser.

import { UnauthorizedError } from '@modelcontextprotocol/client';

export const CALLBACK = 'http://127.0.0.1:9/callback';

// `asked` contains the parameters of each authorization request. `signIn` takes the URL of such a request and returns the URL
// of the redirect to the client. `client` is a registered client; `document` is the URL of the client's metadata.
export class SignInProvider {
  asked = [];
  redirectUrl = CALLBACK;
  clientMetadata = {
    client_name: 'wardgate-check',
    redirect_uris: [CALLBACK],
    grant_types: ['authorization_code', 'refresh_token'],
    response_types: ['code'],
    token_endpoint_auth_method: 'none',
  };

  constructor(signIn, { client, document } = {}) {
    this.signIn = signIn;
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
    this.back = await this.signIn(url);
  }
}

// Runs `attempt`, and again each time after the user of `provider` signed in. `transport` returns the newest transport.
export async function afterSignIn(transport, provider, attempt) {
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
