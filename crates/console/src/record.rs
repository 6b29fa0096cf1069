//! The record, for whom the policy lets read it; and every look at it on record itself.
//!
//! ```text
//!  look ─▶ policy: may they? ── no ──▶ on record: denied ─▶ refused
//!              │ yes
//!              ▼
//!          audit: read, what is of their tenant ─▶ on record: how many ─▶ shown
//! ```

use std::borrow::Cow;
use std::time::{Duration, Instant};

use futures::{StreamExt, pin_mut};
use serde::Deserialize;
use wardgate_domain::{
    Ambient, CallFacts, CallId, Caller, Event, Outcome, ReadDecision, Record as Entry, Status,
    Timestamp,
};
use wardgate_rpc::client::{
    AuditClient, AuditFilter, PolicyClient, QueriedRecord, RecordDamage, StoredRecord,
};

use crate::asked::Visit;
use crate::problem::Problem;

/// How a look at the record is named there.
const METHOD: &str = "record/read";

/// Where it came in.
const PROTOCOL: &str = "console";

/// How long a page of the record may take to read.
const LIMIT: Duration = Duration::from_secs(20);

/// Records looked at for one page; some of them may be of other tenants.
const MAX_LOOKED_AT: u64 = 20_000;

/// Links to where the record is, and to who decides about it.
#[derive(Debug, Clone)]
pub struct RecordLinks {
    /// The policy.
    pub policy: PolicyClient,
    /// The record.
    pub audit: AuditClient,
}

/// The record.
pub(crate) struct Record {
    links: RecordLinks,
    ambient: Ambient,
}

/// What is read at most.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Most {
    pub(crate) records: usize,
    pub(crate) bytes: usize,
}

/// What was read.
#[derive(Debug, Default)]
pub(crate) struct Read {
    pub(crate) records: Vec<StoredRecord>,
    /// What was changed or removed in the store.
    pub(crate) damaged: Vec<RecordDamage>,
    /// There may be more: everything below this sequence number.
    pub(crate) more_before: Option<u64>,
    /// The time of the first of those, where records are in the order of their time.
    pub(crate) more_before_time: Option<Timestamp>,
}

/// What of a record says whose it is.
#[derive(Deserialize)]
struct Whose<'a> {
    #[serde(borrow, default)]
    caller: Option<Of<'a>>,
    #[serde(borrow)]
    time: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Of<'a> {
    #[serde(borrow, default)]
    tenant: Cow<'a, str>,
}

impl Record {
    pub(crate) fn new(links: RecordLinks, ambient: Ambient) -> Self {
        Self { links, ambient }
    }

    /// Whether this person may read it. Puts nothing on record: nothing is read.
    pub(crate) async fn may_be_read(&self, caller: &Caller) -> Result<bool, Problem> {
        Ok(self.decision(caller).await?.allowed)
    }

    /// The newest records that match, for whom they may be shown. `asked` is what the look is for, as a digest keeps it.
    pub(crate) async fn read(
        &self,
        visit: &Visit,
        asked: &str,
        filter: AuditFilter,
        most: Most,
    ) -> Result<Read, Problem> {
        let started = Instant::now();
        let caller = &visit.caller;
        let decision = self.decision(caller).await?;
        let look = Look {
            visit,
            asked,
            decision: &decision,
            started,
        };
        if !decision.allowed {
            self.put_on_record(look.ended(Status::Denied, 0, &self.ambient))
                .await?;
            return Err(Problem::NotForYou);
        }
        let reading = self.matching(caller.tenant(), filter, most);
        let read = tokio::time::timeout(LIMIT, reading).await;
        let read = read.unwrap_or(Err(Problem::RecordAway))?;
        let rows = read.records.len() as u64;
        self.put_on_record(look.ended(Status::Ok, rows, &self.ambient))
            .await?;
        Ok(read)
    }

    async fn decision(&self, caller: &Caller) -> Result<ReadDecision, Problem> {
        let decided = self.links.policy.authorize_record(caller).await;
        decided.map_err(|error| {
            tracing::warn!(%error, "the policy does not say who may read the record");
            Problem::RecordAway
        })
    }

