//! The events of an upstream: changes of its health, its lists and its resources.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde::Deserialize;
use serde_json::value::RawValue;
use tokio::sync::watch;
use tracing::{info, warn};
use wardgate_domain::{Ambient, Timestamp};

use super::era::{ObservedServer, SupportedEras};
use super::log_quota::LogQuota;
use super::message::IncomingMessage;
use super::subscriptions::Subscriptions;

/// Maximum length of the instructions in bytes.
const MAX_INSTRUCTIONS: usize = 4_096;

/// Maximum number of warnings about one server per second.
const WARNINGS_PER_SECOND: u32 = 5;

/// Whether an upstream server can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// No request was sent yet.
    Untried,
    Up,
    Down {
        since: Timestamp,
        /// The cause, for the log and the operator. It contains no text of the server.
        cause: Arc<str>,
    },
}

/// The state of one upstream, which its parts update and others watch.
#[derive(Debug)]
pub(super) struct Events {
    /// The name of the source, for the log.
    pub(super) upstream: String,
    pub(super) ambient: Ambient,
    health: watch::Sender<Health>,
    /// The observed properties of the server, which are shared by the connections of all persons.
    observed: Arc<watch::Sender<ObservedServer>>,
    /// The number of announced or suspected changes of the tools. `prompts` and `resources` count the changes of their lists.
    tools: Arc<watch::Sender<u64>>,
    /// The same counter of the shared connection, whose list determines the tools that are offered.
    followed_tools: Arc<watch::Sender<u64>>,
    /// The number of changes that invalidate the lists with which connections were compared.
    tools_revision: AtomicU64,
    prompts: watch::Sender<u64>,
    resources: watch::Sender<u64>,
    /// The resources that have listeners.
    pub(super) subscriptions: Arc<Subscriptions>,
    /// The instructions that the server sent last.
    instructions: Mutex<Option<Arc<str>>>,
    warnings: Mutex<LogQuota>,
}

impl Events {
    pub(super) fn new(upstream: String, ambient: Ambient) -> Self {
        let tools = Arc::new(watch::Sender::new(0));
        Self {
            upstream,
            ambient,
            health: watch::Sender::new(Health::Untried),
            observed: Arc::new(watch::Sender::new(ObservedServer {
                eras: SupportedEras::Unknown,
                has_tasks: false,
                declares: None,
            })),
            followed_tools: Arc::clone(&tools),
            tools,
            tools_revision: AtomicU64::new(0),
            prompts: watch::Sender::new(0),
            resources: watch::Sender::new(0),
            subscriptions: Arc::default(),
            instructions: Mutex::default(),
            warnings: Mutex::new(LogQuota::new(WARNINGS_PER_SECOND)),
        }
    }

    /// Creates the events for a connection of another person to the same server. Both share the observed
    /// properties of the server.
    pub(super) fn for_another_person(&self) -> Self {
        Self {
            observed: Arc::clone(&self.observed),
            followed_tools: Arc::clone(&self.followed_tools),
            ..Self::new(self.upstream.clone(), self.ambient.clone())
        }
    }

    pub(super) fn health(&self) -> watch::Receiver<Health> {
        self.health.subscribe()
    }

    pub(super) fn observed_server(&self) -> watch::Receiver<ObservedServer> {
        self.observed.subscribe()
    }

    /// Sets the observed properties of the server.
    pub(super) fn set_observed(&self, observed: ObservedServer) {
        self.observed.send_if_modified(|known| {
            let changed = *known != observed;
            *known = observed;
            changed
        });
    }

    /// Sets the supported eras of a server whose eras were unsettled.
    pub(super) fn settle_eras(&self, eras: SupportedEras) {
        self.observed.send_if_modified(|known| {
            let is_open = known.eras == SupportedEras::Unsettled;
            if is_open {
                known.eras = eras;
            }
            is_open
        });
    }

    pub(super) fn tools_changes(&self) -> watch::Receiver<u64> {
        self.tools.subscribe()
    }

    pub(super) fn prompts_changes(&self) -> watch::Receiver<u64> {
        self.prompts.subscribe()
    }

    pub(super) fn resources_changes(&self) -> watch::Receiver<u64> {
        self.resources.subscribe()
    }

