//! Tests of requests for approvals.

use super::*;
use crate::store::{ApprovalState, NewApprovalRequest, StoredApproval};
use wardgate_domain::{ApprovalId, Timestamp};

const QUARTER: Duration = Duration::from_mins(15);

fn manager() -> Digest {
    Digest::compute(b"manager")
}

fn auditor() -> Digest {
    Digest::compute(b"auditor")
}

async fn request(two: &TwoReplicas, store: &Store, call: &[u8]) -> Option<StoredApproval> {
    let request = NewApprovalRequest {
        call: Digest::compute(call),
        id: ApprovalId::new(&two.clock.ambient()),
        owner: owner(),
        approvers: &[manager(), auditor()],
        sealed: call,
        expires_at: until(two),
    };
    store.request_approval(request).await.unwrap()
}

fn until(two: &TwoReplicas) -> Timestamp {
    two.one.now().plus(QUARTER)
}

async fn list_ids(store: &Store, approver: Digest) -> Vec<ApprovalId> {
    let listed = store.list_approvals(approver).await.unwrap();
    listed.into_iter().map(|it| it.id).collect()
}

#[tokio::test]
async fn a_call_that_is_repeated_finds_its_request_at_any_replica() {
    for two in each().await {
        let (first, second) = tokio::join!(
            request(&two, &two.one, b"call"),
            request(&two, &two.other, b"call")
        );
        let first = first.unwrap();
        assert_eq!(Some(&first), second.as_ref());
        assert_eq!(first.state, ApprovalState::Pending);
        assert_eq!(first.sealed, b"call");
        assert_eq!(first.expires_at, until(&two));
        let other = request(&two, &two.one, b"other call").await.unwrap();
        assert_ne!(other.id, first.id);
        assert_eq!(
            two.other.find_approval(first.id).await.unwrap(),
            Some(first.clone())
        );
        for approver in [manager(), auditor()] {
            assert_eq!(list_ids(&two.other, approver).await.len(), 2);
        }
        assert_eq!(list_ids(&two.one, Digest::compute(b"teller")).await, []);
    }
}

#[tokio::test]
async fn a_request_is_decided_once() {
    for two in each().await {
        let id = request(&two, &two.one, b"call").await.unwrap().id;
        let (approved, refused) = tokio::join!(
            two.one.decide_approval(id, Some(b"yes"), until(&two)),
            two.other.decide_approval(id, None, until(&two))
        );
        let (approved, refused) = (approved.unwrap(), refused.unwrap());
        assert!(approved ^ refused, "{approved} {refused}");
        let found = two.one.find_approval(id).await.unwrap().unwrap();
        let expected = if approved {
            ApprovalState::Approved(b"yes".to_vec())
        } else {
            ApprovalState::Refused
        };
        assert_eq!(found.state, expected);
        assert_eq!(list_ids(&two.one, manager()).await, []);
        assert!(
            !two.one
                .decide_approval(id, Some(b"yes"), until(&two))
                .await
                .unwrap()
        );
    }
}

#[tokio::test]
async fn an_approval_is_used_once_however_many_replicas_try() {
    for two in each().await {
        let id = request(&two, &two.one, b"call").await.unwrap().id;
        assert!(!two.one.use_approval(id).await.unwrap(), "nobody decided");
        let decided = two.other.decide_approval(id, Some(b"yes"), until(&two));
        assert!(decided.await.unwrap());
        let uses = (0..8).map(|number| {
            let store = if number % 2 == 0 {
                &two.one
            } else {
                &two.other
            };
            store.use_approval(id)
        });
        let used: Vec<_> = join_all(uses).await;
        let used = used.into_iter().filter(|used| *used.as_ref().unwrap());
        assert_eq!(used.count(), 1);
        assert_eq!(two.one.find_approval(id).await.unwrap(), None);
        // After the approval was used, the same call needs a new one.
        let next = request(&two, &two.one, b"call").await.unwrap();
        assert_ne!(next.id, id);
        assert_eq!(next.state, ApprovalState::Pending);
        assert!(!two.one.use_approval(id).await.unwrap());
    }
}

#[tokio::test]
async fn a_refusal_stands_and_everything_ends_when_it_expires() {
    for two in each().await {
        let refused = request(&two, &two.one, b"refused").await.unwrap().id;
        let approved = request(&two, &two.one, b"approved").await.unwrap().id;
        let pending = request(&two, &two.one, b"pending").await.unwrap().id;
        two.one
            .decide_approval(refused, None, until(&two))
            .await
            .unwrap();
        let decided = two.one.decide_approval(approved, Some(b"yes"), until(&two));
        assert!(decided.await.unwrap());
        let again = request(&two, &two.one, b"refused").await.unwrap();
        assert_eq!((again.id, again.state), (refused, ApprovalState::Refused));
        two.clock.advance(QUARTER);
        assert!(!two.one.use_approval(approved).await.unwrap());
        let late = two.one.decide_approval(pending, Some(b"yes"), until(&two));
        assert!(!late.await.unwrap());
        for id in [refused, approved, pending] {
            assert_eq!(two.one.find_approval(id).await.unwrap(), None);
        }
        let anew = request(&two, &two.one, b"refused").await.unwrap();
        assert_eq!(anew.state, ApprovalState::Pending);
        two.one.sweep().await.unwrap();
        let kept = two.database.number("SELECT count(*) FROM gateway.approval");
        assert_eq!(kept.await, 1);
    }
}

#[tokio::test]
async fn one_person_has_so_many_requests_that_were_not_used() {
    for two in each().await {
        for number in 0..32_u8 {
            assert!(request(&two, &two.one, &[number]).await.is_some());
        }
        assert_eq!(request(&two, &two.other, b"one more").await, None);
        let first = request(&two, &two.other, &[0]).await.unwrap();
        // A decision frees no place, because a caller could otherwise approve their own calls again and again.
        let decided = two
            .one
            .decide_approval(first.id, Some(b"approval"), until(&two));
        assert!(decided.await.unwrap());
        assert_eq!(request(&two, &two.other, b"one more").await, None);
        assert!(two.other.use_approval(first.id).await.unwrap());
        assert!(request(&two, &two.other, b"one more").await.is_some());
    }
}
