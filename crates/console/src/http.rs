//! From a request to a response with the headers that every one has.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use http::header::HeaderName;
use http::{HeaderValue, Method, header};
use metrics::counter;
use tracing::Instrument;
use wardgate_telemetry::{names, trace_context};

use crate::Console;
use crate::page_request::{PageRequest, SignedInRequest, Viewer};
use crate::problem::Problem;

/// The response of a page, or the problem for which there is none.
pub(crate) type PageResult = Result<Response, Problem>;

/// What pages may load: our own stylesheet and picture. No script but where a page says so itself.
const CONTENT: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The same with our script, and what it asks.
pub(crate) const CONTENT_WITH_SCRIPT: &str = "default-src 'none'; style-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'; script-src 'self'; connect-src 'self'";

/// What every response has, unless it says otherwise itself. The referrer goes to our own pages only: without any,
/// browsers would not say either which page sent a form.
const HEADERS: [(HeaderName, &str); 7] = [
    (header::CONTENT_SECURITY_POLICY, CONTENT),
    (header::CACHE_CONTROL, "no-store"),
    (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (header::X_FRAME_OPTIONS, "DENY"),
    (header::REFERRER_POLICY, "same-origin"),
    (
        HeaderName::from_static("cross-origin-opener-policy"),
        "same-origin",
    ),
    (
        HeaderName::from_static("cross-origin-resource-policy"),
        "same-origin",
    ),
];

/// A response with the headers that every one has.
pub(crate) fn protected(mut response: Response) -> Response {
    for (name, value) in HEADERS {
        let headers = response.headers_mut();
        if !headers.contains_key(&name) {
            headers.insert(name, HeaderValue::from_static(value));
        }
    }
    response
}

/// A path for anybody.
pub(crate) fn open<W, A>(
    console: &Arc<Console>,
    page: &'static str,
    methods: &'static [Method],
    work: W,
) -> MethodRouter
where
    W: Fn(Arc<Console>, PageRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = PageResult> + Send + 'static,
{
    served(console, page, methods, work)
}

/// A path for whoever is signed in.
pub(crate) fn signed_in<W, A>(
    console: &Arc<Console>,
    page: &'static str,
    methods: &'static [Method],
    work: W,
) -> MethodRouter
where
    W: Fn(Arc<Console>, SignedInRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = PageResult> + Send + 'static,
{
    served(
        console,
        page,
        methods,
        move |console: Arc<Console>, page_request: PageRequest| {
            let work = work.clone();
            async move {
                let signed_in = page_request.signed_in(&console).await?;
                let place = console.page_slots.acquire(&signed_in.viewer.caller);
                let _place = place.ok_or(Problem::Busy)?;
                work(Arc::clone(&console), signed_in).await
            }
        },
    )
}

fn served<W, A>(
    console: &Arc<Console>,
    page: &'static str,
    methods: &'static [Method],
    work: W,
) -> MethodRouter
where
    W: Fn(Arc<Console>, PageRequest) -> A + Clone + Send + Sync + 'static,
    A: Future<Output = PageResult> + Send + 'static,
{
    let console = Arc::clone(console);
    any(move |request: Request| {
        let span = tracing::debug_span!("http", http.request.method = %request.method(), page);
        trace_context::adopt(&span, request.headers());
        let headers = request.headers().clone();
        let peer = request.extensions().get::<SocketAddr>().copied();
        let answered = async move {
            let page_request = PageRequest::read(&console, methods, request).await;
            let answer = match page_request {
                Ok(page_request) => work(Arc::clone(&console), page_request).await,
                Err(problem) => Err(problem),
            };
            let response = match answer {
                Ok(response) => response,
                Err(problem) => {
                    counter!(names::REFUSED_REQUESTS, "reason" => problem.reason()).increment(1);
                    let viewer = if problem.has_header() {
                        Viewer::of(&console, &headers, peer).await
                    } else {
                        None
                    };
                    problem.into_page(viewer.as_ref())
                }
            };
            let status = response.status().as_u16().to_string();
            counter!(names::CONSOLE_PAGES, "page" => page, "status" => status).increment(1);
            protected(response)
        };
        answered.instrument(span)
    })
}
