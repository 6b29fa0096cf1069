//! Checks of linked services: each address answers, is ready, has the same time and runs the same version.

use std::net::SocketAddr;
use std::time::Duration;

use futures::future::join_all;
use tokio::net::lookup_host;
use tokio::time::timeout;
use tonic::{Code, Status};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;
use wardgate_domain::Ambient;
use wardgate_rpc::link::{self, TlsFiles};
use wardgate_rpc::server::VERSION;
use wardgate_rpc::{Link, Peer};

use super::finding::{Finding, FindingSubject};
use super::{certificates, clock};

/// Timeout of one lookup or request.
const LIMIT: Duration = Duration::from_secs(3);

/// A link from one service to another.
#[derive(Debug, Clone)]
pub(super) struct ServiceDependency {
    /// The service that has the link.
    pub(super) of: Peer,
    /// The service that the link leads to.
    pub(super) peer: Peer,
    /// The gRPC name of the linked service.
    pub(super) name: &'static str,
    /// The URL of the linked service.
    pub(super) url: String,
    /// The certificate files for the link, or `None` if the configuration names none.
    pub(super) tls: Option<TlsFiles>,
}

pub(super) async fn examine(neighbours: &[ServiceDependency]) -> Vec<Finding> {
    let all = neighbours.iter().map(examine_one);
    let mut findings = Vec::new();
    for finding in join_all(all).await.into_iter().flatten() {
        // Several services may link to the same address, whose clock and version are reported once.
        if !findings.contains(&finding) {
            findings.push(finding);
        }
    }
    findings
}

/// Checks every address of the name, because one of several replicas may be unhealthy.
async fn examine_one(neighbour: &ServiceDependency) -> Vec<Finding> {
    let ServiceDependency { of, peer, url, .. } = neighbour;
    let (of, peer) = (of.as_str(), peer.as_str());
    let about = FindingSubject::new("neighbour", format!("{peer}, from {of}"));
    let (scheme, addresses) = match addresses(url).await {
        Ok(found) => found,
        Err(what) => {
            let remedy = format!("fix the address of {peer} in the links of {of}");
            return vec![about.fail(what, remedy)];
        }
    };
    let each = addresses
        .into_iter()
        .map(|address| examine_address(neighbour, scheme, address));
    join_all(each).await.into_iter().flatten().collect()
}

async fn addresses(url: &str) -> Result<(&'static str, Vec<SocketAddr>), String> {
    let wrong = || format!("`{url}` is not a service address; write https://host:port");
    let parsed: http::Uri = url.parse().map_err(|_| wrong())?;
    let (scheme, default) = match parsed.scheme_str() {
        Some("https") => ("https", 443),
        Some("http") => ("http", 80),
        _ => return Err(wrong()),
    };
    let host = parsed.host().ok_or_else(wrong)?.trim_matches(['[', ']']);
    let place = (host, parsed.port_u16().unwrap_or(default));
    match timeout(LIMIT, lookup_host(place)).await {
        Ok(Ok(found)) => {
            let found: Vec<SocketAddr> = found.collect();
            if found.is_empty() {
                return Err(format!("{host} has no address"));
            }
            Ok((scheme, found))
        }
        Ok(Err(error)) => Err(format!("{host} cannot be resolved: {error}")),
        Err(_) => Err(format!(
            "{host} was not resolved within {} s",
            LIMIT.as_secs()
        )),
    }
}

async fn examine_address(
    neighbour: &ServiceDependency,
    scheme: &str,
    address: SocketAddr,
) -> Vec<Finding> {
    let ServiceDependency { of, peer, name, .. } = neighbour;
    let (of, peer_name) = (of.as_str(), peer.as_str());
    let place = format!("{peer_name} at {address}");
    let about = FindingSubject::new("neighbour", format!("{place}, from {of}"));
    let url = format!("{scheme}://{address}");
    let link = match link::connect::<()>(&url, *peer, name, neighbour.tls.as_ref()) {
        Ok(neighbour) => neighbour.link.transport,
        Err(error) => {
            let remedy = format!("fix the `tls` settings of {of}");
            return vec![about.fail(error.to_string(), remedy)];
        }
    };
    let answer = match check(&link, name).await {
        Ok(answer) => answer,
        Err(status) => {
            let remedy = format!(
                "check that {peer_name} runs, that it is reachable from here, and that both have certificates of the same authority"
            );
            return vec![about.fail(format!("does not answer: {}", status.message()), remedy)];
        }
    };
    let now = Ambient::system().now();
    let ready = if answer.get_ref().status() == ServingStatus::Serving {
        about.ok("is ready")
    } else {
        let remedy = format!(
            "check its /ready and its log, which contain the cause; the checks of {peer_name} may also report it"
        );
        about.fail("reports that it is not ready", remedy)
    };
    let mut findings = vec![ready];
    let date = answer.metadata().get("date");
    let date = date.and_then(|date| http::HeaderValue::from_bytes(date.as_bytes()).ok());
    findings.extend(clock::date(date.as_ref()).map(|theirs| clock::compare(&place, theirs, now)));
    findings.extend(version(&link, &place).await);
    if let Some(files) = &neighbour.tls {
        let served = link::served_certificate(address, *peer, files).await;
        findings.extend(served.map(|it| certificates::examine_served(&place, &it, now)));
    }
    findings
}

async fn check(
    link: &Link,
    name: &str,
) -> Result<tonic::Response<tonic_health::pb::HealthCheckResponse>, Status> {
    let request = HealthCheckRequest {
        service: name.to_owned(),
    };
    let mut client = HealthClient::new(link.clone());
    timeout(LIMIT, client.check(request))
        .await
        .unwrap_or_else(|_| Err(Status::deadline_exceeded("it did not answer in time")))
}

/// Checks the version of a service, which its health service lists as an additional service name.
async fn version(link: &Link, place: &str) -> Option<Finding> {
    let about = FindingSubject::new("version", place);
    match check(link, VERSION).await {
        Ok(_) => Some(about.ok(VERSION)),
        Err(status) if status.code() == Code::NotFound => Some(about.warn(
            format!("differs from the version of this program, {VERSION}"),
            "finish the upgrade, or use the `wardgate doctor` of that version",
        )),
        // A service that became unreachable in the meantime is not a finding about its version.
        Err(_) => None,
    }
}
