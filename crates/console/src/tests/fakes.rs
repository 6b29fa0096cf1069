//! A gateway, an agent, a policy and a record, each in memory, which note what they are asked.

use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::Path;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use futures::{Stream, stream};
use http::{HeaderMap, StatusCode};
use serde_json::{Value, json};
use tokio::sync::watch;
use tonic::{Request, Response as Reply, Status};
use wardgate_domain::{Ambient, DecisionId, Digest};
use wardgate_proto::audit::v1 as audit;
use wardgate_proto::audit::v1::audit_service_server::{AuditService, AuditServiceServer};
use wardgate_proto::policy::v1 as policy;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use wardgate_rpc::client::{AuditClient, PolicyClient};
use wardgate_rpc::{Peer, Readiness, Service, link};

use crate::RecordLinks;

/// What the gateway gives, and what it was asked.
#[derive(Clone, Default)]
pub(crate) struct FakeGateway(Arc<Mutex<FakeGatewayState>>);

#[derive(Default)]
struct FakeGatewayState {
    tools: Vec<Value>,
    answer: Value,
    status: Option<StatusCode>,
    requests: Vec<(HeaderMap, Value)>,
    said: Vec<String>,
}

impl FakeGateway {
    pub(crate) fn has(&self, tool: Value) {
        self.0.lock().unwrap().tools.push(tool);
    }

    /// The `result` or `error` of the next calls.
    pub(crate) fn answers(&self, answer: Value) {
        self.0.lock().unwrap().answer = answer;
    }

    pub(crate) fn fails_with(&self, status: StatusCode) {
        self.0.lock().unwrap().status = Some(status);
    }

    /// The calls of tools.
    pub(crate) fn calls(&self) -> Vec<(HeaderMap, Value)> {
        let gateway = self.0.lock().unwrap();
        let calls = gateway
            .requests
            .iter()
            .filter(|(_, body)| body["method"] == "tools/call");
        calls.cloned().collect()
    }

    /// What the agent was told.
    pub(crate) fn said(&self) -> Vec<String> {
        self.0.lock().unwrap().said.clone()
    }

    pub(crate) fn router(&self) -> Router {
        let here = self.clone();
        let answer =
            move |headers: HeaderMap, body: Bytes| async move { here.answer(headers, &body) };
        Router::new().route("/mcp", post(answer))
    }

    fn answer(&self, headers: HeaderMap, body: &[u8]) -> Response {
        let body: Value = serde_json::from_slice(body).unwrap();
        let mut gateway = self.0.lock().unwrap();
        gateway.requests.push((headers, body.clone()));
        if let Some(status) = gateway.status {
            return status.into_response();
        }
        let mut answer = match body["method"].as_str() {
            Some("tools/list") => json!({ "result": { "tools": gateway.tools } }),
            _ => gateway.answer.clone(),
        };
        answer["jsonrpc"] = json!("2.0");
        answer["id"] = body["id"].clone();
        ([("content-type", "application/json")], answer.to_string()).into_response()
    }

    pub(crate) fn agent(&self) -> Router {
        let answer = |body: String, here: &Self| {
            here.0.lock().unwrap().said.push(body);
            let headers = [("content-type", "application/x-ndjson"), ("x-secret", "s")];
            (headers, "{}\n").into_response()
        };
        let (chat, decisions) = (self.clone(), self.clone());
        let message = move |body: String| async move { answer(body, &chat) };
        let decide = move |Path(id): Path<String>, body: String| async move {
            answer(format!("{id}: {body}"), &decisions)
        };
        let models =
            json!({ "data": [{ "id": "clinic", "wardgate": { "missing": ["LLM_BASE_URL"] } }] });
        Router::new()
            .route("/api/chat/message/", post(message))
            .route("/api/chat/approvals/{id}", post(decide))
            .route("/v1/models", get(|| async move { models.to_string() }))
    }
}

/// The record and who may read it, in one.
#[derive(Clone, Default)]
pub(crate) struct FakeRecord(Arc<Mutex<FakeRecordState>>);

#[derive(Default)]
struct FakeRecordState {
    /// Who may read it.
    readers: Vec<String>,
    /// Who may read what they did themselves.
    own_readers: Vec<String>,
    stored: Vec<Value>,
    appended: Vec<audit::Outcome>,
    fails: bool,
}

impl FakeRecord {
    pub(crate) fn lets(&self, subject: &str) {
        self.0.lock().unwrap().readers.push(subject.to_owned());
    }

    pub(crate) fn lets_own(&self, subject: &str) {
        self.0.lock().unwrap().own_readers.push(subject.to_owned());
    }

    pub(crate) fn holds(&self, record: Value) {
        self.0.lock().unwrap().stored.push(record);
    }

    /// Nothing is stored any more.
    pub(crate) fn breaks(&self) {
        self.0.lock().unwrap().fails = true;
    }

