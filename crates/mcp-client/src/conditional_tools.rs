//! Discovery of tools that a server shows only to clients with certain capabilities, and of these capabilities.
//!
//! ```text
//!   list of a client with none ─┬─ the same tools ─▶ nothing depends on the client
//!   list of a client with all ──┘
//!                   └ more tools ─▶ the list of a client with all but one capability, for each of them:
//!                                   a tool that it lacks needs that one
//!                                   a tool that those do not show needs one of the others
//! ```
//!
//! A server of 2026-07-28 receives a client's capabilities with each request. An older server receives them once per session, so
//! each of these lists takes a separate session, which is ended immediately. The lists are requested again when the server's
//! tools change, and otherwise after an hour.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::{Instant, timeout_at};
use tracing::warn;
use wardgate_domain::{Digest, RequiredCapabilities, ToolName};
use wardgate_mcp::Era;

use super::connection::UpstreamConnection;
use super::definition::{self, Pages, ToolDefinition};
use super::era;
use super::error::UpstreamError;
use super::events::Events;
use super::link::Link;
use super::participation::{ClientFeature, ClientProfile, Participation};
use super::settings::Transport;

/// Maximum time for all of these lists together. The list of the tools for every client waits for them.
const LIMIT: Duration = Duration::from_secs(20);

/// A capability that tools can depend on, with the features that a client without it does not support.
struct ProbedCapability {
    path: &'static [&'static str],
    features: &'static [ClientFeature],
}

/// The probed capabilities, each before its parts.
const CAPABILITIES: [ProbedCapability; 6] = [
    ProbedCapability {
        path: &["elicitation"],
        features: &[ClientFeature::Form, ClientFeature::Url],
    },
    ProbedCapability {
        path: &["elicitation", "url"],
        features: &[ClientFeature::Url],
    },
    ProbedCapability {
        path: &["sampling"],
        features: &[
            ClientFeature::Sampling,
            ClientFeature::SamplingTools,
            ClientFeature::SamplingContext,
        ],
    },
    ProbedCapability {
        path: &["sampling", "tools"],
        features: &[ClientFeature::SamplingTools],
    },
    ProbedCapability {
        path: &["sampling", "context"],
        features: &[ClientFeature::SamplingContext],
    },
    ProbedCapability {
        path: &["roots"],
        features: &[ClientFeature::Roots],
    },
];

/// The cached conditional tools of one server.
#[derive(Default)]
pub(super) struct ConditionalTools(Mutex<Option<KnownTools>>);

struct KnownTools {
    /// The digest of the list of tools that was current when the conditional tools were determined.
    listed: Digest,
    /// The revision of the server's tools at that time, see [`Events::tools_revision`].
    revision: u64,
    since: Instant,
    tools: Arc<[ToolDefinition]>,
}

impl ConditionalTools {
    /// Returns the conditional tools of the server behind `link`, which has just returned `listed`: for a client with all
    /// capabilities if it is a server of 2026-07-28, for a client with none if it is older. If they cannot be determined,
    /// returns the previous ones.
    pub(super) async fn resolve_tools(
        &self,
        listed: &[ToolDefinition],
        transport: &Transport,
        link: &Arc<Link>,
        deadline: Instant,
    ) -> Arc<[ToolDefinition]> {
        let revision = link.events.tools_revision();
        let digest = Digest::of_parts(listed.iter().map(|tool| tool.raw.get().as_bytes()));
        let earlier = {
            let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            match &*known {
                Some(known) if known.holds(digest, revision) => return Arc::clone(&known.tools),
                Some(known) => Arc::clone(&known.tools),
                None => Arc::default(),
            }
        };
        let deadline = deadline.min(Instant::now() + LIMIT);
        let finding = timeout_at(deadline, find(listed, transport, link, deadline));
        match finding.await.unwrap_or(Err(UpstreamError::Timeout)) {
            Ok(tools) => {
                let tools: Arc<[_]> = tools.into();
                let known = KnownTools {
                    listed: digest,
                    revision,
                    since: Instant::now(),
                    tools: Arc::clone(&tools),
                };
                *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(known);
                tools
            }
            Err(error) => {
                warn!(
                    upstream = link.events.upstream,
                    %error,
                    "the tools that an upstream server offers only to clients with certain capabilities cannot be listed; trying again"
                );
                earlier
            }
        }
    }
}

impl KnownTools {
    fn holds(&self, listed: Digest, revision: u64) -> bool {
        self.listed == listed && self.revision == revision && era::still_holds(self.since)
    }
}

