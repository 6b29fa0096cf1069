//! A request for a page: the checks before its handler runs, and the person who sent it.

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

/// Time before the end of a session from which on pages show a warning.
const WARNING: Duration = Duration::from_mins(10);

/// A request that passed the checks: its body is complete, and a request that changes something comes from a page of
/// the console.
pub(crate) struct PageRequest {
    pub(crate) parts: Parts,
    pub(crate) body: Bytes,
}

/// The person for whom a page is rendered.
pub(crate) struct Viewer {
    pub(crate) caller: Arc<Caller>,
    /// The part of the record that this person may read.
    pub(crate) record: RecordAccess,
    /// The end of the person's session if it is near, else `None`.
    pub(crate) ends_soon: Option<Timestamp>,
}

/// A request of a person who is signed in.
pub(crate) struct SignedInRequest {
    pub(crate) viewer: Viewer,
    pub(crate) token: SessionToken,
    pub(crate) page_request: PageRequest,
}

impl Viewer {
    /// Returns the person whose session these headers carry, if there is one. Error pages use this for their header.
    pub(crate) async fn from_headers(
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
    /// Returns whether the submitted page was rendered for the person who is signed in now. Otherwise another person
    /// filled in the form.
    pub(crate) fn is_of_own_page(&self, person: Option<&str>) -> bool {
        person == Some(self.viewer.caller.person().to_string().as_str())
    }
}

impl PageRequest {
    /// Runs the checks in order. Each check costs more than the one before and relies on it.
    pub(crate) async fn from_request(
        console: &Console,
        methods: &'static [Method],
        request: Request,
    ) -> Result<Self, Problem> {
        let (parts, mut body) = request.into_parts();
        let admission = &console.admission;
        // 1. Host, against DNS rebinding. The origin is checked below, only where it matters and more strictly.
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
        // 3. A request that changes something must come from a page of the console, whatever cookies it carries.
        if parts.method != Method::GET && !is_own(console, &parts.uri, &parts.headers) {
            wardgate_edge::drain(&parts.headers, body).await;
            return Err(Problem::Foreign);
        }
        // 4. The body, which is bounded in size and time.
        let read = wardgate_edge::read_body(&mut body, admission.body).await;
        let body = match read {
            Ok(read) => read,
            Err(refusal) => {
                wardgate_edge::drain(&parts.headers, body).await;
                return Err(Problem::Body(refusal));
            }
        };
        Ok(Self { parts, body })
    }

    /// Identifies the person by the session of the request.
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
        // The response to a POST has no navigation, so access to the record is not needed.
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

    /// Returns the only variable of the path.
    pub(crate) async fn name(&mut self) -> Result<String, Problem> {
        let path = Path::<String>::from_request_parts(&mut self.parts, &()).await;
        path.map(|Path(name)| name).map_err(|_| Problem::Unknown)
    }
}

/// Returns when the session ends if that is near. A session without an end of its own ends with the caller's token.
fn ends_soon(console: &Console, caller: &Caller, ends_at: Option<Timestamp>) -> Option<Timestamp> {
    let ends_at = ends_at.unwrap_or(caller.expires_at());
    (ends_at.since(console.ambient.now()) < WARNING).then_some(ends_at)
}

/// Returns whether a page of the console sent the request, by headers that browsers set and pages cannot forge.
fn is_own(console: &Console, target: &Uri, headers: &HeaderMap) -> bool {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if headers.contains_key("sec-fetch-site") && text("sec-fetch-site") != Some("same-origin") {
        return false;
    }
    // Older browsers, and all browsers on plain HTTP, send only the `Origin` header.
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
