//! Who may call which method: a table, so that a method nobody decided about is refused.

use std::str::FromStr;

use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use wardgate_proto::common::v1::ErrorReason;

use crate::status::with_reason;

/// A part of the platform, by the name in its certificate (a DNS subject alternative name).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The HTTP edge.
    Gateway,
    /// The policy service.
    Policy,
    /// The tool-runner.
    ToolRunner,
    /// The audit service.
    Audit,
    /// The conversations.
    Memory,
    /// A person at the command line.
    Operator,
}

impl Peer {
    /// Every peer.
    pub const ALL: [Self; 6] = [
        Self::Gateway,
        Self::Policy,
        Self::ToolRunner,
        Self::Audit,
        Self::Memory,
        Self::Operator,
    ];

    /// The name in certificates.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gateway => "gateway",
            Self::Policy => "policy",
            Self::ToolRunner => "tool-runner",
            Self::Audit => "audit",
            Self::Memory => "memory",
            Self::Operator => "operator",
        }
    }
}

impl FromStr for Peer {
    type Err = ();

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|peer| peer.as_str() == name)
            .ok_or(())
    }
}

/// Every method and its callers. Health and reflection are open to every peer with a certificate.
const TABLE: [(&str, &[Peer]); 37] = [
    (
        "/wardgate.policy.v1.PolicyService/Authorize",
        &[Peer::Gateway, Peer::Memory],
    ),
    (
        "/wardgate.policy.v1.PolicyService/ListVisible",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.policy.v1.PolicyService/AuthorizeRecall",
        &[Peer::Memory],
    ),
    (
        "/wardgate.policy.v1.PolicyService/WatchVersion",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListTools",
        &[Peer::Gateway, Peer::Operator],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/WatchCatalogue",
        &[Peer::Gateway],
    ),
    (
        // A tool-runner hands on what waits on another replica.
        "/wardgate.toolrunner.v1.ToolRunnerService/CallTool",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/Relay",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListContent",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/GetContent",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/WatchResources",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/SetSwitch",
        &[Peer::Operator],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListSwitches",
        &[Peer::Operator],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/DescribeConnection",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/StartConnection",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/FinishConnection",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/ListConnections",
        &[Peer::Operator],
    ),
    (
        "/wardgate.toolrunner.v1.ToolRunnerService/RemoveConnections",
        &[Peer::Operator],
    ),
    (
        "/wardgate.audit.v1.AuditService/Append",
        &[Peer::Gateway, Peer::ToolRunner, Peer::Memory],
    ),
    ("/wardgate.audit.v1.AuditService/Query", &[Peer::Operator]),
    (
        "/wardgate.memory.v1.MemoryService/GetOrCreate",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.memory.v1.MemoryService/GetContext",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.memory.v1.MemoryService/AddMessages",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.memory.v1.MemoryService/GetTurn",
        &[Peer::Gateway],
    ),
    ("/wardgate.memory.v1.MemoryService/Clear", &[Peer::Gateway]),
    ("/wardgate.memory.v1.MemoryService/Delete", &[Peer::Gateway]),
    (
        "/wardgate.memory.v1.MemoryService/ListConversations",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.memory.v1.MemoryService/ReadConversation",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.memory.v1.MemoryService/Search",
        &[Peer::Gateway, Peer::ToolRunner],
    ),
    (
        "/wardgate.memory.v1.MemoryService/WatchConversations",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.memory.v1.MemoryService/Subscribe",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.memory.v1.MemoryService/Unsubscribe",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.memory.v1.MemoryService/ListSubscriptions",
        &[Peer::Gateway],
    ),
    (
        "/wardgate.memory.v1.MemoryService/Survey",
        &[Peer::Operator],
    ),
    ("/wardgate.memory.v1.MemoryService/Erase", &[Peer::Operator]),
    (
        "/wardgate.memory.v1.MemoryService/SetHold",
        &[Peer::Operator],
    ),
    (
        "/wardgate.memory.v1.MemoryService/ListHolds",
        &[Peer::Operator],
    ),
];

/// How the peers of a server are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// By client certificate; a connection without one is nobody's.
    Certificate,
    /// The whole loopback interface is trusted, because the configuration says so.
    Loopback,
    /// Whoever gets through is the operator.
    Operator,
}