    pub(super) fn instructions(&self) -> Option<Arc<str>> {
        let instructions = self.instructions.lock();
        instructions.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Takes the instructions from `result`, the response to the first message.
    pub(super) fn store_instructions(&self, result: &RawValue) {
        #[derive(Deserialize)]
        struct InitializeMembers {
            #[serde(default)]
            instructions: Option<String>,
        }
        let instructions =
            parse_params::<InitializeMembers>(Some(result)).and_then(|it| it.instructions);
        let instructions = instructions.filter(|text| !text.trim().is_empty());
        let fits = |text: &String| text.len() <= MAX_INSTRUCTIONS;
        if !instructions.as_ref().is_none_or(fits) {
            self.log_ignored("its instructions are longer than 4096 bytes");
        }
        let accepted = instructions.filter(fits).map(Arc::from);
        *self
            .instructions
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = accepted;
    }

    pub(super) fn up(&self) {
        let changed = self.health.send_if_modified(|health| {
            let changed = *health != Health::Up;
            *health = Health::Up;
            changed
        });
        if changed {
            info!(upstream = self.upstream, "an upstream server is reachable");
        }
    }

    /// Records that the server is down. If it was down before, the first time and cause are kept.
    pub(super) fn down(&self, cause: &str) {
        let changed = self.health.send_if_modified(|health| {
            let changed = !matches!(health, Health::Down { .. });
            if changed {
                *health = Health::Down {
                    since: self.ambient.now(),
                    cause: cause.into(),
                };
            }
            changed
        });
        if changed {
            warn!(
                upstream = self.upstream,
                cause, "an upstream server is not reachable"
            );
        }
    }

    /// Reports a possible change of all lists, because notifications may have been missed.
    pub(super) fn report_possible_changes(&self) {
        self.tools_changed();
        for list in [&self.prompts, &self.resources] {
            notify_change(list);
        }
    }

    /// Reports a change, or a possible change, of the server's tools. The tools of every connection are compared again.
    pub(super) fn tools_changed(&self) {
        self.tools_revision.fetch_add(1, Ordering::AcqRel);
        notify_change(&self.tools);
    }

    /// Returns how often [`Self::tools_changed`] was called.
    pub(super) fn tools_revision(&self) -> u64 {
        self.tools_revision.load(Ordering::Acquire)
    }

    /// Reports that a connection offers a different tool than the approved one, so that the offered tools are evaluated again.
    pub(super) fn tools_differ(&self) {
        notify_change(&self.followed_tools);
    }

    /// Handles a message that belongs to no request of this client.
    pub(super) fn handle_unsolicited(&self, message: &IncomingMessage<'_>) {
        match message {
            IncomingMessage::Notification { method, params } => match &**method {
                "notifications/tools/list_changed" => self.tools_changed(),
                "notifications/prompts/list_changed" => notify_change(&self.prompts),
                "notifications/resources/list_changed" => notify_change(&self.resources),
                "notifications/resources/updated" => {
                    if let Some(ResourceUpdated { uri }) = parse_params(*params) {
                        self.subscriptions.notify_listeners(&uri);
                    }
                }
                "notifications/subscriptions/acknowledged" => {
                    let SubscriptionAcknowledged { notifications } =
                        parse_params(*params).unwrap_or_default();
                    let uris = notifications.resource_subscriptions.iter();
                    self.subscriptions
                        .record_acceptance(uris.map(String::as_str));
                    self.subscriptions.record_stream_start();
                }
                _ => {}
            },
            IncomingMessage::Response { .. } => {
                self.log_ignored("it is a response to an unknown request");
            }
            IncomingMessage::Request { .. } => {
                self.log_ignored("it is a request, which is not allowed here");
            }
        }
    }

    /// Logs that a message of the server is ignored. The log rate is limited.
    pub(super) fn log_ignored(&self, why: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = warnings.admit_line() {
            warn!(
                upstream = self.upstream,
                why, left_out, "a message of an upstream server is ignored"
            );
        }
    }

    /// Logs that a tool of the server cannot be offered. The log rate is limited.
    pub(super) fn left_out(&self, index: usize, why: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = warnings.admit_line() {
            warn!(
                upstream = self.upstream,
                index, why, left_out, "a tool of an upstream server is not offered"
            );
        }
    }
}

/// The parameters of `notifications/resources/updated`.
#[derive(Deserialize)]
struct ResourceUpdated {
    uri: String,
}

/// The parameters of `notifications/subscriptions/acknowledged`. The request that is acknowledged is not checked, because the
/// next request is not sent while an acknowledgement is awaited.
#[derive(Default, Deserialize)]
struct SubscriptionAcknowledged {
    notifications: Notifications,
}

#[derive(Default, Deserialize)]
struct Notifications {
    #[serde(default, rename = "resourceSubscriptions")]
    resource_subscriptions: Vec<String>,
}

fn parse_params<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(params?.get()).ok()
}

fn notify_change(list: &watch::Sender<u64>) {
    list.send_modify(|changes| *changes += 1);
}