    /// The looks that are on record.
    pub(crate) fn looks(&self) -> Vec<audit::Outcome> {
        self.0.lock().unwrap().appended.clone()
    }

    pub(crate) fn links(&self) -> RecordLinks {
        let (_, readiness) = watch::channel(Readiness::Ready);
        let policy = Service {
            server: PolicyServiceServer::new(self.clone()),
            readiness: readiness.clone(),
        };
        let audit = Service {
            server: AuditServiceServer::new(self.clone()),
            readiness,
        };
        let limit = Duration::from_secs(5);
        RecordLinks {
            policy: PolicyClient::new(link::local(policy, Peer::Console).link, limit),
            audit: AuditClient::new(link::local(audit, Peer::Console).link, limit),
        }
    }
}

type ResponseStream<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

#[tonic::async_trait]
impl AuditService for FakeRecord {
    async fn append(
        &self,
        request: Request<audit::AppendRequest>,
    ) -> Result<Reply<audit::AppendResponse>, Status> {
        let mut record = self.0.lock().unwrap();
        if record.fails {
            return Err(Status::unavailable("the disk is full"));
        }
        let event = request.into_inner().record.unwrap().event;
        let Some(audit::record::Event::Outcome(outcome)) = event else {
            return Err(Status::invalid_argument("no outcome"));
        };
        record.appended.push(outcome);
        Ok(Reply::new(audit::AppendResponse {
            receipt: Some(audit::Receipt {
                sequence: 99,
                leaf_hash: Digest::of(b"").to_wire(),
            }),
        }))
    }

    type QueryStream = ResponseStream<audit::QueryResponse>;

    /// Newest first, by sequence and subject alone.
    async fn query(
        &self,
        request: Request<audit::QueryRequest>,
    ) -> Result<Reply<Self::QueryStream>, Status> {
        let query = request.into_inner();
        let before = if query.before_sequence == 0 {
            u64::MAX
        } else {
            query.before_sequence
        };
        let record = self.0.lock().unwrap();
        let stored = record
            .stored
            .iter()
            .enumerate()
            .rev()
            .map(|(at, it)| (at as u64, it));
        let matching = stored
            .filter(|(at, _)| (query.from_sequence..before).contains(at))
            .filter(|(_, it)| {
                query.subject.is_empty() || it["caller"]["subject"] == json!(query.subject)
            })
            .take(usize::try_from(query.limit).unwrap())
            .map(|(sequence, record)| {
                let record = record.to_string();
                Ok(audit::QueryResponse {
                    sequence,
                    leaf_hash: Digest::of(record.as_bytes()).to_wire(),
                    record: record.into(),
                    damage: String::new(),
                })
            });
        let matching: Vec<_> = matching.collect();
        Ok(Reply::new(Box::pin(stream::iter(matching))))
    }
}

/// Whose `token` is. The console has verified it by then.
fn subject_of(token: &str) -> String {
    let claims = URL_SAFE_NO_PAD
        .decode(token.split('.').nth(1).unwrap())
        .unwrap();
    let claims: Value = serde_json::from_slice(&claims).unwrap();
    claims["sub"].as_str().unwrap().to_owned()
}

#[tonic::async_trait]
impl PolicyService for FakeRecord {
    async fn identify(
        &self,
        _: Request<policy::IdentifyRequest>,
    ) -> Result<Reply<policy::IdentifyResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize(
        &self,
        _: Request<policy::AuthorizeRequest>,
    ) -> Result<Reply<policy::AuthorizeResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn list_visible(
        &self,
        _: Request<policy::ListVisibleRequest>,
    ) -> Result<Reply<policy::ListVisibleResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize_recall(
        &self,
        _: Request<policy::AuthorizeRecallRequest>,
    ) -> Result<Reply<policy::AuthorizeRecallResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    async fn authorize_record(
        &self,
        request: Request<policy::AuthorizeRecordRequest>,
    ) -> Result<Reply<policy::AuthorizeRecordResponse>, Status> {
        let request = request.into_inner();
        let scope = request.scope();
        let subject = subject_of(&request.caller_token);
        let record = self.0.lock().unwrap();
        let readers = match scope {
            policy::RecordScope::All => &record.readers,
            policy::RecordScope::Own => &record.own_readers,
            policy::RecordScope::Unspecified => return Err(Status::invalid_argument("scope")),
        };
        Ok(Reply::new(policy::AuthorizeRecordResponse {
            allowed: readers.contains(&subject),
            decision_id: DecisionId::new(&Ambient::system()).to_string(),
            policy_hash: Digest::of(b"").to_wire(),
        }))
    }

    type WatchVersionStream = ResponseStream<policy::WatchVersionResponse>;

    async fn watch_version(
        &self,
        _: Request<policy::WatchVersionRequest>,
    ) -> Result<Reply<Self::WatchVersionStream>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }
}
