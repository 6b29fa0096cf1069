//! HTML pages for browsers: without scripts, not embeddable in frames, and not cached.

use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use wardgate_domain::{Digest, mark_invisible};

const STYLE: &str = "body{font:1.1rem/1.5 system-ui,sans-serif;max-width:34rem;margin:12vh auto;padding:0 1rem}button{font:inherit;padding:.4rem 1.2rem;margin-right:.6rem}code{background:#8882;padding:.1rem .3rem}";

/// Creates a page with this title as its heading. `body` is HTML.
pub fn browser_page(status: StatusCode, title: &str, body: &str) -> Response {
    let html = format!(
        "<!doctype html><html lang=\"en\"><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>{body}</html>"
    );
    let mut response = (status, html).into_response();
    let digest = STANDARD.encode(Digest::compute(STYLE.as_bytes()).as_bytes());
    let policy = format!(
        "default-src 'none'; style-src 'sha256-{digest}'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    );
    let headers = response.headers_mut();
    if let Ok(policy) = HeaderValue::from_str(&policy) {
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
    }
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CACHE_CONTROL, "no-store"),
        // With `no-referrer`, a browser would send the forms of the page with `Origin: null` (Fetch, "append a request
        // Origin header").
        (header::REFERRER_POLICY, "same-origin"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

/// Creates a page that leads the browser to another site. A redirect would be subject to `form-action`, whatever its
/// target.
pub fn leave_page(url: &str) -> Response {
    let url = escape_html(url);
    let body = format!(
        "<meta http-equiv=\"refresh\" content=\"0; url={url}\"><p><a href=\"{url}\" rel=\"noreferrer\">Continue</a></p>"
    );
    browser_page(StatusCode::OK, "One moment", &body)
}

/// Redirects the browser by GET. The target receives no referrer.
pub fn redirect_browser(url: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    let headers = response.headers_mut();
    if let Ok(url) = HeaderValue::from_str(url) {
        headers.insert(header::LOCATION, url);
    }
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(
        header::REFERRER_POLICY,
        HeaderValue::from_static("no-referrer"),
    );
    response
}

/// Escapes `text` for HTML and marks its invisible characters. Addresses and tokens contain none.
pub fn escape_html(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for character in mark_invisible(text).chars() {
        match character {
            '&' => html.push_str("&amp;"),
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            other => html.push(other),
        }
    }
    html
}

/// Returns the value of the cookie with this name, the first if there are several.
pub fn find_cookie<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let cookies = headers.get_all(header::COOKIE).iter();
    let texts = cookies.filter_map(|value| value.to_str().ok());
    let mut pairs = texts.flat_map(|text| text.split(';'));
    pairs.find_map(|pair| {
        let (named, value) = pair.trim().split_once('=')?;
        (named == name).then_some(value)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_of_others_becomes_markup() {
        let hostile = "<script>\"'&";
        assert_eq!(escape_html(hostile), "&lt;script&gt;&quot;&#39;&amp;");
        assert_eq!(escape_html("read\u{202e}lla"), "read‹U+202E›lla");
    }

    #[test]
    fn a_cookie_is_found_by_its_whole_name() {
        let mut headers = HeaderMap::new();
        headers.append(header::COOKIE, HeaderValue::from_static("ab=1; b=2"));
        headers.append(header::COOKIE, HeaderValue::from_static("a=3"));
        let found = ["a", "b", "ab", "c"].map(|name| find_cookie(&headers, name));
        assert_eq!(found, [Some("3"), Some("2"), Some("1"), None]);
    }
}
