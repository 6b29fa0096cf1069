//! Checks of HTTP edges and of the issuers whose tokens they accept.

use std::net::IpAddr;
use std::time::Duration;

use futures::future::join_all;
use reqwest::tls::TlsInfo;
use reqwest::{Client, Url};
use serde_json::Value;
use tokio::time::timeout;
use wardgate_domain::Ambient;
use wardgate_edge::{AuthConfig, Authenticator};
use wardgate_rpc::Readiness;

use super::finding::{Finding, FindingSubject};
use super::{certificates, clock};

/// Path of the readiness probe of an edge.
pub(super) const READY: &str = "/ready";
/// Path of the liveness probe of an edge.
pub(super) const ALIVE: &str = "/health";
/// Timeout of one request.
const LIMIT: Duration = Duration::from_secs(5);

/// An HTTP listener for clients.
#[derive(Debug, Clone)]
pub(super) struct Edge {
    pub(super) name: &'static str,
    /// The base URL of the edge.
    pub(super) url: String,
    /// The path to probe: [`READY`], or [`ALIVE`] if the edge does not serve its readiness to clients.
    pub(super) tells: &'static str,
}

/// The issuers that one edge trusts.
#[derive(Debug, Clone)]
pub(super) struct Issuers {
    pub(super) name: &'static str,
    pub(super) auth: AuthConfig,
    pub(super) public_url: Option<String>,
}

pub(super) async fn issuers(of: &[Issuers]) -> Vec<Finding> {
    join_all(of.iter().map(keys_of)).await
}

/// Checks whether the key sets of the issuers can be read, as the edge reads them.
async fn keys_of(issuers: &Issuers) -> Finding {
    let names: Vec<&str> = issuers
        .auth
        .issuers
        .iter()
        .map(|it| it.issuer.as_str())
        .collect();
    let about = FindingSubject::new("issuers", format!("{}, {}", issuers.name, names.join(", ")));
    let remedy = "fix `auth.issuers`: check the file or URL of their public keys, and that it is reachable from here";
    let public_url = issuers.public_url.as_deref();
    let reading = Authenticator::new(issuers.auth.clone(), public_url, Ambient::system());
    match timeout(LIMIT, reading).await {
        Ok(Ok(reader)) => match &*reader.readiness().borrow() {
            Readiness::NotReady(why) => about.fail(why, remedy),
            _ => about.ok("their keys can be read"),
        },
        Ok(Err(error)) => about.fail(error.to_string(), remedy),
        Err(_) => about.fail("their keys were not read in time", remedy),
    }
}

pub(super) async fn examine(edges: &[Edge]) -> Vec<Finding> {
    let all = edges.iter().map(examine_one);
    join_all(all).await.into_iter().flatten().collect()
}

async fn examine_one(edge: &Edge) -> Vec<Finding> {
    let about = FindingSubject::new("edge", format!("{} at {}", edge.name, edge.url));
    let asked = async {
        let url = Url::parse(&edge.url).map_err(|error| error.to_string())?;
        let url = url.join(edge.tells).map_err(|error| error.to_string())?;
        let answer = client(&url)?.get(url).send().await;
        answer.map_err(|error| error.without_url().to_string())
    };
    let answer = match asked.await {
        Ok(answer) => answer,
        Err(what) => {
            let remedy = format!("check that the {} runs at this address", edge.name);
            return vec![about.fail(format!("does not answer: {what}"), remedy)];
        }
    };
    let now = Ambient::system().now();
    let theirs = clock::date(answer.headers().get("date"));
    let shown = answer.extensions().get::<TlsInfo>();
    let shown = shown.and_then(TlsInfo::peer_certificate);
    let place = format!("{} at {}", edge.name, edge.url);
    let shown = shown.map(|it| certificates::examine_served(&place, &it.into(), now));
    let ready = answer.status().is_success();
    let text = answer.text().await.unwrap_or_default();
    let parts: Value = serde_json::from_str(&text).unwrap_or_default();
    let unready: Vec<&str> = parts["parts"]
        .as_object()
        .into_iter()
        .flatten()
        .filter(|(_, state)| *state == "not ready")
        .map(|(name, _)| name.as_str())
        .collect();
    let finding = if ready {
        about.ok(if edge.tells == READY {
            "is ready"
        } else {
            "answers"
        })
    } else {
        let what = format!(
            "is not ready; parts that are not ready: {}",
            unready.join(", ")
        );
        about.fail(what, "check the results for these parts, and their logs")
    };
    let clock = theirs.map(|theirs| clock::compare(edge.name, theirs, now));
    std::iter::once(finding).chain(clock).chain(shown).collect()
}

/// Sends a request without a token to `edge`, which must refuse and record it.
pub(super) async fn check_refusal(edge: &Edge) -> Result<(), String> {
    let url = Url::parse(&edge.url).map_err(|error| error.to_string())?;
    let url = url.join("/mcp").map_err(|error| error.to_string())?;
    let request = client(&url)?
        .post(url)
        .header("content-type", "application/json");
    let sent = request.body("{}").send().await;
    let answer = sent.map_err(|error| error.without_url().to_string())?;
    match answer.status().as_u16() {
        401 => Ok(()),
        status => Err(format!("HTTP {status} for a request without a token")),
    }
}

/// Creates an HTTP client for `url`. An edge on this machine is reached by its loopback address, which its certificate does
/// not name, so its certificate is not verified; no token is sent to it.
fn client(url: &Url) -> Result<Client, String> {
    let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']);
    let is_here = host.parse::<IpAddr>().is_ok_and(|ip| ip.is_loopback());
    let client = Client::builder().no_proxy().timeout(LIMIT).tls_info(true);
    let client = client.tls_danger_accept_invalid_certs(is_here);
    let client = client.redirect(reqwest::redirect::Policy::none()).build();
    client.map_err(|_| "the system's certificates cannot be read".to_owned())
}