/// Refuses `request` unless the table lets its peer call its method, of which it gives the name in the table.
pub(crate) fn check<B>(
    request: &http::Request<B>,
    trust: Trust,
) -> Result<&'static str, tonic::Status> {
    let method = request.uri().path();
    let Some((listed, allowed)) = TABLE.iter().find(|(listed, _)| *listed == method) else {
        tracing::error!(method, "a method has no entry in the access table");
        return Err(with_reason(
            ErrorReason::Internal,
            "this method has no entry in the access table",
        ));
    };
    let may = match trust {
        Trust::Certificate => peers(request).iter().any(|peer| allowed.contains(peer)),
        Trust::Loopback => true,
        Trust::Operator => allowed.contains(&Peer::Operator),
    };
    if may {
        return Ok(listed);
    }
    Err(with_reason(
        ErrorReason::PeerRefused,
        &format!(
            "this peer may not call {method}; its certificate must name one of {}",
            names(allowed)
        ),
    ))
}

/// Whether people at the command line may call the method.
pub(crate) fn is_for_operators(method: &str) -> bool {
    let mut table = TABLE.iter();
    table.any(|(listed, allowed)| *listed == method && allowed.contains(&Peer::Operator))
}

fn names(peers: &[Peer]) -> String {
    peers
        .iter()
        .map(|peer| peer.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Who sent `request`: the peer a local link noted, or the names in the client certificate.
fn peers<B>(request: &http::Request<B>) -> Vec<Peer> {
    if let Some(peer) = request.extensions().get::<Peer>() {
        return vec![*peer];
    }
    let certificates = request
        .extensions()
        .get::<TlsConnectInfo<TcpConnectInfo>>()
        .and_then(TlsConnectInfo::peer_certs);
    let Some(leaf) = certificates.as_ref().and_then(|chain| chain.first()) else {
        return Vec::new();
    };
    match webpki::EndEntityCert::try_from(leaf) {
        Ok(certificate) => certificate
            .valid_dns_names()
            .filter_map(|name| name.parse().ok())
            .collect(),
        Err(_) => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message;

    /// Every method of every service, from the descriptors.
    fn methods() -> Vec<String> {
        let set = prost_types::FileDescriptorSet::decode(wardgate_proto::DESCRIPTORS).unwrap();
        let mut methods = Vec::new();
        for file in set.file {
            for service in &file.service {
                for method in &service.method {
                    methods.push(format!(
                        "/{}.{}/{}",
                        file.package(),
                        service.name(),
                        method.name()
                    ));
                }
            }
        }
        methods
    }

    fn request(method: &str, peer: Peer) -> http::Request<()> {
        let mut request = http::Request::builder().uri(method).body(()).unwrap();
        request.extensions_mut().insert(peer);
        request
    }

    #[test]
    fn every_method_of_every_service_has_its_callers_decided() {
        let mut listed: Vec<String> = TABLE
            .iter()
            .map(|(method, _)| (*method).to_owned())
            .collect();
        let mut declared = methods();
        listed.sort();
        declared.sort();
        assert_eq!(listed, declared);
    }

    #[test]
    fn each_peer_calls_what_the_table_says_and_nothing_else() {
        for (method, allowed) in TABLE {
            for peer in Peer::ALL {
                let answer = check(&request(method, peer), Trust::Certificate);
                assert_eq!(
                    answer.is_ok(),
                    allowed.contains(&peer),
                    "{method} by {peer:?}"
                );
            }
        }
    }

    #[test]
    fn through_the_operators_door_everyone_is_the_operator_and_no_one_else() {
        for (method, allowed) in TABLE {
            let request = request(method, Peer::Gateway);
            let answer = check(&request, Trust::Operator);
            assert_eq!(
                answer.is_ok(),
                allowed.contains(&Peer::Operator),
                "{method}"
            );
        }
    }

    #[test]
    fn a_request_of_nobody_is_refused() {
        let request = http::Request::builder().uri(TABLE[0].0).body(()).unwrap();
        assert_eq!(
            crate::reason_of(&check(&request, Trust::Certificate).unwrap_err()),
            ErrorReason::PeerRefused
        );
    }
}
