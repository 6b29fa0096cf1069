//! The policy service as it is asked, and what its answers mean.

use std::pin::Pin;
use std::sync::Mutex;

use futures::Stream;
use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wardgate_domain::{
    AttributeType, ColumnTier, ConversationKey, Decision, DecisionId, DenialReason, PermitId,
    PermitTerms, RowRule, SignedPermit, Verdict,
};
use wardgate_proto::policy::v1 as pb;
use wardgate_proto::policy::v1::policy_service_server::{PolicyService, PolicyServiceServer};
use wardgate_rpc::client::PolicyClient;
use wardgate_rpc::{Readiness, Service};

use super::*;
use crate::owner::Owner;
use crate::rights::{RequestContext, Rights};
use crate::store::CallRights;

/// Gives one answer to every question.
struct FixedPolicy {
    /// None: denied.
    terms: Option<PermitTerms>,
    asked: Arc<Mutex<Vec<String>>>,
}

impl FixedPolicy {
    fn client(self) -> PolicyClient {
        let (_, readiness) = watch::channel(Readiness::Ready);
        let server = PolicyServiceServer::new(self);
        let link = link::local(Service { server, readiness }, Peer::Memory).link;
        PolicyClient::new(link, Duration::from_secs(1))
    }
}

#[tonic::async_trait]
impl PolicyService for FixedPolicy {
    async fn authorize(
        &self,
        request: Request<pb::AuthorizeRequest>,
    ) -> Result<Response<pb::AuthorizeResponse>, Status> {
        let asked = request.into_inner().client_ip;
        self.asked.lock().unwrap().push(asked);
        let verdict = match &self.terms {
            Some(terms) => {
                let permit = pb::SignedPermit {
                    permit: prost::Message::encode_to_vec(&pb::Permit::from(terms)).into(),
                    signature: Bytes::from_static(b"not looked at"),
                };
                Verdict::Allow(SignedPermit::try_from(permit).unwrap())
            }
            None => Verdict::Deny {
                reason: DenialReason::NotPermitted,
                visible: true,
            },
        };
        let decision = Decision {
            id: DecisionId::new(&Ambient::system()),
            verdict,
            policies: Vec::new(),
            policy_hash: Digest::of(b"policies"),
        };
        Ok(Response::new(pb::AuthorizeResponse {
            decision: Some((&decision).into()),
        }))
    }

    async fn authorize_recall(
        &self,
        request: Request<pb::AuthorizeRecallRequest>,
    ) -> Result<Response<pb::AuthorizeRecallResponse>, Status> {
        let conversation = request.into_inner().conversation.unwrap();
        let asked = format!("{} {}", conversation.owner, conversation.tenant);
        self.asked.lock().unwrap().push(asked);
        Ok(Response::new(pb::AuthorizeRecallResponse {
            allowed: self.terms.is_some(),
            decision_id: DecisionId::new(&Ambient::system()).to_string(),
            policy_hash: Digest::of(b"policies").to_wire(),
        }))
    }

    async fn identify(
        &self,
        _: Request<pb::IdentifyRequest>,
    ) -> Result<Response<pb::IdentifyResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn list_visible(
        &self,
        _: Request<pb::ListVisibleRequest>,
    ) -> Result<Response<pb::ListVisibleResponse>, Status> {
        Err(Status::unimplemented("not needed here"))
    }

    async fn authorize_record(
        &self,
        _: Request<pb::AuthorizeRecordRequest>,
    ) -> Result<Response<pb::AuthorizeRecordResponse>, Status> {
        Err(Status::unimplemented("nobody here asks it"))
    }

    type WatchVersionStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchVersionResponse, Status>> + Send>>;

    async fn watch_version(
        &self,
        _: Request<pb::WatchVersionRequest>,
    ) -> Result<Response<Self::WatchVersionStream>, Status> {
        Err(Status::unimplemented("not needed here"))
    }
}

fn terms() -> PermitTerms {
    let ambient = Ambient::system();
    PermitTerms {
        id: PermitId::new(&ambient),
        decision_id: DecisionId::new(&ambient),
        caller_digest: joy().digest(),
        tool: "read".parse().unwrap(),
        definition_digest: Digest::of(b"definition"),
        arguments_digest: None,
        policy_hash: Digest::of(b"policies"),
        not_before: ambient.now(),
        expires_at: ambient.now().plus(Duration::from_mins(1)),
        row_rule: Some(RowRule {
            entity: "Record".to_owned(),
            policies_json: vec![r#"{"effect":"permit"}"#.to_owned()],
            all: false,
            attributes: BTreeMap::from([("ward".to_owned(), AttributeType::Text)]),
        }),
        column_tiers: BTreeMap::from([("phi.note".parse().unwrap(), ColumnTier::Partial)]),
    }
}

async fn call_rights(terms: Option<PermitTerms>) -> Option<CallRights> {
    let asked = Arc::default();
    let policy = FixedPolicy {
        terms,
        asked: Arc::clone(&asked),
    };
    let joy = joy();
    let context = RequestContext {
        caller: &joy,
        client_ip: "192.0.2.7",
    };
    let call = result_of("read", "{}", "").call.unwrap();
    let answer = policy
        .client()
        .of_call(context, &call.tool, call.arguments)
        .await;
    assert_eq!(*asked.lock().unwrap(), ["192.0.2.7"]);
    answer.unwrap()
}

async fn rights(change: impl FnOnce(&mut PermitTerms)) -> Digest {
    let mut terms = terms();
    change(&mut terms);
    call_rights(Some(terms)).await.unwrap().rights
}

#[tokio::test]
async fn rights_are_what_is_to_be_seen_and_nothing_else() {
    let same = rights(|_| ()).await;
    assert_eq!(
        same,
        rights(|terms| terms.policy_hash = Digest::of(b"others")).await
    );
    let rule =
        |change: fn(&mut RowRule)| rights(move |terms| change(terms.row_rule.as_mut().unwrap()));
    let others = [
        rights(|terms| terms.row_rule = None).await,
        rights(|terms| terms.column_tiers.clear()).await,
        rights(|terms| {
            let class = "phi.note".parse().unwrap();
            terms.column_tiers.insert(class, ColumnTier::Clear);
        })
        .await,
        rights(|terms| terms.arguments_digest = Some(Digest::of(b"{}"))).await,
        rule(|rule| rule.all = true).await,
        rule(|rule| rule.policies_json.clear()).await,
        rule(|rule| rule.policies_json[0].push(' ')).await,
        rule(|rule| rule.entity = "Note".to_owned()).await,
        rule(|rule| rule.attributes.clear()).await,
    ];
    for (index, other) in others.iter().enumerate() {
        assert_ne!(*other, same, "{index}");
        assert!(!others[..index].contains(other), "{index}");
    }
    assert_eq!(call_rights(None).await, None);
}

#[tokio::test]
async fn the_policy_is_asked_about_the_conversation_by_its_owner_and_tenant() {
    let owner = Owner {
        tenant: "north".to_owned(),
        issuer: "https://issuer.example".to_owned(),
        subject: "nurse.joy".to_owned(),
    };
    let key = ConversationKey::new(&Ambient::system());
    for terms in [Some(terms()), None] {
        let allowed = terms.is_some();
        let asked = Arc::default();
        let policy = FixedPolicy {
            terms,
            asked: Arc::clone(&asked),
        };
        let answer = policy.client().may_recall(&joy(), key, &owner).await;
        assert_eq!(answer.unwrap(), allowed);
        assert_eq!(*asked.lock().unwrap(), ["nurse.joy north"]);
    }
}
