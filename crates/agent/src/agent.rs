//! The agent service: the loaded assistants and the requests that they answer.

use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use futures::future::BoxFuture;
use futures::stream::{self, BoxStream};
use futures::{FutureExt, StreamExt};
use tokio::sync::{Semaphore, mpsc};
use tokio::time::Instant;
use tokio_stream::wrappers::ReceiverStream;
use tracing::Instrument;
use wardgate_domain::{Ambient, Caller};
use wardgate_telemetry::{SecretFilesInUse, SecretKind, names};

use crate::approval::ApprovalKey;
use crate::assistant::{Assistant, Assistants, OpenProvider, SecretFiles, parse, texts};
use crate::caller_gateway::CallerGateway;
use crate::clients::{GatewayClient, ModelClient};
use crate::event::AgentEvent;
use crate::gateway::GatewayEndpoint;
use crate::model::{ModelError, ModelRequest, ModelStream};
use crate::provider::{Provider, ProviderSettings};
use crate::reload::{self, LoadedFiles, Parse};
use crate::request::{ApprovalDecision, BearerToken, ChatRequest, Model};
use crate::retrying_gateway::RetryingGateway;
use crate::turn::{self, TurnFailure, TurnSetup};
use crate::turn_slots::{TurnSlot, TurnSlots};
use crate::{Config, Error, Telemetry};

/// The events of one request. The last event is always `done`; dropping the stream cancels the request.
pub type EventStream = BoxStream<'static, AgentEvent>;

/// Maximum number of events buffered for a slow client before the turn has to wait.
const WAITING_EVENTS: usize = 16;
/// Maximum number of conversation summaries that are generated at the same time.
const SUMMARIES: usize = 4;

/// A function that creates a gateway client for a caller's token.
type OpenGateway = dyn Fn(BearerToken) -> Arc<dyn GatewayClient> + Send + Sync;

/// The agent service. Cheap to clone.
#[derive(Clone)]
pub struct Agent {
    assistants: Arc<ArcSwap<Assistants>>,
    gateway: Arc<OpenGateway>,
    key: ApprovalKey,
    ambient: Ambient,
    summaries: Arc<Semaphore>,
    turn_slots: TurnSlots,
}

impl Agent {
    /// Loads the assistants and watches their files for changes. No provider is contacted: a provider that is down or not
    /// configured is reported when a request needs it.
    pub async fn open(
        config: &Config,
        gateway: GatewayEndpoint,
        key: ApprovalKey,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let gateway = move |token| {
            let client: Arc<dyn GatewayClient> =
                Arc::new(CallerGateway::new(gateway.clone(), token));
            client
        };
        let provider = open_provider(config.telemetry, ambient.clone());
        Self::with(config, provider, Arc::new(gateway), key, ambient).await
    }

    pub(crate) async fn with(
        config: &Config,
        provider: Arc<OpenProvider>,
        gateway: Arc<OpenGateway>,
        key: ApprovalKey,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let variables = config.variables.clone();
        let read: Arc<Parse> =
            Arc::new(move |texts, files| parse(texts, &variables, &*provider, files));
        let assistants = match &config.assistants {
            None => Arc::new(ArcSwap::from_pointee(Assistants::default())),
            Some(path) => {
                let at = path.clone();
                let files = tokio::task::spawn_blocking(move || texts(&at)).await;
                let files = match files {
                    Ok(Ok(files)) => files,
                    Ok(Err(error)) => return Err(unreadable(path, &error)),
                    Err(_) => return Err(Error::Assistants("reading the files failed".into())),
                };
                let mut secret_files = SecretFiles::default();
                let parsed = read(&files, &mut secret_files)?;
                let in_use = SecretFilesInUse::record(SecretKind::Credential, secret_files.paths());
                let assistants = Arc::new(ArcSwap::from_pointee(parsed));
                let interval = Duration::from_secs(config.reload_seconds.max(1));
                let loaded = LoadedFiles {
                    texts: files,
                    secret_files,
                    in_use,
                };
                reload::watch(&assistants, path.clone(), loaded, read, interval);
                assistants
            }
        };
        Ok(Self {
            assistants,
            gateway,
            key,
            ambient,
            summaries: Arc::new(Semaphore::new(SUMMARIES)),
            turn_slots: TurnSlots::default(),
        })
    }

    /// Sends a message to an assistant and returns the events of the turn.
    pub fn chat(
        &self,
        caller: Arc<Caller>,
        token: BearerToken,
        request: ChatRequest,
    ) -> EventStream {
        let (out, events) = mpsc::channel(WAITING_EVENTS);
        let assistants = self.assistants.load();
        let found = assistants.find(request.model.as_deref()).cloned();
        match self.acquire_turn_slot(&caller, found.ok_or(TurnFailure::UnknownModel)) {
            Ok((assistant, place)) => {
                let span = invocation(&assistant, &caller);
                let setup = self.setup(assistant, caller, token);
                let turn = turn::chat(setup, request, out);
                event_stream(turn.instrument(span), Some(place), events)
            }
            Err(failure) => self.failure_events(failure, out, events),
        }
    }

