//! A fake memory service that keeps conversations in memory and withholds tool results if the test says so.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex};

use futures::stream::{self, BoxStream, StreamExt};
use tokio::sync::{broadcast, watch};
use tonic::{Request, Response, Status};
use wardgate_domain::{Ambient, ConversationKey, ReadDecision};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::memory::v1 as pb;
use wardgate_proto::memory::v1::conversation_change::What;
use wardgate_proto::memory::v1::memory_service_server::{MemoryService, MemoryServiceServer};
use wardgate_rpc::link::{self, LinkedService};
use wardgate_rpc::{Peer, Readiness, Service};

use super::failure;
use crate::{Log, caller_of};

/// Number of conversations on one page of a list.
const PAGE: usize = 2;
/// Number of messages on one page of a conversation.
const MESSAGES: usize = 3;

/// A fake memory service.
pub struct FakeMemory {
    /// The names of the called methods.
    pub asked: Log<&'static str>,
    /// The requests that added messages.
    pub added: Log<pb::AddMessagesRequest>,
    /// One entry for each watch that has been confirmed.
    pub watches: Log<()>,
    /// The readiness that the service announces.
    pub readiness: watch::Sender<Readiness>,
    next: Mutex<VecDeque<ErrorReason>>,
    withholds: Mutex<bool>,
    /// The decision that reads of conversations return.
    recall: Mutex<Option<pb::RecallDecision>>,
    kept: Mutex<BTreeMap<(String, String), StoredConversation>>,
    /// The subject, session and conversation ID of each subscription.
    subscribed: Mutex<BTreeSet<(String, Vec<u8>, String)>>,
    changes: Mutex<broadcast::Sender<pb::WatchConversationsResponse>>,
    ambient: Ambient,
}

#[derive(Clone)]
struct StoredConversation {
    key: String,
    messages: Vec<pb::Message>,
    turns: BTreeMap<String, i32>,
}

impl FakeMemory {
    /// Creates a service without conversations, with the time of `ambient`.
    pub fn new(ambient: Ambient) -> Arc<Self> {
        Arc::new(Self {
            asked: Log::default(),
            added: Log::default(),
            watches: Log::default(),
            readiness: watch::Sender::new(Readiness::Ready),
            next: Mutex::default(),
            withholds: Mutex::default(),
            recall: Mutex::default(),
            kept: Mutex::default(),
            subscribed: Mutex::default(),
            changes: Mutex::new(broadcast::Sender::new(100)),
            ambient,
        })
    }

    /// Returns the link of the gateway to this service.
    pub fn link(self: &Arc<Self>) -> LinkedService {
        let service = Service {
            server: MemoryServiceServer::from_arc(Arc::clone(self)),
            local: (),
            readiness: self.readiness.subscribe(),
        };
        link::local(service, Peer::Gateway)
    }

    /// Makes the next requests fail for these reasons.
    pub fn fails(&self, reasons: impl IntoIterator<Item = ErrorReason>) {
        self.next.lock().unwrap().extend(reasons);
    }

    /// Withholds the results of tools from every reader from now on.
    pub fn withholds_tools(&self) {
        *self.withholds.lock().unwrap() = true;
    }

    /// Makes reads of conversations return `decision` from now on, as if another caller owned the conversation.
    pub fn recalls_by(&self, decision: &ReadDecision) {
        *self.recall.lock().unwrap() = Some(decision.into());
    }

    /// Ends every watch.
    pub fn hangs_up(&self) {
        *self.changes.lock().unwrap() = broadcast::Sender::new(100);
    }

    fn notify_watchers(&self, token: &str, what: What) {
        let caller = caller_of(token);
        let change = pb::ConversationChange {
            owner: caller.person().to_wire(),
            what: Some(what),
        };
        let told = pb::WatchConversationsResponse {
            changes: vec![change],
            unseen: false,
        };
        // The send fails if there are no watchers, which is fine.
        let _ = self.changes.lock().unwrap().send(told);
    }

    /// Returns the key of a conversation.
    pub fn key(&self, subject: &str, id: &str) -> String {
        let kept = self.kept.lock().unwrap();
        kept[&(subject.to_owned(), id.to_owned())].key.clone()
    }

