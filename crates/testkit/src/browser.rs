//! A person's browser, as far as a sign-in needs one.

use std::collections::HashMap;

use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Url};

/// Keeps cookies by origin, follows redirects, and fills in the one form of a page. It goes to `http` of loopback alone:
/// any other address is where a program or a site of others takes over, and where it stops.
#[derive(Debug)]
pub struct TestBrowser {
    http: reqwest::Client,
    cookies: HashMap<String, HashMap<String, String>>,
    /// The addresses that belong to programs on the same machine, where it stops too.
    programs: Vec<String>,
}

/// What a browser came to.
#[derive(Debug)]
pub struct TestPage {
    /// Where that is.
    pub url: Url,
    /// Zero where it stopped before.
    pub status: u16,
    /// Of the response.
    pub headers: HeaderMap,
    /// The HTML.
    pub text: String,
}

impl TestBrowser {
    /// A new one, without cookies. `program` is how redirect URIs begin at which it stops.
    pub fn new(program: &str) -> Self {
        let http = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none());
        Self {
            http: http.build().expect("a client"),
            cookies: HashMap::new(),
            programs: vec![program.to_owned()],
        }
    }

    /// Opens a page and those that it is led to.
    pub async fn open(&mut self, url: &str) -> TestPage {
        let url = Url::parse(url).expect("a URL");
        self.follow(url, None).await
    }

    /// Presses a button of the one form.
    pub async fn press(&mut self, page: &TestPage, name: &str, value: &str) -> TestPage {
        let action = page
            .url
            .join(attribute(&page.text, "action"))
            .expect("a URL");
        let mut form: Vec<(String, String)> = Vec::new();
        for input in page.text.split("<input").skip(1) {
            form.push((
                attribute(input, "name").to_owned(),
                attribute(input, "value").to_owned(),
            ));
        }
        form.push((name.to_owned(), value.to_owned()));
        self.follow(action, Some(form)).await
    }

    async fn follow(&mut self, mut url: Url, mut form: Option<Vec<(String, String)>>) -> TestPage {
        for _ in 0..10 {
            let own = url.scheme() == "http" && url.host_str() == Some("127.0.0.1");
            if !own || self.programs.iter().any(|it| url.as_str().starts_with(it)) {
                let (headers, text) = (HeaderMap::new(), String::new());
                return TestPage {
                    url,
                    status: 0,
                    headers,
                    text,
                };
            }
            let request = match form.take() {
                None => self.http.get(url.clone()),
                Some(form) => {
                    let body = Url::parse_with_params("http://x/", form).expect("a URL");
                    self.http
                        .post(url.clone())
                        .header("content-type", "application/x-www-form-urlencoded")
                        .header("origin", url.origin().ascii_serialization())
                        .body(body.query().unwrap_or_default().to_owned())
                }
            };
            let page = self.send(url.clone(), request).await;
            let location = page
                .headers
                .get(LOCATION)
                .map(|it| it.to_str().expect("a URL"));
            let refresh = page
                .text
                .split_once("http-equiv=\"refresh\" content=\"0; url=");
            let refresh = refresh.map(|(_, rest)| rest.split('"').next().unwrap_or_default());
            let next = match (location, refresh) {
                (Some(location), _) => location.to_owned(),
                (None, Some(refresh)) => refresh.replace("&amp;", "&"),
                (None, None) => return page,
            };
            url = url.join(&next).expect("a URL");
        }
        panic!("round in a circle at {url}")
    }

    async fn send(&mut self, url: Url, request: RequestBuilder) -> TestPage {
        let origin = url.origin().ascii_serialization();
        let kept = self.cookies.entry(origin).or_default();
        let cookies: Vec<_> = kept
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        let response = request.header("cookie", cookies.join("; ")).send().await;
        let response = response.expect("a response");
        for cookie in response.headers().get_all(SET_COOKIE) {
            let cookie = cookie.to_str().expect("ASCII");
            let attributes = ["Path=/", "Secure", "HttpOnly", "SameSite=Lax"];
            assert!(attributes.iter().all(|it| cookie.contains(it)), "{cookie}");
            assert!(
                cookie.len() <= 4_096,
                "browsers drop a cookie of {}",
                cookie.len()
            );
            let (name, rest) = cookie.split_once('=').expect("a name");
            assert!(name.starts_with("__Host-"), "{name}");
            let value = rest.split(';').next().unwrap_or_default();
            if rest.contains("Max-Age=0") {
                kept.remove(name);
            } else {
                kept.insert(name.to_owned(), value.to_owned());
            }
        }
        TestPage {
            url,
            status: response.status().as_u16(),
            headers: response.headers().clone(),
            text: response.text().await.expect("a body"),
        }
    }
}

impl TestPage {
    /// A parameter of the address.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self.url.query_pairs();
        let found = pairs.find(|(known, _)| known == name);
        found.map(|(_, value)| value.into_owned())
    }
}

/// The value of the first attribute of this name in some HTML.
fn attribute<'a>(html: &'a str, name: &str) -> &'a str {
    let (_, rest) = html
        .split_once(&format!(" {name}=\""))
        .unwrap_or_else(|| panic!("no {name} in {html}"));
    rest.split('"').next().unwrap_or_default()
}
