//! Tests of the memory service on each database, through its gRPC interface.

mod change_feed;
mod conversations;
mod erasure;
mod logs;
mod order;
mod policy;
mod policy_client;
mod rekey;
mod rights;
mod search;
mod subscriptions;
mod turns;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use wardgate_domain::{
    AdminChange, Ambient, AnsweredCall, BearerToken, Caller, CallerClaims, ConversationId, Digest,
    Message, MessageId, NewMessage, Role, Source, ToolFacts, TurnId, TurnState,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_rpc::client::{CallError, ContextWindow, MemoryClient, MessageBatch, OnBehalfOf};
use wardgate_rpc::{Peer, link};
use wardgate_testkit::{AppendBehavior, FakeAudit, TestClock, TestDatabase, claims, tool_facts};

use crate::change_feed::ChangeFeed;
use crate::maintenance::StoreMaintenance;
use crate::service::MemoryHandler;
use crate::{Config, Error, MasterKey, MasterKeys};
use policy::Policy;

/// A running service with its own database.
struct Setup {
    database: Arc<TestDatabase>,
    policy: Policy,
    audit: Arc<FakeAudit>,
    clock: TestClock,
    /// The client of the gateway.
    memory: MemoryClient,
    /// The client of an operator.
    operator: MemoryClient,
    maintenance: Arc<StoreMaintenance>,
    change_feed: Arc<ChangeFeed>,
}

impl Setup {
    /// Creates a setup on each kind of database that is available.
    async fn each() -> Vec<Self> {
        Self::each_with(Config::for_store).await
    }

    async fn each_with(config: impl Fn(String) -> Config) -> Vec<Self> {
        let mut setups = Vec::new();
        for database in TestDatabase::each_store("memory").await {
            let config = config(database.url());
            setups.push(Self::over(Arc::new(database), config).await);
        }
        setups
    }

    async fn over(database: Arc<TestDatabase>, config: Config) -> Self {
        let key = MasterKey::from_bytes(&[7; 32]);
        Self::under(database, config, key.into()).await
    }

    /// Creates a service whose master keys are these.
    async fn under(database: Arc<TestDatabase>, config: Config, keys: MasterKeys) -> Self {
        let (policy, audit) = (Policy::default(), FakeAudit::new(Peer::Memory));
        let clock = TestClock::ticking_from(1_800_000_000);
        let ambient = clock.ambient();
        let memory = MemoryHandler::start(config, keys, policy.clone(), audit.client(), ambient);
        let memory = memory.await.unwrap();
        let maintenance = memory.maintenance.clone();
        let change_feed = memory.change_feed.clone();
        let service = memory.serve();
        let client = |peer| {
            let link = link::local(service.clone(), peer).link;
            MemoryClient::new(link, Duration::from_secs(20))
        };
        Self {
            memory: client(Peer::Gateway),
            operator: client(Peer::Operator),
            database,
            policy,
            audit,
            clock,
            maintenance,
            change_feed,
        }
    }

    /// Creates another service over the same database.
    async fn replica(&self) -> Self {
        let config = Config::for_store(self.database.url());
        Self::over(Arc::clone(&self.database), config).await
    }

    /// Executes `sql` once the next change is recorded, before the recording is acknowledged.
    fn after_next_change(&self, sql: &'static str) {
        let database = Arc::clone(&self.database);
        let happens = async move { database.execute(sql).await };
        let kept = AppendBehavior::KeepAfter(Box::pin(happens));
        self.audit.next([kept]);
    }

    /// Returns the recorded changes without the listings by operators.
    fn changes(&self) -> Vec<AdminChange> {
        let mut changes = self.audit.changes.entries();
        changes
            .retain(|change| !matches!(change.action.as_str(), "conversation.list" | "hold.list"));
        changes
    }

    fn pass(&self, time: Duration) {
        self.clock.advance(time);
    }

    /// Creates the caller's conversation with that id.
    async fn create_conversation(&self, caller: &Caller, conversation: &str) -> ConversationId {
        let id = id(conversation);
        self.memory
            .get_or_create(on_behalf_of(caller), Some(&id))
            .await
            .unwrap();
        id
    }

    /// Creates a conversation with these messages.
    async fn create_conversation_with(
        &self,
        caller: &Caller,
        conversation: &str,
        messages: Vec<NewMessage>,
    ) -> ConversationId {
        let id = self.create_conversation(caller, conversation).await;
        self.add(caller, &id, messages).await.unwrap();
        id
    }