    fn begin(&self, method: &'static str) -> Result<(), Status> {
        self.asked.push(method);
        let fails = self.next.lock().unwrap().pop_front();
        fails.map_or(Ok(()), |reason| Err(failure(reason)))
    }

    fn find(&self, token: &str, id: &str) -> Result<StoredConversation, Status> {
        let kept = self.kept.lock().unwrap();
        kept.get(&(subject(token), id.to_owned()))
            .cloned()
            .ok_or_else(unknown)
    }

    fn visible_message(&self, message: &pb::Message) -> pb::Message {
        let mut message = message.clone();
        if *self.withholds.lock().unwrap() && message.tool_call.is_some() {
            message.content.clear();
            message.withheld = true;
        }
        message
    }

    fn conversation(&self, id: &str, kept: &StoredConversation) -> pb::Conversation {
        let now = Some(self.ambient.now().into());
        pb::Conversation {
            conversation_id: id.to_owned(),
            key: kept.key.clone(),
            created_at: now,
            updated_at: now,
            messages: kept.messages.len() as u64,
            held: false,
            shared: false,
        }
    }
}

fn subject(token: &str) -> String {
    caller_of(token).subject().to_owned()
}

fn unknown() -> Status {
    failure(ErrorReason::UnknownConversation)
}

#[tonic::async_trait]
impl MemoryService for FakeMemory {
    async fn get_or_create(
        &self,
        request: Request<pb::GetOrCreateRequest>,
    ) -> Result<Response<pb::GetOrCreateResponse>, Status> {
        self.begin("get_or_create")?;
        let mut request = request.into_inner();
        let key = ConversationKey::new(&self.ambient).to_string();
        if request.conversation_id.is_empty() {
            request.conversation_id.clone_from(&key);
        }
        let id = request.conversation_id;
        let mut all = self.kept.lock().unwrap();
        let mut created = false;
        let kept = all
            .entry((subject(&request.caller_token), id.clone()))
            .or_insert_with(|| {
                created = true;
                StoredConversation {
                    key,
                    messages: Vec::new(),
                    turns: BTreeMap::new(),
                }
            });
        if created {
            self.notify_watchers(&request.caller_token, What::List(pb::ListChanged {}));
        }
        Ok(Response::new(pb::GetOrCreateResponse {
            conversation: Some(self.conversation(&id, kept)),
            created,
        }))
    }

    async fn get_context(
        &self,
        request: Request<pb::GetContextRequest>,
    ) -> Result<Response<pb::GetContextResponse>, Status> {
        self.begin("get_context")?;
        let request = request.into_inner();
        let Ok(kept) = self.find(&request.caller_token, &request.conversation_id) else {
            return Ok(Response::new(pb::GetContextResponse::default()));
        };
        let (summaries, messages): (Vec<_>, Vec<_>) = kept
            .messages
            .iter()
            .map(|message| self.visible_message(message))
            .partition(|message| message.covers_to > 0);
        let left_out = messages.len().saturating_sub(request.max_messages as usize);
        Ok(Response::new(pb::GetContextResponse {
            summary: summaries.last().cloned(),
            messages: messages[left_out..].to_vec(),
            uncovered: left_out as u64,
            key: kept.key,
        }))
    }

    async fn add_messages(
        &self,
        request: Request<pb::AddMessagesRequest>,
    ) -> Result<Response<pb::AddMessagesResponse>, Status> {
        self.begin("add_messages")?;
        let request = request.into_inner();
        self.added.push(request.clone());
        let owner = (
            subject(&request.caller_token),
            request.conversation_id.clone(),
        );
        let mut all = self.kept.lock().unwrap();
        let kept = all.get_mut(&owner).ok_or_else(unknown)?;
        kept.turns.insert(request.turn_id.clone(), request.state);
        let mut added = Vec::new();
        for mut message in request.messages {
            message.position = kept.messages.len() as u64 + 1;
            if message.message_id.is_empty() {
                message.message_id = format!("m{}", message.position);
            }
            message.turn_id.clone_from(&request.turn_id);
            message.time = Some(self.ambient.now().into());
            kept.messages.push(message.clone());
            message.content.clear();
            added.push(message);
        }
        self.notify_watchers(&request.caller_token, What::ConversationId(owner.1));
        Ok(Response::new(pb::AddMessagesResponse {
            messages: added,
            key: kept.key.clone(),
        }))
    }