async fn find(
    listed: &[ToolDefinition],
    transport: &Transport,
    link: &Arc<Link>,
    deadline: Instant,
) -> Result<Vec<ToolDefinition>, UpstreamError> {
    let connection = link.connection_by(deadline).await?;
    let is_modern = connection.era() == Era::Modern;
    let server = ProbedServer {
        transport,
        link,
        connection: &connection,
        deadline,
    };
    let mut conditional = if is_modern {
        let plain = names(&server.tools_for(ClientProfile::default()).await?);
        let mut all = listed.to_vec();
        all.retain(|tool| !plain.contains(&tool.name));
        all
    } else {
        let plain = names(listed);
        let mut all = server.tools_for(ClientProfile::ALL).await?;
        all.retain(|tool| !plain.contains(&tool.name));
        all
    };
    if conditional.is_empty() {
        return Ok(conditional);
    }
    for ProbedCapability { path, features } in CAPABILITIES {
        // If no tool needs a capability, none needs a part of it.
        let is_asked = path.len() == 1
            || conditional
                .iter()
                .any(|tool| tool.required.contain(path[0]));
        if !is_asked {
            continue;
        }
        let shown = names(
            &server
                .tools_for(ClientProfile::ALL.without(features))
                .await?,
        );
        for tool in &mut conditional {
            if !shown.contains(&tool.name) {
                tool.required.add(path);
            }
        }
    }
    find_alternatives(&mut conditional, &server).await?;
    Ok(conditional)
}

/// Determines the alternative capabilities of tools that need any one of several: those that reveal a tool in addition to the
/// capabilities that it needs in any case. A tool that no single one reveals needs all of them.
async fn find_alternatives(
    tools: &mut [ToolDefinition],
    server: &ProbedServer<'_>,
) -> Result<(), UpstreamError> {
    let mut needs: Vec<RequiredCapabilities> = Vec::new();
    for tool in tools.iter() {
        if !needs.contains(&tool.required) {
            needs.push(tool.required.clone());
        }
    }
    for needed in needs {
        let (own, others): (Vec<_>, Vec<_>) = CAPABILITIES
            .iter()
            .filter(|it| it.path.len() == 1)
            .partition(|it| needed.contain(it.path[0]));
        let profile = own.iter().fold(ClientProfile::default(), |profile, it| {
            profile.with(it.features)
        });
        // These tools are not shown to a client without capabilities, so no request is needed.
        let shown = if needed.is_empty() {
            HashSet::new()
        } else {
            names(&server.tools_for(profile).await?)
        };
        let is_open =
            |tool: &&mut ToolDefinition| tool.required == needed && !shown.contains(&tool.name);
        let mut open: Vec<&mut ToolDefinition> = tools.iter_mut().filter(is_open).collect();
        if open.is_empty() {
            continue;
        }
        for ProbedCapability { path, features } in &others {
            let shown = names(&server.tools_for(profile.with(features)).await?);
            for tool in open.iter_mut().filter(|it| shown.contains(&it.name)) {
                tool.required.add_alternative(path);
            }
        }
        for tool in open.iter_mut().filter(|it| it.required == needed) {
            for ProbedCapability { path, .. } in &others {
                tool.required.add(path);
            }
        }
    }
    Ok(())
}

fn names(tools: &[ToolDefinition]) -> HashSet<ToolName> {
    tools.iter().map(|tool| tool.name.clone()).collect()
}

/// A server whose lists for different clients are compared.
struct ProbedServer<'a> {
    transport: &'a Transport,
    link: &'a Arc<Link>,
    connection: &'a UpstreamConnection,
    deadline: Instant,
}

impl ProbedServer<'_> {
    /// Lists the tools for a client with the capabilities of `profile`.
    async fn tools_for(
        &self,
        profile: ClientProfile,
    ) -> Result<Vec<ToolDefinition>, UpstreamError> {
        if self.connection.era() == Era::Modern {
            list_modern(self.link, self.connection, profile, self.deadline).await
        } else {
            list_legacy(self.transport, &self.link.events, profile, self.deadline).await
        }
    }
}

/// Lists the tools for a client with the capabilities of `profile`, which are declared in the requests.
async fn list_modern(
    link: &Arc<Link>,
    connection: &UpstreamConnection,
    profile: ClientProfile,
    deadline: Instant,
) -> Result<Vec<ToolDefinition>, UpstreamError> {
    let client = Participation::of_profile(profile);
    let mut pages = Pages::new("tools/list", "tools");
    loop {
        let request = pages.request().with(&client);
        let page = link.request(&request, deadline, None).await?;
        if pages.add_page(&page)? {
            break;
        }
    }
    let is_over_http = matches!(connection, UpstreamConnection::Http(_));
    let has_tasks = connection.has_tasks();
    Ok(definition::tools(
        &link.events,
        pages.entries,
        is_over_http,
        has_tasks,
    ))
}

/// Lists the tools in a separate session. Events of this session do not affect the connections in use.
async fn list_legacy(
    transport: &Transport,
    events: &Events,
    profile: ClientProfile,
    deadline: Instant,
) -> Result<Vec<ToolDefinition>, UpstreamError> {
    let events = Events::new(events.upstream.clone(), events.ambient.clone());
    let link = Link::new(transport, Arc::new(events), profile);
    let link = Arc::new(link.map_err(|error| UpstreamError::Unreachable(error.to_string()))?);
    let listed = link.list_tools(deadline).await;
    link.close().await;
    Ok(listed?.0)
}
