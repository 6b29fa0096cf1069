//! A minimal browser that follows a sign-in.

use std::collections::HashMap;

use reqwest::header::{HeaderMap, LOCATION, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{RequestBuilder, Url};

/// A browser that keeps cookies by origin, follows redirects and submits the only form of a page. It sends requests
/// only to `http` URLs on loopback, and stops at any other address, which belongs to another program or site.
#[derive(Debug)]
pub struct TestBrowser {
    http: reqwest::Client,
    cookies: HashMap<String, HashMap<String, String>>,
    /// URL prefixes that belong to programs on the same machine, at which the browser stops too.
    programs: Vec<String>,
}

/// The page at which a browser stopped.
#[derive(Debug)]
pub struct TestPage {
    /// The URL of the page.
    pub url: Url,
    /// The HTTP status, or 0 if the browser did not open the URL.
    pub status: u16,
    /// The headers of the response.
    pub headers: HeaderMap,
    /// The HTML of the page.
    pub text: String,
}

impl TestBrowser {
    /// Creates a browser without cookies, which stops at URLs that begin with `program`.
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

    /// Opens a page and follows its redirects.
    pub async fn open(&mut self, url: &str) -> TestPage {
        let url = Url::parse(url).expect("a URL");
        self.follow(url, None).await
    }

    /// Submits the form of `page` with the button `name` of this value.
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
    /// Returns the value of a query parameter of the URL.
    pub fn parameter(&self, name: &str) -> Option<String> {
        let mut pairs = self.url.query_pairs();
        let found = pairs.find(|(known, _)| known == name);
        found.map(|(_, value)| value.into_owned())
    }
}

/// Returns the value of the first attribute of this name in some HTML.
fn attribute<'a>(html: &'a str, name: &str) -> &'a str {
    let (_, rest) = html
        .split_once(&format!(" {name}=\""))
        .unwrap_or_else(|| panic!("no {name} in {html}"));
    rest.split('"').next().unwrap_or_default()
}