    async fn get_turn(
        &self,
        request: Request<pb::GetTurnRequest>,
    ) -> Result<Response<pb::GetTurnResponse>, Status> {
        self.begin("get_turn")?;
        let request = request.into_inner();
        let kept = self.find(&request.caller_token, &request.conversation_id)?;
        let Some(state) = kept.turns.get(&request.turn_id) else {
            return Ok(Response::new(pb::GetTurnResponse::default()));
        };
        let of_turn = kept
            .messages
            .iter()
            .filter(|message| message.turn_id == request.turn_id);
        Ok(Response::new(pb::GetTurnResponse {
            state: *state,
            messages: of_turn
                .map(|message| self.visible_message(message))
                .collect(),
            key: kept.key.clone(),
        }))
    }

    async fn clear(
        &self,
        request: Request<pb::ClearRequest>,
    ) -> Result<Response<pb::ClearResponse>, Status> {
        self.begin("clear")?;
        let request = request.into_inner();
        let owner = (subject(&request.caller_token), request.conversation_id);
        let mut all = self.kept.lock().unwrap();
        let kept = all.get_mut(&owner).ok_or_else(unknown)?;
        kept.messages.clear();
        self.notify_watchers(&request.caller_token, What::ConversationId(owner.1));
        Ok(Response::new(pb::ClearResponse {
            key: kept.key.clone(),
        }))
    }

    async fn delete(
        &self,
        request: Request<pb::DeleteRequest>,
    ) -> Result<Response<pb::DeleteResponse>, Status> {
        self.begin("delete")?;
        let request = request.into_inner();
        let owner = (subject(&request.caller_token), request.conversation_id);
        let kept = self.kept.lock().unwrap().remove(&owner);
        self.notify_watchers(&request.caller_token, What::List(pb::ListChanged {}));
        Ok(Response::new(pb::DeleteResponse {
            key: kept.ok_or_else(unknown)?.key,
        }))
    }

    async fn list_conversations(
        &self,
        request: Request<pb::ListConversationsRequest>,
    ) -> Result<Response<pb::ListConversationsResponse>, Status> {
        self.begin("list_conversations")?;
        let request = request.into_inner();
        let skip = match request.page_token.as_str() {
            "" => 0,
            token => token
                .parse()
                .map_err(|_| failure(ErrorReason::InvalidMessage))?,
        };
        let subject = subject(&request.caller_token);
        let all = self.kept.lock().unwrap();
        let own: Vec<_> = all
            .iter()
            .filter(|((owner, _), _)| *owner == subject)
            .collect();
        let page = own.iter().skip(skip).take(PAGE);
        let more = own.len() > skip + PAGE;
        Ok(Response::new(pb::ListConversationsResponse {
            conversations: page
                .map(|((_, id), kept)| self.conversation(id, kept))
                .collect(),
            next_page_token: if more {
                (skip + PAGE).to_string()
            } else {
                String::new()
            },
        }))
    }

    async fn read_conversation(
        &self,
        request: Request<pb::ReadConversationRequest>,
    ) -> Result<Response<pb::ReadConversationResponse>, Status> {
        self.begin("read_conversation")?;
        let request = request.into_inner();
        let kept = self.find(&request.caller_token, &request.conversation_id)?;
        let rest = kept
            .messages
            .iter()
            .filter(|message| message.position > request.after);
        Ok(Response::new(pb::ReadConversationResponse {
            conversation: Some(self.conversation(&request.conversation_id, &kept)),
            more: rest.clone().count() > MESSAGES,
            messages: rest
                .take(MESSAGES)
                .map(|message| self.visible_message(message))
                .collect(),
            recall: self.recall.lock().unwrap().clone(),
        }))
    }

