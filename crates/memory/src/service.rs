//! The gRPC methods: each converts the request, calls the service and converts the result.

mod conversations;
mod subscriptions;

use std::sync::Arc;
use std::time::Instant;

use futures::StreamExt;
use futures::stream::BoxStream;
use metrics::{counter, histogram};
use tonic::{Request, Response, Status};
use wardgate_domain::{
    AdminChange, Ambient, ConversationId, ConversationKey, HoldTarget, InvalidMessage, InvalidText,
};
use wardgate_proto::common::v1::ErrorReason;
use wardgate_proto::memory::v1 as pb;
use wardgate_proto::memory::v1::memory_service_server::{MemoryService, MemoryServiceServer};
use wardgate_rpc::client::{AuditClient, PolicyClient};
use wardgate_rpc::{Service, ServiceError};
use wardgate_telemetry::names;

use crate::callers::CallerCache;
use crate::change_feed::ChangeFeed;
use crate::conversation_methods::ConversationMethods;
use crate::erasure::Erasure;
use crate::maintenance::StoreMaintenance;
use crate::rights::Rights;
use crate::store::{MAX_BATCH_BYTES, MemoryStore};
use crate::{Config, Error, MasterKeys};

/// Maximum size of a request, in bytes: the largest batch and room for the other fields.
const MAX_REQUEST: usize = 2 * MAX_BATCH_BYTES;

/// Creates the memory service over the store that `config` names. The `policy` client decides on reads; the `record`
/// client receives erasures and holds. The background tasks of the service end when the server is dropped.
pub async fn service(
    config: Config,
    keys: impl Into<MasterKeys>,
    policy: PolicyClient,
    record: AuditClient,
    ambient: Ambient,
) -> Result<Service<MemoryServiceServer<impl MemoryService>>, Error> {
    let memory = MemoryHandler::start(config, keys, policy, record, ambient).await?;
    Ok(memory.serve())
}

/// The handler of the gRPC methods of the memory service.
pub(crate) struct MemoryHandler<R> {
    rights: R,
    callers: CallerCache<R>,
    conversations: ConversationMethods<R>,
    pub(crate) change_feed: Arc<ChangeFeed>,
    store: MemoryStore,
    erasure: Arc<Erasure>,
    ambient: Ambient,
    pub(crate) maintenance: Arc<StoreMaintenance>,
}

impl<R: Rights> MemoryHandler<R> {
    pub(crate) async fn start(
        config: Config,
        keys: impl Into<MasterKeys>,
        rights: R,
        record: AuditClient,
        ambient: Ambient,
    ) -> Result<Self, Error> {
        let store = MemoryStore::open(&config.store, &config.database, keys, ambient.clone())?;
        let erasure = Erasure::new(store.clone(), record, ambient.clone());
        let limits = config.limits;
        let maintenance =
            StoreMaintenance::start(config, store.clone(), erasure.clone(), ambient.clone())
                .await?;
        let change_feed = ChangeFeed::start(store.clone()).await;
        let conversations = ConversationMethods {
            store: store.clone(),
            erasure: erasure.clone(),
            rights: rights.clone(),
            ambient: ambient.clone(),
            limits,
        };
        Ok(Self {
            callers: CallerCache::new(rights.clone(), ambient.clone()),
            rights,
            conversations,
            change_feed,
            store,
            erasure,
            ambient,
            maintenance,
        })
    }

    pub(crate) fn serve(self) -> Service<MemoryServiceServer<Self>> {
        Service {
            readiness: self.maintenance.readiness(),
            local: (),
            server: MemoryServiceServer::new(self).max_decoding_message_size(MAX_REQUEST),
        }
    }

    async fn survey(&self, request: pb::SurveyRequest) -> Result<pb::SurveyResponse, Error> {
        let operator = self.rights.authorize_manager(&request.caller_token).await?;
        let named = |name: &str| if name.is_empty() { "*" } else { name }.to_owned();
        let reading = AdminChange {
            scope: format!("tenant:{}", named(&request.tenant)),
            ..operator.change("conversation.list", named(&request.subject))
        };
        let log = self.erasure.log();
        log.record_reading(&operator, reading).await?;
        let (tenant, subject) = (&request.tenant, &request.subject);
        let limit = bounded_limit(request.limit, 50, 200);
        let page = (self.store).survey(tenant, subject, limit, &request.page_token);
        let (skeletons, next_page_token) = page.await?;
        Ok(pb::SurveyResponse {
            skeletons: skeletons.into_iter().map(Into::into).collect(),
            next_page_token,
        })
    }

    async fn erase(&self, request: pb::EraseRequest) -> Result<pb::EraseResponse, Error> {
        let key: Result<ConversationKey, _> = request.key.parse();
        let key = key.map_err(|error| InvalidMessage::field("key", error.to_string()))?;
        let operator = self.rights.authorize_manager(&request.caller_token).await?;
        self.erasure.erase_for_operator(operator, key).await?;
        Ok(pb::EraseResponse {})
    }

