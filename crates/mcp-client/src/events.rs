//! What an upstream lets others know: whether it is there, and that its lists or resources changed.

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

/// The longest instructions that are taken, in bytes.
const MAX_INSTRUCTIONS: usize = 4_096;

/// Warnings about one server in one second.
const WARNINGS_PER_SECOND: u32 = 5;

/// Whether an upstream server can be reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Health {
    /// Nobody asked it for anything yet.
    Untried,
    Up,
    Down {
        since: Timestamp,
        /// For the log and the operator; holds nothing the server said.
        cause: Arc<str>,
    },
}

/// Where the parts of one upstream report what happens.
#[derive(Debug)]
pub(super) struct Events {
    /// The source's name, for the log.
    pub(super) upstream: String,
    pub(super) ambient: Ambient,
    health: watch::Sender<Health>,
    /// Of the server, whoever it is reached for.
    observed: Arc<watch::Sender<ObservedServer>>,
    /// Count the announced or suspected changes of each list.
    tools: Arc<watch::Sender<u64>>,
    /// The same of the server as nobody in particular reaches it, whose list decides what is offered.
    followed_tools: Arc<watch::Sender<u64>>,
    /// Counts the changes that make lists of tools void which connections were compared by.
    tools_revision: AtomicU64,
    prompts: watch::Sender<u64>,
    resources: watch::Sender<u64>,
    /// The resources that somebody listens to.
    pub(super) subscriptions: Arc<Subscriptions>,
    /// What the server says of itself, as it last said it.
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

    /// Of the same server, reached for somebody else: what it speaks is the same.
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

    pub(super) fn observed(&self) -> watch::Receiver<ObservedServer> {
        self.observed.subscribe()
    }

    /// The server has shown this of itself.
    pub(super) fn set_observed(&self, observed: ObservedServer) {
        self.observed.send_if_modified(|known| {
            let changed = *known != observed;
            *known = observed;
            changed
        });
    }

    /// Whose messages the server understands, once that was asked.
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

    /// Takes note of the instructions in `result`, the server's answer to the first message.
    pub(super) fn learn(&self, result: &RawValue) {
        #[derive(Deserialize)]
        struct InitializeMembers {
            #[serde(default)]
            instructions: Option<String>,
        }
        let instructions = read::<InitializeMembers>(Some(result)).and_then(|it| it.instructions);
        let instructions = instructions.filter(|text| !text.trim().is_empty());
        let fits = |text: &String| text.len() <= MAX_INSTRUCTIONS;
        if !instructions.as_ref().is_none_or(fits) {
            self.ignored("its instructions are longer than 4096 bytes");
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
            info!(
                upstream = self.upstream,
                "an upstream server can be reached"
            );
        }
    }

    /// A server that is down stays so since the first time.
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
                cause, "an upstream server is down"
            );
        }
    }

    /// Anything may have changed while nobody was listening.
    pub(super) fn missed(&self) {
        self.tools_changed();
        for list in [&self.prompts, &self.resources] {
            changed(list);
        }
    }

    /// The server's tools changed, or may have: every connection is compared anew.
    pub(super) fn tools_changed(&self) {
        self.tools_revision.fetch_add(1, Ordering::AcqRel);
        changed(&self.tools);
    }

    /// Counts what [`Self::tools_changed`] was told.
    pub(super) fn tools_revision(&self) -> u64 {
        self.tools_revision.load(Ordering::Acquire)
    }

    /// A connection offers another tool than was approved, so what is offered to clients has to be judged anew.
    pub(super) fn tools_differ(&self) {
        changed(&self.followed_tools);
    }

    /// Takes a message that belongs to no request of ours.
    pub(super) fn unsolicited(&self, message: &IncomingMessage<'_>) {
        match message {
            IncomingMessage::Notification { method, params } => match &**method {
                "notifications/tools/list_changed" => self.tools_changed(),
                "notifications/prompts/list_changed" => changed(&self.prompts),
                "notifications/resources/list_changed" => changed(&self.resources),
                "notifications/resources/updated" => {
                    if let Some(ResourceUpdated { uri }) = read(*params) {
                        self.subscriptions.updated(&uri);
                    }
                }
                "notifications/subscriptions/acknowledged" => {
                    let SubscriptionAcknowledged { notifications } =
                        read(*params).unwrap_or_default();
                    let uris = notifications.resource_subscriptions.iter();
                    self.subscriptions.accepted(uris.map(String::as_str));
                    self.subscriptions.opened();
                }
                _ => {}
            },
            IncomingMessage::Response { .. } => {
                self.ignored("it answers a request that nobody made");
            }
            IncomingMessage::Request { .. } => self.ignored("it is a request where none may be"),
        }
    }

    /// Notes something of the server's that is not used. A server that sends much of it fills no log.
    pub(super) fn ignored(&self, why: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = warnings.take() {
            warn!(
                upstream = self.upstream,
                why, left_out, "a message of an upstream server is ignored"
            );
        }
    }

    /// Notes a tool of the server's that cannot be offered.
    pub(super) fn left_out(&self, index: usize, why: &str) {
        let mut warnings = self.warnings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(left_out) = warnings.take() {
            warn!(
                upstream = self.upstream,
                index, why, left_out, "a tool of an upstream server is left out"
            );
        }
    }
}

/// `notifications/resources/updated`.
#[derive(Deserialize)]
struct ResourceUpdated {
    uri: String,
}

/// `notifications/subscriptions/acknowledged`. Which request it is of needs no look: another is made only when the
/// last was acknowledged.
#[derive(Default, Deserialize)]
struct SubscriptionAcknowledged {
    notifications: Notifications,
}

#[derive(Default, Deserialize)]
struct Notifications {
    #[serde(default, rename = "resourceSubscriptions")]
    resource_subscriptions: Vec<String>,
}

fn read<'a, T: Deserialize<'a>>(params: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(params?.get()).ok()
}

fn changed(list: &watch::Sender<u64>) {
    list.send_modify(|changes| *changes += 1);
}
