//! Putting services together: the only place that knows where a neighbour is.

use wardgate_domain::{Ambient, PermitSigner, PermitVerifier};
use wardgate_gateway::Neighbours;
use wardgate_redact::PseudonymKey;
use wardgate_rpc::{Peer, link};

use crate::Failure;
use crate::config::GatewayWiring;

/// What the services of one process need.
#[derive(Debug)]
pub(crate) struct Parts {
    pub(crate) policy: wardgate_policy::Config,
    pub(crate) tool_runner: wardgate_tool_runner::Config,
    pub(crate) audit: wardgate_audit::Config,
    pub(crate) permit_signer: PermitSigner,
    pub(crate) permit_verifier: PermitVerifier,
    pub(crate) pseudonym_key: PseudonymKey,
    pub(crate) mac_key: wardgate_audit::MacKey,
}

/// Every service in this process, each behind a local link.
pub(crate) async fn local(parts: Parts, ambient: &Ambient) -> Result<Neighbours, Failure> {
    let audit = wardgate_audit::service(parts.audit, parts.mac_key, ambient.clone()).await?;
    let policy =
        wardgate_policy::service(parts.policy, parts.permit_signer, ambient.clone()).await?;
    let tool_runner = wardgate_tool_runner::service(
        parts.tool_runner,
        parts.permit_verifier,
        parts.pseudonym_key,
        ambient.clone(),
    )
    .await?;
    Ok(Neighbours {
        policy: link::local(policy, Peer::Gateway),
        tool_runner: link::local(tool_runner, Peer::Gateway),
        audit: link::local(audit, Peer::Gateway),
    })
}

/// Every service behind a socket.
pub(crate) fn remote(wiring: &GatewayWiring) -> Result<Neighbours, Failure> {
    let tls = wiring.tls.as_ref();
    let links = &wiring.links;
    Ok(Neighbours {
        policy: link::connect(
            &links.policy,
            Peer::Policy,
            "wardgate.policy.v1.PolicyService",
            tls,
        )?,
        tool_runner: link::connect(
            &links.tool_runner,
            Peer::ToolRunner,
            "wardgate.toolrunner.v1.ToolRunnerService",
            tls,
        )?,
        audit: link::connect(
            &links.audit,
            Peer::Audit,
            "wardgate.audit.v1.AuditService",
            tls,
        )?,
    })
}