    async fn add(
        &self,
        caller: &Caller,
        id: &ConversationId,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Message>, CallError> {
        let addition = MessageBatch {
            messages,
            turn: None,
        };
        self.send(caller, id, &addition).await
    }

    async fn add_to_turn(
        &self,
        caller: &Caller,
        id: &ConversationId,
        turn: &str,
        state: TurnState,
        messages: Vec<NewMessage>,
    ) -> Result<Vec<Message>, CallError> {
        let addition = MessageBatch {
            messages,
            turn: Some((turn_id(turn), state)),
        };
        self.send(caller, id, &addition).await
    }

    /// Sends messages, and retries while the store is too busy to answer in time if their ids make that safe.
    async fn send(
        &self,
        caller: &Caller,
        id: &ConversationId,
        addition: &MessageBatch,
    ) -> Result<Vec<Message>, CallError> {
        let may_repeat = addition.messages.iter().all(|message| message.id.is_some());
        let until = Instant::now() + Duration::from_mins(2);
        loop {
            let added = self
                .memory
                .add_messages(on_behalf_of(caller), id, addition)
                .await;
            let is_late =
                matches!(&added, Err(error) if error.to_string() == Error::Late.to_string());
            if !is_late || !may_repeat || Instant::now() > until {
                return added.map(|added| added.messages);
            }
        }
    }

    async fn context(&self, caller: &Caller, id: &ConversationId) -> ContextWindow {
        let context = self.memory.get_context(on_behalf_of(caller), id, 500, 0);
        context.await.unwrap()
    }
}

fn caller(subject: &str, tenant: &str) -> Caller {
    caller_of("https://issuer.example", tenant, subject)
}

/// Creates a caller with a token that [`Policy`] can read. No signature is checked here.
fn caller_of(issuer: &str, tenant: &str, subject: &str) -> Caller {
    let token = format!("{issuer} {tenant} {subject}");
    let caller = Caller::from_verified(CallerClaims {
        issuer: issuer.to_owned(),
        tenant: tenant.to_owned(),
        ..claims(subject, &["Nurse"])
    });
    caller.with_token(BearerToken::new(&token))
}

/// The operator whom the policy lets manage conversations.
const MANAGER: &str = "ada";

/// Returns the token of [`MANAGER`].
fn ada() -> BearerToken {
    token_of(&caller(MANAGER, ""))
}

fn token_of(caller: &Caller) -> BearerToken {
    caller.token().unwrap().clone()
}

fn joy() -> Caller {
    caller("nurse.joy", "")
}

fn on_behalf_of(caller: &Caller) -> OnBehalfOf<'_> {
    OnBehalfOf {
        caller,
        client_ip: "192.0.2.7",
    }
}

fn id(text: &str) -> ConversationId {
    text.parse().unwrap()
}

fn turn_id(text: &str) -> TurnId {
    text.parse().unwrap()
}

fn person(text: &str) -> NewMessage {
    NewMessage::text(Role::User, Source::Person, text)
}

fn model(text: &str) -> NewMessage {
    NewMessage {
        author: "llama".to_owned(),
        ..NewMessage::text(Role::Assistant, Source::Model, text)
    }
}

fn summary(text: &str, covers_to: u64) -> NewMessage {
    NewMessage {
        covers_to,
        ..NewMessage::text(Role::System, Source::Summary, text)
    }
}

fn result_of(tool: &str, arguments: &'static str, text: &str) -> NewMessage {
    NewMessage {
        author: tool.to_owned(),
        call: Some(AnsweredCall {
            call_id: "call-1".to_owned(),
            tool: ToolFacts {
                tags: ["records".to_owned()].into(),
                argument_defaults: BTreeMap::from([("limit".to_owned(), "100".to_owned())]),
                ..tool_facts(tool)
            },
            arguments: Bytes::from_static(arguments.as_bytes()),
        }),
        ..NewMessage::text(Role::Tool, Source::Tool, text)
    }
}

fn with_id(id: &str, message: NewMessage) -> NewMessage {
    NewMessage {
        id: Some(id.parse::<MessageId>().unwrap()),
        ..message
    }
}

fn texts(messages: &[Message]) -> Vec<&str> {
    messages
        .iter()
        .map(|message| message.content.as_str())
        .collect()
}

fn reason<T: std::fmt::Debug>(answer: Result<T, CallError>) -> ErrorReason {
    answer.unwrap_err().reason()
}
