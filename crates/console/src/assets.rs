//! Static assets of the pages: one stylesheet, one script and one icon, all embedded in the binary.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header;
use wardgate_domain::Digest;

use crate::invisible_marks::with_character_classes;
use crate::response_headers::add_security_headers;

const STYLE: &str = include_str!("../assets/style.css");
const ICON: &str = include_str!("../assets/icon.svg");

/// The script, with the classes of invisible characters filled in.
static SCRIPT: LazyLock<String> =
    LazyLock::new(|| with_character_classes(include_str!("../assets/chat.js")));

/// The URL of this version of the stylesheet.
pub(crate) static STYLE_URL: LazyLock<String> =
    LazyLock::new(|| versioned_url("/console/style.css", STYLE));
/// The URL of this version of the script.
pub(crate) static SCRIPT_URL: LazyLock<String> =
    LazyLock::new(|| versioned_url("/console/chat.js", &SCRIPT));

fn versioned_url(path: &str, text: &str) -> String {
    let digest = Digest::compute(text.as_bytes()).to_string();
    format!("{path}?{}", digest.get(..12).unwrap_or_default())
}

pub(crate) async fn style() -> Response {
    asset("text/css; charset=utf-8", STYLE)
}

pub(crate) async fn script() -> Response {
    asset("text/javascript; charset=utf-8", SCRIPT.as_str())
}

pub(crate) async fn icon() -> Response {
    asset("image/svg+xml", ICON)
}

/// Returns an asset that may be cached for an hour only, because during an upgrade a replica of the previous version
/// may have answered.
fn asset(media: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    add_security_headers((headers, text).into_response())
}
