//! Access control of calls: identifies the peer, and checks it against the table of methods.

use tonic::transport::server::{TcpConnectInfo, TlsConnectInfo};
use wardgate_proto::common::v1::ErrorReason;

use crate::methods::{self, Method};
use crate::peer::Peer;
use crate::status::with_reason;

/// The way in which a server identifies its peers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Trust {
    /// By client certificate. A connection without a certificate may not call anything.
    Certificate,
    /// Every process on the loopback interface is trusted, as the configuration allows explicitly.
    Loopback,
    /// Every connection is the operator's.
    Operator,
}

/// Returns the method that `request` calls, or an error if the table of methods does not allow its peer to call it.
pub(crate) fn check<B>(
    request: &http::Request<B>,
    trust: Trust,
) -> Result<&'static Method, tonic::Status> {
    check_method(request.uri().path(), |method| match trust {
        Trust::Certificate => peers(request)
            .iter()
            .any(|peer| method.callers.contains(peer)),
        Trust::Loopback => true,
        Trust::Operator => method.is_for_operators(),
    })
}

/// Returns the method at `path`, or an error if the table of methods does not allow `peer` to call it.
pub(crate) fn check_peer(path: &str, peer: Peer) -> Result<&'static Method, tonic::Status> {
    check_method(path, |method| method.callers.contains(&peer))
}

fn check_method(
    path: &str,
    is_allowed: impl FnOnce(&Method) -> bool,
) -> Result<&'static Method, tonic::Status> {
    let Some(method) = methods::find(path) else {
        tracing::error!(path, "a method is missing in the table of methods");
        return Err(with_reason(
            ErrorReason::Internal,
            "this method is missing in the table of methods",
        ));
    };
    if is_allowed(method) {
        return Ok(method);
    }
    Err(with_reason(
        ErrorReason::PeerRefused,
        &format!(
            "this peer may not call {path}; its certificate must name one of {}",
            names(method.callers)
        ),
    ))
}

fn names(peers: &[Peer]) -> String {
    peers
        .iter()
        .map(|peer| peer.as_str())
        .collect::<Vec<_>>()
        .join(", ")
}

/// Returns the sender of `request`: the peer that a local link noted, or those named in the client certificate.
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
    use crate::methods::METHODS;

    fn request(method: &str, peer: Peer) -> http::Request<()> {
        let mut request = http::Request::builder().uri(method).body(()).unwrap();
        request.extensions_mut().insert(peer);
        request
    }

    #[test]
    fn each_peer_calls_what_the_table_says_and_nothing_else() {
        for method in METHODS {
            for peer in Peer::ALL {
                let answer = check(&request(method.path, peer), Trust::Certificate);
                let may = method.callers.contains(&peer);
                assert_eq!(answer.is_ok(), may, "{} by {peer:?}", method.path);
            }
        }
    }

    #[test]
    fn through_the_operators_door_everyone_is_the_operator_and_no_one_else() {
        for method in METHODS {
            let request = request(method.path, Peer::Gateway);
            let may = method.callers.contains(&Peer::Operator);
            let answer = check(&request, Trust::Operator);
            assert_eq!(answer.is_ok(), may, "{}", method.path);
        }
    }

    #[test]
    fn a_request_of_nobody_is_refused() {
        let request = http::Request::builder()
            .uri(METHODS[0].path)
            .body(())
            .unwrap();
        assert_eq!(
            crate::reason_of(&check(&request, Trust::Certificate).unwrap_err()),
            ErrorReason::PeerRefused
        );
    }
}
