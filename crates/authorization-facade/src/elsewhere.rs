//! The redirect of the metadata of another authorization server, for clients of revision 2025-03-26, which look for it
//! at the gateway.

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Redirect, Response};
use axum::routing::get;
use wardgate_edge::routes::{GET, Route, RouteInfo};

use crate::metadata::WELL_KNOWN;
use crate::{metadata_preflight, open_to_pages};

/// The routes of a gateway without `gateway.authorization`.
pub(crate) const ELSEWHERE: &[Route<Option<String>>] = &[Route {
    info: RouteInfo::new(
        WELL_KNOWN,
        GET,
        "anyone, and pages of any origin",
        "without `gateway.authorization`: 307 to `gateway.authorization_server_metadata`; 404 if it is unset",
    ),
    handler: |url, _| {
        let url = url.clone();
        get(move || async move { lead(url.as_deref()) }).options(metadata_preflight)
    },
}];

fn lead(url: Option<&str>) -> Response {
    let response = match url {
        Some(url) => Redirect::temporary(url).into_response(),
        None => not_found(),
    };
    open_to_pages(response)
}

fn not_found() -> Response {
    let json = HeaderValue::from_static("application/json");
    let body = r#"{"error":"not_found"}"#;
    (StatusCode::NOT_FOUND, [(header::CONTENT_TYPE, json)], body).into_response()
}