    /// What of the record is `tenant`'s; a caller without one belongs to whoever runs the whole, and is shown all.
    async fn matching(
        &self,
        tenant: &str,
        filter: AuditFilter,
        most: Most,
    ) -> Result<Read, Problem> {
        let away = |error| {
            tracing::warn!(%error, "the record cannot be read");
            Problem::RecordAway
        };
        let filter = AuditFilter {
            limit: Some(if tenant.is_empty() {
                most.records as u64 + 1
            } else {
                MAX_LOOKED_AT
            }),
            newest_first: true,
            ..filter
        };
        let is_by_time = filter.since.is_some() || filter.until.is_some();
        let stream = self.links.audit.query(filter).await.map_err(away)?;
        pin_mut!(stream);
        let mut read = Read::default();
        let (mut looked_at, mut bytes) = (0, 0);
        while let Some(stored) = stream.next().await {
            let stored = match stored.map_err(away)? {
                QueriedRecord::Intact(stored) => stored,
                QueriedRecord::Damaged(damage) => {
                    // Whose it was is not known any more.
                    read.damaged.push(damage);
                    continue;
                }
            };
            let sequence = stored.sequence;
            looked_at += 1;
            let whose = whose(&stored)?;
            let own = tenant.is_empty() || whose.is_of(tenant);
            let time = is_by_time.then(|| whose.time.parse().ok()).flatten();
            if own && read.more_before.is_none() {
                bytes += stored.record.len();
                let full = read.records.len() == most.records;
                if full || (bytes > most.bytes && !read.records.is_empty()) {
                    read.more_before = Some(sequence + 1);
                    read.more_before_time = time;
                } else {
                    read.records.push(stored);
                }
            }
            // Otherwise the stream is about to end: HTTP/2 holds it against us if that is not waited for.
            if read.more_before.is_some() && !tenant.is_empty() {
                break;
            }
            if looked_at == MAX_LOOKED_AT && read.more_before.is_none() {
                read.more_before = Some(sequence);
                read.more_before_time = time;
            }
        }
        Ok(read)
    }

    /// Nothing is shown that is not on record first.
    async fn put_on_record(&self, outcome: Outcome) -> Result<(), Problem> {
        let entry = Entry {
            time: self.ambient.now(),
            event: Event::Outcome(outcome),
        };
        let audit = &self.links.audit;
        let appended = match audit.append(&entry, false).await {
            Ok(receipt) => Ok(receipt),
            // What became of the first try is settled by the second.
            Err(_) => audit.append(&entry, true).await,
        };
        appended.map(drop).map_err(|error| {
            tracing::warn!(%error, "a look at the record cannot be put on record");
            Problem::RecordAway
        })
    }
}

fn whose(stored: &StoredRecord) -> Result<Whose<'_>, Problem> {
    serde_json::from_slice(&stored.record).map_err(|_| Problem::RecordAway)
}

impl Whose<'_> {
    fn is_of(&self, tenant: &str) -> bool {
        let caller = self.caller.as_ref();
        caller.is_some_and(|caller| caller.tenant == tenant)
    }
}

/// A look at the record, while it is under way.
struct Look<'a> {
    visit: &'a Visit,
    asked: &'a str,
    decision: &'a ReadDecision,
    started: Instant,
}

impl Look<'_> {
    fn ended(&self, status: Status, rows: u64, ambient: &Ambient) -> Outcome {
        let address = self.visit.token.peer();
        let address = address.map(|peer| peer.ip().to_canonical().to_string());
        let call = CallFacts::without_tool(
            CallId::new(ambient),
            &self.visit.caller,
            address.unwrap_or_default(),
            PROTOCOL,
            self.asked.as_bytes(),
        );
        let reason = if status == Status::Denied {
            "not_permitted"
        } else {
            ""
        };
        Outcome {
            call: CallFacts {
                decision_id: Some(self.decision.id),
                policy_hash: Some(self.decision.policy_hash),
                ..call.by_method(METHOD)
            },
            status,
            reason: reason.to_owned(),
            rows,
            rows_withheld: 0,
            fields_redacted: 0,
            phi: false,
            result_digest: None,
            duration: self.started.elapsed(),
        }
    }
}
