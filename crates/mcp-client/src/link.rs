//! A link to one server: a connection that is made on demand, and made again when it was lost.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use futures::future::{BoxFuture, Shared};
use futures::{FutureExt, TryFutureExt};
use serde_json::value::RawValue;
use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use wardgate_egress::EgressError;

use super::connection::UpstreamConnection;
use super::definition::{self, Pages, ToolDefinition};
use super::era::SupportedEras;
use super::error::UpstreamError;
use super::events::Events;
use super::listing::{self, ListRequest, ListedTools};
use super::message::UpstreamRequest;
use super::participation::{ClientProfile, Participation};
use super::server_message::{Listener, ServerMessage, lend};
use super::settings::Transport;
use super::task;
use super::{http, stdio};

/// Maximum time to connect, however long callers wait: a package runner may have to download the server first.
const CONNECT_LIMIT: Duration = Duration::from_mins(1);

/// Maximum time for which calls over a new connection wait for its list of tools.
pub(super) const LIST_LIMIT: Duration = Duration::from_secs(30);

/// Maximum number of requests that the server processes concurrently.
const IN_FLIGHT: usize = 64;
/// Maximum number of requests that wait for a slot.
const WAITING: usize = 256;

enum Connector {
    Stdio(stdio::Launcher),
    Http(http::Dialer),
}

/// A connection attempt, shared by all requests that need the connection.
type Attempt = Shared<BoxFuture<'static, Result<(), UpstreamError>>>;

pub(super) struct Link {
    connector: Connector,
    current: ArcSwapOption<UpstreamConnection>,
    attempt: Mutex<Option<Attempt>>,
    pub(super) events: Arc<Events>,
    tasks: TaskTracker,
    stop: CancellationToken,
    queue_slots: Semaphore,
    request_slots: Semaphore,
}

/// A permit from [`Link::request_permit`].
pub(super) struct RequestPermit<'a> {
    _queue_slot: SemaphorePermit<'a>,
    _request_slot: Option<SemaphorePermit<'a>>,
}

impl Link {
    /// Creates a link. The features of `profile` are declared to a legacy server.
    pub(super) fn new(
        transport: &Transport,
        events: Arc<Events>,
        profile: ClientProfile,
    ) -> Result<Self, EgressError> {
        let tasks = TaskTracker::new();
        let connector = match transport {
            Transport::Stdio(program) => Connector::Stdio(stdio::Launcher::new(
                program.clone(),
                Arc::clone(&events),
                tasks.clone(),
                profile,
            )),
            Transport::Http(settings) => Connector::Http(http::Dialer::open(
                settings,
                Arc::clone(&events),
                tasks.clone(),
                profile,
            )?),
        };
        Ok(Self {
            connector,
            current: ArcSwapOption::empty(),
            attempt: Mutex::default(),
            events,
            tasks,
            stop: CancellationToken::new(),
            queue_slots: Semaphore::new(IN_FLIGHT + WAITING),
            request_slots: Semaphore::new(IN_FLIGHT),
        })
    }

    /// Sends a request and waits for the response until `deadline`. Dropping the future cancels the request at the server.
    pub(super) async fn request(
        self: &Arc<Self>,
        request: &UpstreamRequest<'_>,
        deadline: Instant,
        listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let _queue_slot = self
            .queue_slots
            .try_acquire()
            .map_err(|_| UpstreamError::Busy)?;
        // Boxed because the timer and the callers would copy the request's future, which has many kilobytes.
        let asking = self.request_in_slot(request, listener).boxed();
        let outcome = timeout_at(deadline, asking).await;
        let outcome = outcome.unwrap_or(Err(UpstreamError::Timeout));
        self.record(&outcome);
        outcome
    }