    /// Decides on a pending tool call and continues its turn.
    pub fn decide_approval(
        &self,
        caller: Arc<Caller>,
        token: BearerToken,
        approval_id: &str,
        decision: ApprovalDecision,
    ) -> EventStream {
        let (out, events) = mpsc::channel(WAITING_EVENTS);
        let opened = self.key.open(approval_id, &caller, self.ambient.now());
        let assistants = self.assistants.load();
        let found = opened.map_err(TurnFailure::from).and_then(|approval| {
            let assistant = assistants.find(Some(&approval.assistant));
            let assistant = assistant.cloned().ok_or(TurnFailure::UnknownModel)?;
            Ok((approval, assistant))
        });
        match self.acquire_turn_slot(&caller, found) {
            Ok(((approval, assistant), place)) => {
                let span = invocation(&assistant, &caller);
                let setup = self.setup(assistant, caller, token);
                let turn = turn::decide(setup, approval, decision, out);
                event_stream(turn.instrument(span), Some(place), events)
            }
            Err(failure) => self.failure_events(failure, out, events),
        }
    }

    /// Returns the value of `found` and a turn slot for the caller.
    fn acquire_turn_slot<T>(
        &self,
        caller: &Caller,
        found: Result<T, TurnFailure>,
    ) -> Result<(T, TurnSlot), TurnFailure> {
        let found = found?;
        let place = self
            .turn_slots
            .acquire(caller)
            .ok_or(TurnFailure::TooManyTurns)?;
        Ok((found, place))
    }

    fn failure_events(
        &self,
        failure: TurnFailure,
        out: mpsc::Sender<AgentEvent>,
        events: mpsc::Receiver<AgentEvent>,
    ) -> EventStream {
        event_stream(turn::fail(failure, self.ambient.clone(), out), None, events)
    }

    /// Returns the assistants, in the order of their files. The list does not depend on the caller; only the tools of an
    /// assistant do.
    pub fn models(&self, _caller: &Caller) -> Vec<Model> {
        self.assistants.load().models()
    }

    fn setup(
        &self,
        assistant: Arc<Assistant>,
        caller: Arc<Caller>,
        token: BearerToken,
    ) -> TurnSetup {
        let until = Instant::now() + Duration::from_secs(assistant.limits.seconds);
        TurnSetup {
            assistant,
            caller,
            gateway: Arc::new(RetryingGateway::new((self.gateway)(token), until)),
            key: self.key.clone(),
            ambient: self.ambient.clone(),
            summaries: Arc::clone(&self.summaries),
        }
    }
}

/// Loads and validates the assistant files without contacting a provider or the gateway.
pub fn check(config: &Config) -> Result<(), Error> {
    secret_files(config).map(drop)
}

/// Returns the files from which the assistants of `config` read secrets. The error lists all faults of the assistants.
pub fn secret_files(config: &Config) -> Result<Vec<PathBuf>, Error> {
    let Some(path) = &config.assistants else {
        return Ok(Vec::new());
    };
    let provider = open_provider(config.telemetry, Ambient::system());
    let files = texts(path).map_err(|error| unreadable(path, &error))?;
    let mut secret_files = SecretFiles::default();
    parse(&files, &config.variables, &*provider, &mut secret_files)?;
    Ok(secret_files.paths().map(Path::to_owned).collect())
}

fn unreadable(path: &Path, error: &std::io::Error) -> Error {
    Error::Assistants(format!("{}: cannot be read: {error}", path.display()))
}

fn open_provider(telemetry: Telemetry, ambient: Ambient) -> Arc<OpenProvider> {
    Arc::new(move |name: &str, settings: serde_json::Value| {
        let settings: ProviderSettings = serde_json::from_value(settings)
            .map_err(|error| format!("provider `{name}`: {error}"))?;
        let provider = Provider::open(name, &settings, ambient.clone());
        provider
            .map(|provider| {
                Arc::new(provider.with_contents(telemetry.contents)) as Arc<dyn ModelClient>
            })
            .map_err(|error| error.to_string())
    })
}

fn invocation(assistant: &Assistant, caller: &Caller) -> tracing::Span {
    tracing::info_span!(
        "invoke_agent",
        otel.name = format!("invoke_agent {}", assistant.name),
        { names::GENAI_OPERATION } = "invoke_agent",
        { names::GENAI_AGENT } = assistant.name,
        { names::GENAI_REQUEST_MODEL } = assistant.model.model,
        { names::CALLER } = caller.subject(),
    )
}

/// Returns the events of `turn`. The turn is polled together with the stream: a client that reads slowly slows the turn down, and
/// a client that disconnects drops it.
fn event_stream(
    turn: impl Future<Output = ()> + Send + 'static,
    place: Option<TurnSlot>,
    events: mpsc::Receiver<AgentEvent>,
) -> EventStream {
    let turn = async move {
        turn.await;
        drop(place);
    };
    let turn = turn.into_stream().filter_map(async |()| None);
    stream::select(turn, ReceiverStream::new(events)).boxed()
}

impl ModelClient for Provider {
    fn stream(&self, request: ModelRequest) -> BoxFuture<'_, Result<ModelStream, ModelError>> {
        async move { Self::stream(self, &request).await }.boxed()
    }

    fn carries_calls(&self) -> bool {
        Self::carries_calls(self)
    }
}