    async fn search(
        &self,
        request: Request<pb::SearchRequest>,
    ) -> Result<Response<pb::SearchResponse>, Status> {
        self.begin("search")?;
        let request = request.into_inner();
        let subject = subject(&request.caller_token);
        let mut hits = Vec::new();
        for ((owner, id), kept) in &*self.kept.lock().unwrap() {
            for message in &kept.messages {
                if *owner == subject && message.content.contains(&request.query) {
                    hits.push(pb::Hit {
                        conversation_id: id.clone(),
                        message: Some(self.visible_message(message)),
                    });
                }
            }
        }
        Ok(Response::new(pb::SearchResponse { hits }))
    }

    type WatchConversationsStream =
        BoxStream<'static, Result<pb::WatchConversationsResponse, Status>>;

    async fn watch_conversations(
        &self,
        _request: Request<pb::WatchConversationsRequest>,
    ) -> Result<Response<Self::WatchConversationsStream>, Status> {
        let begun = pb::WatchConversationsResponse {
            changes: Vec::new(),
            unseen: true,
        };
        let changes = self.changes.lock().unwrap().subscribe();
        let begins = Some(self.watches.clone());
        let rest = stream::unfold((begins, changes), |(begins, mut changes)| async {
            if let Some(watches) = begins {
                watches.push(());
            }
            let told = changes.recv().await.ok()?;
            Some((Ok(told), (None, changes)))
        });
        let all = stream::iter([Ok(begun)]).chain(rest);
        Ok(Response::new(all.boxed()))
    }

    async fn subscribe(
        &self,
        request: Request<pb::SubscribeRequest>,
    ) -> Result<Response<pb::SubscribeResponse>, Status> {
        self.begin("subscribe")?;
        let request = request.into_inner();
        let session = (subject(&request.caller_token), request.session.to_vec());
        let of = (session.0, session.1, request.conversation_id);
        self.subscribed.lock().unwrap().insert(of);
        let changed = pb::SubscriptionsChanged {};
        self.notify_watchers(&request.caller_token, What::Subscriptions(changed));
        Ok(Response::new(pb::SubscribeResponse {}))
    }

    async fn unsubscribe(
        &self,
        request: Request<pb::UnsubscribeRequest>,
    ) -> Result<Response<pb::UnsubscribeResponse>, Status> {
        self.begin("unsubscribe")?;
        let request = request.into_inner();
        let session = (subject(&request.caller_token), request.session.to_vec());
        let of = (session.0, session.1, request.conversation_id);
        self.subscribed.lock().unwrap().remove(&of);
        let changed = pb::SubscriptionsChanged {};
        self.notify_watchers(&request.caller_token, What::Subscriptions(changed));
        Ok(Response::new(pb::UnsubscribeResponse {}))
    }

    async fn list_subscriptions(
        &self,
        request: Request<pb::ListSubscriptionsRequest>,
    ) -> Result<Response<pb::ListSubscriptionsResponse>, Status> {
        self.begin("list_subscriptions")?;
        let request = request.into_inner();
        let (subject, session) = (subject(&request.caller_token), request.session.to_vec());
        let subscribed = self.subscribed.lock().unwrap();
        let own = subscribed
            .iter()
            .filter(|of| of.0 == subject && of.1 == session);
        Ok(Response::new(pb::ListSubscriptionsResponse {
            conversation_ids: own.map(|of| of.2.clone()).collect(),
        }))
    }

    async fn survey(
        &self,
        _request: Request<pb::SurveyRequest>,
    ) -> Result<Response<pb::SurveyResponse>, Status> {
        Err(Status::unimplemented("operators ask that"))
    }

    async fn erase(
        &self,
        _request: Request<pb::EraseRequest>,
    ) -> Result<Response<pb::EraseResponse>, Status> {
        Err(Status::unimplemented("operators ask that"))
    }

    async fn set_hold(
        &self,
        _request: Request<pb::SetHoldRequest>,
    ) -> Result<Response<pb::SetHoldResponse>, Status> {
        Err(Status::unimplemented("operators ask that"))
    }

    async fn list_holds(
        &self,
        _request: Request<pb::ListHoldsRequest>,
    ) -> Result<Response<pb::ListHoldsResponse>, Status> {
        Err(Status::unimplemented("operators ask that"))
    }
}
