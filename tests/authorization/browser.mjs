// The browser of a person who logs in at server.mjs.

// login(URL, WHO): follows an authorization request to where it leads back to the client, and gives that URL.
export async function login(authorizationUrl, who) {
  let url = new URL(authorizationUrl);
  if (who) url.searchParams.set('login_hint', who);
  const { origin } = url;
  const callback = url.searchParams.get('redirect_uri');
  const cookies = new Map();
  for (let steps = 0; steps < 10; steps++) {
    const cookie = [...cookies].map(([name, value]) => `${name}=${value}`).join('; ');
    const response = await fetch(url, { redirect: 'manual', headers: { cookie } });
    for (const set of response.headers.getSetCookie()) {
      const [name, value] = set.split(';')[0].split('=');
      cookies.set(name, value);
    }
    const location = response.headers.get('location');
    if (!location) throw new Error(`${url.pathname} answered ${response.status}: ${await response.text()}`);
    url = new URL(location, url);
    if (url.href.startsWith(callback)) return url;
    if (url.origin !== origin) throw new Error(`led to ${url.origin}`);
  }
  throw new Error('the authorization request leads nowhere');
}
