//! Tests of the requests to the policy service and of its answers.

use wardgate_domain::{
    AttributeType, BundleReference, ColumnTier, ConversationKey, DecisionId, DenialReason,
    PermitId, PermitTerms, RowRule,
};
use wardgate_testkit::{FakePolicy, PolicyAnswer};

use super::*;
use crate::owner::Owner;
use crate::rights::{RequestContext, Rights};
use crate::store::CallRights;

/// Creates a policy service that allows calls on these terms, or denies all calls if there are none.
fn policy(terms: Option<PermitTerms>) -> Arc<FakePolicy> {
    let policy = FakePolicy::new(Ambient::system());
    policy.says(match terms {
        Some(terms) => PolicyAnswer::AllowOn(Box::new(terms)),
        None => PolicyAnswer::Deny {
            reason: DenialReason::NotPermitted,
            visible: true,
        },
    });
    policy
}

fn terms() -> PermitTerms {
    let ambient = Ambient::system();
    PermitTerms {
        id: PermitId::new(&ambient),
        decision_id: DecisionId::new(&ambient),
        caller_digest: joy().digest(),
        tool: "read".parse().unwrap(),
        definition_digest: Digest::compute(b"definition"),
        arguments_digest: None,
        policy_hash: Digest::compute(b"policies"),
        bundle: None,
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
    let policy = policy(terms);
    let joy = joy();
    let context = RequestContext {
        caller: &joy,
        client_ip: "192.0.2.7",
    };
    let call = result_of("read", "{}", "").call.unwrap();
    let answer = policy
        .client(Peer::Memory)
        .of_call(context, &call.tool, call.arguments)
        .await;
    let asked = policy.asked.entries();
    let asked: Vec<_> = asked.iter().map(|one| one.client_ip.as_str()).collect();
    assert_eq!(asked, ["192.0.2.7"]);
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
        rights(|terms| terms.policy_hash = Digest::compute(b"others")).await
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
        rights(|terms| terms.arguments_digest = Some(Digest::compute(b"{}"))).await,
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
    let bundle = BundleReference {
        version: 7,
        digest: Digest::compute(b"bundle"),
    };
    for terms in [Some(terms()), None] {
        let allowed = terms.is_some();
        let policy = policy(terms);
        policy.change_bundle(bundle);
        let client = policy.client(Peer::Memory);
        let answer = client.may_recall(&joy(), key, &owner).await;
        let decision = answer.unwrap();
        assert_eq!(decision.is_some(), allowed);
        assert!(decision.is_none_or(|it| it.bundle == Some(bundle)));
        let [recalled] = &policy.recalled.entries()[..] else {
            panic!("{:?}", policy.recalled.entries());
        };
        let conversation = recalled.conversation.as_ref().unwrap();
        let asked = (conversation.owner.as_str(), conversation.tenant.as_str());
        assert_eq!(asked, ("nurse.joy", "north"));
    }
}
