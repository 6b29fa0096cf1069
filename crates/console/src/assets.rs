//! What pages load: one stylesheet, one script, one picture. All of it is in the binary.

use std::sync::LazyLock;

use axum::response::{IntoResponse, Response};
use http::header;
use wardgate_domain::Digest;

use crate::invisible_marks::with_character_classes;
use crate::response_headers::protected;

const STYLE: &str = include_str!("../assets/style.css");
const ICON: &str = include_str!("../assets/icon.svg");

/// The script, with the characters that it marks.
static SCRIPT: LazyLock<String> =
    LazyLock::new(|| with_character_classes(include_str!("../assets/chat.js")));

/// Where the stylesheet of this version is.
pub(crate) static STYLE_URL: LazyLock<String> =
    LazyLock::new(|| versioned("/console/style.css", STYLE));
/// Where the script is.
pub(crate) static SCRIPT_URL: LazyLock<String> =
    LazyLock::new(|| versioned("/console/chat.js", &SCRIPT));

fn versioned(path: &str, text: &str) -> String {
    let digest = Digest::of(text.as_bytes()).to_string();
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

/// Kept for an hour: in the middle of an upgrade a replica of before may have answered.
fn asset(media: &'static str, text: &'static str) -> Response {
    let headers = [
        (header::CONTENT_TYPE, media),
        (header::CACHE_CONTROL, "public, max-age=3600"),
    ];
    protected((headers, text).into_response())
}