    async fn set_hold(&self, request: pb::SetHoldRequest) -> Result<pb::SetHoldResponse, Error> {
        let missing = || InvalidMessage::field("target", "is missing");
        let target = HoldTarget::try_from(request.target.ok_or_else(missing)?)?;
        let operator = self.rights.authorize_manager(&request.caller_token).await?;
        self.erasure
            .set_hold(&operator, target, request.held)
            .await?;
        Ok(pb::SetHoldResponse {})
    }

    async fn list_holds(
        &self,
        request: pb::ListHoldsRequest,
    ) -> Result<pb::ListHoldsResponse, Error> {
        let operator = self.rights.authorize_manager(&request.caller_token).await?;
        let reading = operator.change("hold.list", "*");
        let log = self.erasure.log();
        log.record_reading(&operator, reading).await?;
        let holds = self.store.holds().await?;
        Ok(pb::ListHoldsResponse {
            holds: holds.iter().map(Into::into).collect(),
        })
    }
}

/// Limits the requested number to `maximum`; 0 stands for the default.
fn bounded_limit(requested: u32, default: u32, maximum: u32) -> u32 {
    if requested == 0 {
        default
    } else {
        requested.min(maximum)
    }
}

fn parse_conversation_id(text: &str) -> Result<ConversationId, InvalidMessage> {
    let invalid = |error: InvalidText| InvalidMessage::field("conversation_id", error.to_string());
    text.parse().map_err(invalid)
}

/// Runs the work of one request, counts its outcome and converts it to a response.
async fn answer<T>(
    method: &'static str,
    work: impl Future<Output = Result<T, Error>>,
) -> Result<Response<T>, Status> {
    let started = Instant::now();
    let answer = work.await;
    histogram!(names::MEMORY_REQUEST_SECONDS, "method" => method).record(started.elapsed());
    let outcome = match answer.as_ref().map_err(ServiceError::reason) {
        Ok(_) => "done",
        Err(ErrorReason::Internal | ErrorReason::Unavailable | ErrorReason::NotDurable) => "failed",
        Err(_) => "refused",
    };
    counter!(names::MEMORY_REQUESTS, "method" => method, "outcome" => outcome).increment(1);
    answer.map(Response::new).map_err(|error| match &error {
        Error::Invalid(message) => wardgate_rpc::invalid(message),
        Error::Database(_) | Error::Late => {
            counter!(names::MEMORY_STORE_FAILURES).increment(1);
            let cause = &error as &dyn std::error::Error;
            tracing::warn!(method, cause, "the memory store is not available");
            wardgate_rpc::status(&error)
        }
        _ => wardgate_rpc::status(&error),
    })
}

macro_rules! methods {
    ($($method:ident, $request:ident, $response:ident;)+) => {
        #[tonic::async_trait]
        impl<R: Rights> MemoryService for MemoryHandler<R> {
            type WatchConversationsStream =
                BoxStream<'static, Result<pb::WatchConversationsResponse, Status>>;

            async fn watch_conversations(
                &self,
                _: Request<pb::WatchConversationsRequest>,
            ) -> Result<Response<Self::WatchConversationsStream>, Status> {
                let watch = async { self.change_feed.watch() };
                let changes = answer("watch_conversations", watch).await?;
                Ok(changes.map(|changes| changes.map(|changes| Ok((&*changes).into())).boxed()))
            }

            $(async fn $method(
                &self,
                request: Request<pb::$request>,
            ) -> Result<Response<pb::$response>, Status> {
                answer(stringify!($method), self.$method(request.into_inner())).await
            })+
        }
    };
}

methods! {
    get_or_create, GetOrCreateRequest, GetOrCreateResponse;
    get_context, GetContextRequest, GetContextResponse;
    add_messages, AddMessagesRequest, AddMessagesResponse;
    get_turn, GetTurnRequest, GetTurnResponse;
    clear, ClearRequest, ClearResponse;
    delete, DeleteRequest, DeleteResponse;
    list_conversations, ListConversationsRequest, ListConversationsResponse;
    read_conversation, ReadConversationRequest, ReadConversationResponse;
    search, SearchRequest, SearchResponse;
    subscribe, SubscribeRequest, SubscribeResponse;
    unsubscribe, UnsubscribeRequest, UnsubscribeResponse;
    list_subscriptions, ListSubscriptionsRequest, ListSubscriptionsResponse;
    survey, SurveyRequest, SurveyResponse;
    erase, EraseRequest, EraseResponse;
    set_hold, SetHoldRequest, SetHoldResponse;
    list_holds, ListHoldsRequest, ListHoldsResponse;
}