    /// Acquires a permit for work of the server on a request that may stay open. The permit is not held while the
    /// request waits for a person.
    pub(super) async fn request_permit(&self) -> Result<RequestPermit<'_>, UpstreamError> {
        let queue_slot = self
            .queue_slots
            .try_acquire()
            .map_err(|_| UpstreamError::Busy)?;
        // The acquisition does not fail because the semaphore is never closed.
        let request_slot = self.request_slots.acquire().await.ok();
        Ok(RequestPermit {
            _queue_slot: queue_slot,
            _request_slot: request_slot,
        })
    }

    /// Sends a request without a time limit. `take` receives the messages and requests of the server in the meantime. No request
    /// slot is held, because the request may wait for a person.
    pub(super) async fn request_without_deadline(
        self: &Arc<Self>,
        request: &UpstreamRequest<'_>,
        take: impl Fn(ServerMessage, &Arc<UpstreamConnection>) -> bool + Send + Sync,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let mut outcome = Err(UpstreamError::Gone);
        for _ in 0..2 {
            let connection = self.connection().await?;
            let mut listener = |message| take(message, &connection);
            outcome = self
                .request_over(&connection, request, Some(&mut listener))
                .await;
            // The server did not process the request, so it is retried over a new connection.
            if !matches!(outcome, Err(UpstreamError::Gone)) {
                break;
            }
        }
        self.record(&outcome);
        outcome
    }

    /// Updates the health of the server according to an outcome.
    fn record<T>(&self, outcome: &Result<T, UpstreamError>) {
        match outcome {
            Ok(_) | Err(UpstreamError::Rpc(_)) => self.events.up(),
            Err(error @ (UpstreamError::Unreachable(_) | UpstreamError::Status(500..))) => {
                self.events.down(&error.to_string());
            }
            Err(_) => {}
        }
    }

    async fn request_in_slot(
        self: &Arc<Self>,
        request: &UpstreamRequest<'_>,
        mut listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        // The acquisition does not fail because the semaphore is never closed.
        let _request_slot = self.request_slots.acquire().await;
        let mut outcome = Err(UpstreamError::Gone);
        for _ in 0..2 {
            let connection = self.connection().await?;
            outcome = self
                .request_over(&connection, request, lend(&mut listener))
                .await;
            // The server did not process the request, so it is retried over a new connection.
            if !matches!(outcome, Err(UpstreamError::Gone)) {
                break;
            }
        }
        outcome
    }

    /// Sends a request over `connection`. A pinned tool is only called if the connection offers the approved one.
    async fn request_over(
        &self,
        connection: &UpstreamConnection,
        request: &UpstreamRequest<'_>,
        listener: Option<Listener<'_>>,
    ) -> Result<Box<RawValue>, UpstreamError> {
        let listed = self.check_pin(connection, request).await?;
        let result = request_to_end(connection, request, listener).await?;
        let is_another = |listed: Arc<ListedTools>| listed.is_of_another_server(&result);
        if listed.is_some_and(is_another) {
            connection.listing().forget();
            let checked = self.check_pin(connection, request).await;
            checked.map_err(UpstreamError::after_acceptance)?;
        }
        Ok(result)
    }

    /// Returns an error if `connection` offers a different tool than the pinned one. Returns the list
    /// that the pin was compared with.
    async fn check_pin(
        &self,
        connection: &UpstreamConnection,
        request: &UpstreamRequest<'_>,
    ) -> Result<Option<Arc<ListedTools>>, UpstreamError> {
        let Some((pin, name)) = request.pin.zip(request.subject()) else {
            return Ok(None);
        };
        let current = || self.current_tools(connection);
        let deadline = Instant::now() + LIST_LIMIT;
        let listed = self.tools_by(connection, current, deadline).await;
        let listed = listed.map_err(|error| match error {
            UpstreamError::Gone => error,
            error => error.before_any_request(),
        })?;
        if !listed.admits(name, pin) {
            self.events.tools_differ();
            return Err(UpstreamError::ToolChanged);
        }
        Ok(Some(listed))
    }

    /// Returns the tools that the server offers over `connection`, or `None` if its list is no longer valid.
    fn current_tools(&self, connection: &UpstreamConnection) -> Option<Arc<ListedTools>> {
        let revision = self.events.tools_revision();
        let listed = connection.listing().current()?;
        let holds = listed.holds(revision, connection.has_session());
        holds.then_some(listed)
    }

    /// Returns the tools that the server listed last over `connection`. Requests the list, until
    /// `deadline`, if there is none yet.
    pub(super) async fn known_tools(
        &self,
        connection: &UpstreamConnection,
        deadline: Instant,
    ) -> Result<Arc<ListedTools>, UpstreamError> {
        let current = || connection.listing().current();
        self.tools_by(connection, current, deadline).await
    }

    /// Returns the list from `current`, or requests a new one until `deadline`.
    async fn tools_by(
        &self,
        connection: &UpstreamConnection,
        current: impl Fn() -> Option<Arc<ListedTools>> + Send,
        deadline: Instant,
    ) -> Result<Arc<ListedTools>, UpstreamError> {
        if let Some(listed) = current() {
            return Ok(listed);
        }
        // Boxed because this is rarely needed: most calls have a list.
        let listing = self.list_unless(connection, current).boxed();
        timeout_at(deadline, listing)
            .await
            .unwrap_or(Err(UpstreamError::Timeout))
    }

    /// Requests a new list, unless `current` returns one that another caller requested in the meantime.
    async fn list_unless(
        &self,
        connection: &UpstreamConnection,
        current: impl Fn() -> Option<Arc<ListedTools>> + Send,
    ) -> Result<Arc<ListedTools>, UpstreamError> {
        let _asking = connection.listing().lock_for_request().await;
        if let Some(listed) = current() {
            return Ok(listed);
        }
        self.list_tools_over(connection).await?;
        connection.listing().current().ok_or(UpstreamError::Gone)
    }

    /// Returns all tools that the server offers now, and the TTL of the list. A legacy server lists the tools for clients
    /// of this link's profile.
    pub(super) async fn list_tools(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<(Vec<ToolDefinition>, Option<Duration>), UpstreamError> {
        let listing = async {
            let mut outcome = Err(UpstreamError::Gone);
            for _ in 0..2 {
                let connection = self.connection().await?;
                outcome = self.list_tools_over(&connection).await;
                if !matches!(outcome, Err(UpstreamError::Gone)) {
                    break;
                }
            }
            outcome
        };
        let outcome = timeout_at(deadline, listing).await;
        let outcome = outcome.unwrap_or(Err(UpstreamError::Timeout));
        self.record(&outcome);
        outcome
    }

    async fn list_tools_over(
        &self,
        connection: &UpstreamConnection,
    ) -> Result<(Vec<ToolDefinition>, Option<Duration>), UpstreamError> {
        let list_request = ListRequest {
            revision: self.events.tools_revision(),
            at: Instant::now(),
        };
        // A server of 2026-07-28 receives the capabilities of the client with each request. This list is for
        // clients with all capabilities.
        let client = Participation::of_profile(ClientProfile::ALL);
        let mut pages = Pages::new("tools/list", "tools");
        let server = loop {
            let request = pages.request().with(&client);
            let page = connection.request_plainly(&request, None).await?;
            if pages.add_page(&page)? {
                break listing::server_of(&page);
            }
        };
        let is_over_http = matches!(connection, UpstreamConnection::Http(_));
        let has_tasks = connection.has_tasks();
        let tools = definition::tools(&self.events, pages.entries, is_over_http, has_tasks);
        let listed = ListedTools::new(&tools, list_request, server);
        connection.listing().store(listed);
        Ok((tools, pages.ttl))
    }

    /// Returns the eras that the server supports. If discovery left open whether it accepts `initialize`, this is tried now.
    pub(super) async fn settle_eras(&self) -> SupportedEras {
        let eras = || self.events.observed_server().borrow().eras;
        if eras() == SupportedEras::Unsettled
            && let Connector::Http(dialer) = &self.connector
        {
            let settled = if dialer.takes_initialize().await {
                SupportedEras::Both
            } else {
                SupportedEras::Modern
            };
            self.events.settle_eras(settled);
        }
        eras()
    }

    /// Returns the current connection, or a new one.
    pub(super) async fn connection(
        self: &Arc<Self>,
    ) -> Result<Arc<UpstreamConnection>, UpstreamError> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let attempt = self.attempt().get_or_insert_with(|| self.connect()).clone();
        attempt.await?;
        self.usable().ok_or(UpstreamError::Gone)
    }

    /// Returns a connection like [`Self::connection`], until `deadline`.
    pub(super) async fn connection_by(
        self: &Arc<Self>,
        deadline: Instant,
    ) -> Result<Arc<UpstreamConnection>, UpstreamError> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        timeout_at(deadline, self.connection())
            .await
            .unwrap_or(Err(UpstreamError::Timeout))
    }

    fn usable(&self) -> Option<Arc<UpstreamConnection>> {
        self.current
            .load_full()
            .filter(|connection| connection.is_usable())
    }

    /// Returns the current connection attempt.
    fn attempt(&self) -> MutexGuard<'_, Option<Attempt>> {
        self.attempt.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Connects in a spawned task, so that a connection that takes longer than the deadline of one call can be used by the next.
    fn connect(self: &Arc<Self>) -> Attempt {
        let link = Arc::clone(self);
        let connecting = self.tasks.spawn(async move {
            let outcome = link.replace().await;
            // The attempt is removed so that later requests make a new attempt instead of getting an old outcome.
            link.attempt().take();
            match &outcome {
                Ok(()) => link.events.up(),
                Err(error) if !link.stop.is_cancelled() => link.events.down(&error.to_string()),
                Err(_) => {}
            }
            outcome
        });
        connecting
            .map(|outcome| outcome.unwrap_or(Err(UpstreamError::Gone)))
            .boxed()
            .shared()
    }

    /// Replaces the connection by a new one.
    async fn replace(&self) -> Result<(), UpstreamError> {
        let connection = match &self.connector {
            Connector::Stdio(launcher) => {
                launcher.connect().map_ok(UpstreamConnection::Stdio).boxed()
            }
            Connector::Http(dialer) => dialer.connect().map_ok(UpstreamConnection::Http).boxed(),
        };
        let connection = tokio::select! {
            biased;
            () = self.stop.cancelled() => return Err(UpstreamError::Gone),
            connection = timeout(CONNECT_LIMIT, connection) => connection,
        };
        let connection = connection
            .unwrap_or(Err(UpstreamError::Timeout))
            .map_err(UpstreamError::before_any_request)?;
        let earlier = self.current.swap(Some(Arc::new(connection)));
        if self.stop.is_cancelled() {
            self.current.store(None);
        }
        if earlier.is_some() {
            // Changes in between were not noticed.
            self.events.report_possible_changes();
        }
        Ok(())
    }

    /// Closes the connection without waiting.
    pub(super) fn disconnect(&self) {
        self.stop.cancel();
        self.current.store(None);
    }

    /// Closes the connection, and waits until the server was notified or has ended.
    pub(super) async fn close(&self) {
        self.disconnect();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

/// Sends a request and returns the response, or the result of the task that the request begins.
async fn request_to_end(
    connection: &UpstreamConnection,
    request: &UpstreamRequest<'_>,
    mut listener: Option<Listener<'_>>,
) -> Result<Box<RawValue>, UpstreamError> {
    if let Some(level) = request.log_level() {
        let setting = |request| async move { connection.request_plainly(&request, None).await };
        connection.log_level().make_at_least(level, setting).await;
    }
    let answer = connection
        .request_plainly(request, lend(&mut listener))
        .await?;
    if request.is_task {
        return task::follow(connection, answer, listener).await;
    }
    Ok(answer)
}
