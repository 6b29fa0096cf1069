//! A request for a page: the checks before the page sees it, and the person who sent it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{FromRequestParts, Path, Request};
use bytes::Bytes;
use http::request::Parts;
use http::uri::Authority;
use http::{HeaderMap, Method, Uri, header};
use wardgate_domain::{Caller, Timestamp};

use crate::Console;
use crate::fields::FormFields;
use crate::problem::Problem;
use crate::record_access::RecordAccess;
use crate::session::SessionToken;

/// People are told so long before their session ends.
const WARNING: Duration = Duration::from_mins(10);

/// A request that passed the checks: its body is whole, and one that changes anything comes from a page of the console.
pub(crate) struct PageRequest {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

/// The person that a page is for.
pub(crate) struct Viewer {
    pub(crate) caller: Arc<Caller>,
    /// What of the record there is for them to read.
    pub(crate) record: RecordAccess,
    /// When their session ends, where that is soon.
    pub(crate) ends_soon: Option<Timestamp>,
}

/// The request of a person who is signed in.
pub(crate) struct SignedInRequest {
    pub(crate) viewer: Viewer,
    pub(crate) token: SessionToken,
    pub(crate) page_request: PageRequest,
}

impl Viewer {
    /// Whoever sent a request with these headers, if anybody is signed in: for the header of a page that says what
    /// went wrong.
    pub(crate) async fn of(
        console: &Console,
        headers: &HeaderMap,
        peer: Option<SocketAddr>,
    ) -> Option<Self> {
        let (token, ends_at) = console.resume(headers, peer).await.ok()??;
        let caller = token.verify(&console.admission.auth).await.ok()?;
        let record = console.record_access(&caller).await;
        let ends_soon = ends_soon(console, &caller, ends_at);
        Some(Self {
            caller,
            record,
            ends_soon,
        })
    }
}

impl SignedInRequest {
    /// Refuses what a page of somebody else sends: it was filled in by another person than the one it would be done as.
    pub(crate) fn is_of_own_page(&self, person: Option<&str>) -> bool {
        person == Some(self.viewer.caller.person().to_string().as_str())
    }
}

impl PageRequest {
    /// The ordered list. Each step costs more than the one before, and trusts what that one checked.
    pub(crate) async fn read(
        console: &Console,
        methods: &'static [Method],
        request: Request,
    ) -> Result<Self, Problem> {
        let (parts, mut body) = request.into_parts();
        let admission = &console.admission;
        // 1. Host: a web page that rebinds a name to this address gets no further. Its origin is looked at below, where
        // it matters, and more strictly.
        let hosts = parts.headers.get_all(header::HOST).iter();
        let hosts: HeaderMap = hosts.map(|host| (header::HOST, host.clone())).collect();
        admission
            .origins
            .check(&parts.uri, &hosts)
            .map_err(Problem::Host)?;
        // 2. The method.
        if !methods.contains(&parts.method) {
            return Err(Problem::Method(methods));
        }
        // 3. What changes anything comes from a page of ours, whatever cookies it has.
        if parts.method != Method::GET && !is_own(console, &parts.uri, &parts.headers) {
            wardgate_edge::drain(&parts.headers, body).await;
            return Err(Problem::Foreign);
        }
        // 4. The body: bounded in size and time.
        let read = wardgate_edge::read(&mut body, admission.body).await;
        let body = match read {
            Ok(read) => read,
            Err(refusal) => {
                wardgate_edge::drain(&parts.headers, body).await;
                return Err(Problem::Body(refusal));
            }
        };
        Ok(Self { parts, body })
    }

    /// Whose session it is.
    pub(crate) async fn signed_in(self, console: &Console) -> Result<SignedInRequest, Problem> {
        let peer = self.parts.extensions.get::<SocketAddr>().copied();
        let back = (self.parts.method == Method::GET)
            .then(|| self.parts.uri.path_and_query().map(ToString::to_string))
            .flatten();
        let signed_out = || Problem::SignedOut(back.clone());
        let resumed = console.resume(&self.parts.headers, peer).await?;
        let (token, ends_at) = resumed.ok_or_else(signed_out)?;
        let caller = match token.verify(&console.admission.auth).await {
            Ok(caller) => caller,
            Err(refusal) if refusal.status().is_server_error() => {
                return Err(Problem::Token(refusal));
            }
            Err(_) => return Err(signed_out()),
        };
        // What is sent is answered without a page around it.
        let record = if self.is_post() {
            RecordAccess::None
        } else {
            console.record_access(&caller).await
        };
        Ok(SignedInRequest {
            viewer: Viewer {
                ends_soon: ends_soon(console, &caller, ends_at),
                caller,
                record,
            },
            token,
            page_request: self,
        })
    }

    pub(crate) fn is_post(&self) -> bool {
        self.parts.method == Method::POST
    }

    pub(crate) fn query(&self) -> Result<FormFields, Problem> {
        FormFields::of_query(self.parts.uri.query())
    }

    pub(crate) fn form(&self) -> Result<FormFields, Problem> {
        FormFields::of_form(&self.parts.headers, &self.body)
    }

    /// The one variable of the path.
    pub(crate) async fn name(&mut self) -> Result<String, Problem> {
        let path = Path::<String>::from_request_parts(&mut self.parts, &()).await;
        path.map(|Path(name)| name).map_err(|_| Problem::Unknown)
    }
}

/// When a session ends that ends at `ends_at`, or else with its token, if it is time to say so.
fn ends_soon(console: &Console, caller: &Caller, ends_at: Option<Timestamp>) -> Option<Timestamp> {
    let ends_at = ends_at.unwrap_or(caller.expires_at());
    (ends_at.since(console.ambient.now()) < WARNING).then_some(ends_at)
}

/// Whether a page of the console sent it: browsers say so, and no page can make them say otherwise.
fn is_own(console: &Console, target: &Uri, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.contains_key("sec-fetch-site") && text("sec-fetch-site") != Some("same-origin") {
        return false;
    }
    // Older browsers, and newer ones on plain HTTP, say it by the origin alone.
    let Some(origin) = text(header::ORIGIN.as_str()) else {
        return false;
    };
    if console.origin.as_deref() == Some(origin) {
        return true;
    }
    let host = target.authority().map(Authority::as_str);
    let host = host.or_else(|| text(header::HOST.as_str()));
    let mut schemes = ["http://", "https://"].into_iter();
    let of_origin = schemes.find_map(|scheme| origin.strip_prefix(scheme));
    of_origin.is_some() && of_origin == host
}
