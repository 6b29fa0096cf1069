// A minimal browser for authorization: it keeps cookies, follows redirects, and fills in forms.

// login(URL, WHO): follows an authorization request until it redirects to the client, and returns that URL. A hint names the
// user, so that the server shows no pages.
export async function login(authorizationUrl, who) {
  const url = new URL(authorizationUrl);
  if (who) url.searchParams.set('login_hint', who);
  const callback = url.searchParams.get('redirect_uri');
  const browser = new Browser();
  const { url: back } = await browser.open(url, next => next.href.startsWith(callback));
  if (!back.href.startsWith(callback)) throw new Error(`the authorization request leads to ${back.href}`);
  return back;
}

// tokensOf(ISSUER, WHO, TERMS): signs in for the client `registered` of settings.json, and returns the token response for the
// `resource` and the `scope` of TERMS.
export async function tokensOf(issuer, who, terms) {
  const client = { client_id: 'registered', redirect_uri: 'http://127.0.0.1:9/callback' };
  const pkce = { code_challenge: '7w_YNF9DSfIdPf_pRjSq646_kPr-2-o9NAl16JGghdM', code_challenge_method: 'S256' };
  const request = new URLSearchParams({ ...client, ...pkce, response_type: 'code', ...terms });
  const back = await login(`${issuer}/auth?${request}`, who);
  const code = back.searchParams.get('code');
  if (!code) throw new Error(`no code, but ${back.search}`);
  const grant = { ...client, grant_type: 'authorization_code', code, code_verifier: 'v'.repeat(43) };
  const response = await fetch(`${issuer}/token`, { method: 'POST', body: new URLSearchParams(grant) });
  const answer = await response.json();
  if (!response.ok) throw new Error(JSON.stringify(answer));
  return answer;
}

// connect(URL, WHO): acts as the user on the page that their MCP client opens: signs in where required, and consents.
// Returns the last page, with the headings of all pages. `stop` determines the URLs at which to stop.
export async function connect(url, who, stop = () => false) {
  const browser = new Browser();
  const headings = [];
  let page = await browser.open(new URL(url), stop);
  for (let steps = 0; steps < 12; steps++) {
    if (stop(page.url)) return { ...page, headings };
    headings.push(/<h1>(.*?)<\/h1>/.exec(page.text)?.[1]);
    const form = formOf(page);
    const onward = /http-equiv="refresh" content="0; url=([^"]*)"/.exec(page.text)?.[1];
    if (form) page = await browser.submit(form, { login: who, password: 'any', decision: 'allow' }, stop);
    else if (onward) page = await browser.open(new URL(plain(onward)), stop);
    else return { ...page, headings };
  }
  throw new Error(`round in a circle: ${headings.join(', ')}`);
}

export class Browser {
  cookies = new Map();

  // Opens a page and follows redirects, except to URLs that match `stop`. Returns URL, status and text of the last page.
  async open(url, stop = () => false) {
    return this.#follow(url, {}, stop);
  }

  // Submits a form, with these values for fields and buttons of these names.
  async submit({ action, fields }, values, stop = () => false) {
    const body = new URLSearchParams();
    for (const [name, value] of fields) if (!body.has(name)) body.set(name, values[name] ?? value);
    return this.#follow(action, { method: 'POST', body, headers: { origin: action.origin } }, stop);
  }

  async #follow(first, request, stop) {
    let [url, sent] = [first, request];
    for (let steps = 0; steps < 12; steps++) {
      if (stop(url)) return { url };
      const kept = this.cookies.get(url.origin) ?? new Map();
      this.cookies.set(url.origin, kept);
      const cookie = [...kept].map(([name, value]) => `${name}=${value}`).join('; ');
      const response = await fetch(url, { ...sent, redirect: 'manual', headers: { ...sent.headers, cookie } });
      for (const set of response.headers.getSetCookie()) {
        const [, name, value] = /^([^=]*)=([^;]*)/.exec(set);
        kept.set(name, value);
      }
      const location = response.headers.get('location');
      if (!location) return { url, status: response.status, text: await response.text() };
      await response.body?.cancel();
      [url, sent] = [new URL(location, url), {}];
    }
    throw new Error(`${first.origin} leads nowhere`);
  }
}

// The only form of a page: its target, and its fields and buttons in order.
function formOf({ url, text }) {
  const [, attributes, inside] = /<form([^>]*)>(.*?)<\/form>/s.exec(text) ?? [];
  if (inside === undefined) return undefined;
  const named = /<(?:input|button)([^>]*)>/g;
  const fields = [...inside.matchAll(named)].map(([, at]) => [attribute(at, 'name'), attribute(at, 'value') ?? '']);
  return {
    action: new URL(plain(attribute(attributes, 'action') ?? ''), url),
    fields: fields.filter(([name]) => name).map(field => field.map(plain)),
  };
}

const attribute = (text, name) => new RegExp(`\\s${name}="([^"]*)"`).exec(text)?.[1];

const ENTITIES = { amp: '&', lt: '<', gt: '>', quot: '"', '#39': "'" };
const plain = text => text.replace(/&(amp|lt|gt|quot|#39);/g, (_, name) => ENTITIES[name]);
