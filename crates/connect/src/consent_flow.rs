//! The state of a browser's consent flow, sealed: in the link that it begins with, and in its one cookie.

use axum::http::{HeaderMap, HeaderValue};
use serde::{Deserialize, Serialize};
use wardgate_domain::Ambient;
use wardgate_edge::find_cookie;
use wardgate_gateway_store::{Purpose, Sealer};
use wardgate_rpc::client::{ConnectTarget, Person};

/// Only ever sent to this host by TLS, never to a script, and along with links from elsewhere.
const COOKIE: &str = "__Host-wardgate-connect";
const ATTRIBUTES: &str = "Path=/; Secure; HttpOnly; SameSite=Lax";

/// The content of a link: the person it is for, and the source to connect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct ConnectTicket {
    /// What is good once.
    pub(crate) id: [u8; 16],
    tenant: String,
    issuer: String,
    subject: String,
    source: String,
    scope: Option<String>,
}

/// The step that the flow is at.
#[derive(Serialize, Deserialize)]
pub(crate) enum ConsentFlow {
    /// The person is with their issuer.
    SigningIn {
        ticket: ConnectTicket,
        state: String,
        nonce: String,
        verifier: String,
    },
    /// They are who they have to be, and look at what is asked.
    #[serde(rename = "Asked")]
    Consenting {
        ticket: ConnectTicket,
        token: String,
    },
    /// They are with the source's own server.
    #[serde(rename = "Away")]
    AtSource {
        ticket: ConnectTicket,
        state: String,
        /// What the tool-runner gave, in Base64: a cookie has no room for JSON's way with bytes.
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
        }
    }

    /// The end of a link.
    pub(crate) fn seal(&self, sealer: &Sealer) -> Option<String> {
        sealer.seal_for_browser(Purpose::ConnectLink, self)
    }

    pub(crate) fn open(sealer: &Sealer, text: &str) -> Option<Self> {
        sealer.open_from_browser(Purpose::ConnectLink, text)
    }
}

impl ConsentFlow {
    /// The cookie that has it.
    pub(crate) fn cookie(&self, sealer: &Sealer) -> Option<HeaderValue> {
        let sealed = sealer.seal_for_browser(Purpose::ConnectVisit, self)?;
        HeaderValue::from_str(&format!("{COOKIE}={sealed}; {ATTRIBUTES}")).ok()
    }

    /// The flow of the browser that sent `headers`.
    pub(crate) fn from_cookie(sealer: &Sealer, headers: &HeaderMap) -> Option<Self> {
        let sealed = find_cookie(headers, COOKIE)?;
        sealer.open_from_browser(Purpose::ConnectVisit, sealed)
    }
}

/// Takes the cookie back.
pub(crate) fn no_cookie() -> HeaderValue {
    HeaderValue::from_static(
        "__Host-wardgate-connect=; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=0",
    )
}
