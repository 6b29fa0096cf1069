//! Routing of requests to pages, with the metrics and the headers that every response has.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::extract::Request;
use axum::response::Response;
use axum::routing::{MethodRouter, any};
use http::Method;
use metrics::counter;
use tracing::Instrument;
use wardgate_telemetry::{names, trace_context};

use crate::Console;
use crate::page_request::{PageRequest, SignedInRequest, Viewer};
use crate::problem::Problem;
use crate::problem_page;
use crate::response_headers::add_security_headers;

/// The response of a page, or the problem that prevented it.
pub(crate) type PageResult = Result<Response, Problem>;

/// Creates a route that does not require a session.
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
    create_route(console, page, methods, work)
}

/// Creates a route that requires a session.
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
    create_route(
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

fn create_route<W, A>(
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
            let page_request = PageRequest::from_request(&console, methods, request).await;
            let answer = match page_request {
                Ok(page_request) => work(Arc::clone(&console), page_request).await,
                Err(problem) => Err(problem),
            };
            let response = match answer {
                Ok(response) => response,
                Err(problem) => {
                    counter!(names::REFUSED_REQUESTS, "reason" => problem.reason()).increment(1);
                    let viewer = if problem.has_header() {
                        Viewer::from_headers(&console, &headers, peer).await
                    } else {
                        None
                    };
                    problem_page::render(&problem, viewer.as_ref())
                }
            };
            let status = response.status().as_u16().to_string();
            counter!(names::CONSOLE_PAGES, "page" => page, "status" => status).increment(1);
            add_security_headers(response)
        };
        answered.instrument(span)
    })
}

/// Handles paths that do not exist.
pub(crate) async fn unknown(_: Arc<Console>, _: PageRequest) -> PageResult {
    Err(Problem::Unknown)
}
