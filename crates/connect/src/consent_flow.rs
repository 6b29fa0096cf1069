//! The sealed state of a consent flow, in the link that starts it and in a cookie.

use axum::http::{HeaderMap, HeaderValue};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use serde::{Deserialize, Serialize};
use wardgate_domain::Ambient;
use wardgate_edge::find_cookie;
use wardgate_gateway_store::{Purpose, Sealer};
use wardgate_rpc::client::{ConnectTarget, Person};

/// The attributes of the cookie send it only to this host over TLS and also with links from other sites, and hide it
/// from scripts.
const COOKIE: &str = "__Host-wardgate-connect";
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Lax";

/// The content of a link: the person for whom it is made, and the source to connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectTicket {
    /// The identifier that can be used only once.
    pub(crate) id: [u8; 16],
    tenant: String,
    issuer: String,
    subject: String,
    source: String,
    scope: Option<String>,
    /// The proof of the person from the tool-runner, in Base64 like the pending state of [`ConsentFlow::AtSource`].
    caller_proof: String,
}

/// The current step of a consent flow.
#[derive(Serialize, Deserialize)]
pub(crate) enum ConsentFlow {
    /// The user is signing in at their issuer.
    SigningIn {
        ticket: ConnectTicket,
        state: String,
        nonce: String,
        verifier: String,
    },
    /// The user is signed in as the person of the link, and is asked for consent.
    #[serde(rename = "Asked")]
    Consenting {
        ticket: ConnectTicket,
        token: String,
    },
    /// The user is at the authorization server of the source.
    #[serde(rename = "Away")]
    AtSource {
        ticket: ConnectTicket,
        state: String,
        /// The pending state from the tool-runner, in Base64, because the JSON form of bytes would be too large for a cookie.
        pending: String,
    },
}

impl ConnectTicket {
    pub(crate) fn new(person: &Person, connect: &ConnectTarget, ambient: &Ambient) -> Self {
        Self {
            id: ambient.random(),
            tenant: person.tenant.clone(),
            issuer: person.issuer.clone(),
            subject: person.subject.clone(),
            source: connect.source.clone(),
            scope: connect.scope.clone(),
            caller_proof: URL_SAFE_NO_PAD.encode(&connect.caller_proof),
        }
    }

    pub(crate) fn person(&self) -> Person {
        Person {
            tenant: self.tenant.clone(),
            issuer: self.issuer.clone(),
            subject: self.subject.clone(),
        }
    }

    pub(crate) fn connect(&self) -> ConnectTarget {
        ConnectTarget {
            source: self.source.clone(),
            scope: self.scope.clone(),
            // The ticket is sealed, so the text is always Base64.
            caller_proof: URL_SAFE_NO_PAD
                .decode(&self.caller_proof)
                .unwrap_or_default()
                .into(),
        }
    }

    /// Returns the sealed ticket, with which the link ends.
    pub(crate) fn seal(&self, sealer: &Sealer) -> Option<String> {
        sealer.seal_for_browser(Purpose::ConnectLink, self)
    }

    pub(crate) fn open(sealer: &Sealer, text: &str) -> Option<Self> {
        sealer.open_from_browser(Purpose::ConnectLink, text)
    }
}

impl ConsentFlow {
    /// Returns the cookie with this state.
    pub(crate) fn cookie(&self, sealer: &Sealer) -> Option<HeaderValue> {
        let sealed = sealer.seal_for_browser(Purpose::ConnectVisit, self)?;
        HeaderValue::from_str(&format!("{COOKIE}={sealed}; {ATTRIBUTES}")).ok()
    }

    /// Returns the state in the cookie of a request with these headers.
    pub(crate) fn from_cookie(sealer: &Sealer, headers: &HeaderMap) -> Option<Self> {
        let sealed = find_cookie(headers, COOKIE)?;
        sealer.open_from_browser(Purpose::ConnectVisit, sealed)
    }
}

/// Returns the header that removes the cookie.
pub(crate) fn no_cookie() -> HeaderValue {
    HeaderValue::from_static(
        "__Host-wardgate-connect=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0",
    )
}
