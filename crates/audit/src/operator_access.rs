//! The record, for an operator whom the policy lets read it; and every reading on record itself, before anything is read.
//!
//! ```text
//!  token ─▶ policy: whose is it? ─▶ read_record? ── no ──▶ on record as denied ─▶ refused
//!                                       │ yes
//!                                       ▼
//!                            on record, durably ─▶ records, of the operator's tenant where they have one
//! ```

use std::time::{Duration, Instant};

use futures::future::Either;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio::time::timeout;
use wardgate_domain::{
    AdminChange, Ambient, Digest, InvalidMessage, OperatorAction, Receipt, ToolName, is_label,
};
use wardgate_rpc::client::{
    AuditFilter, DataSubjectFilter, HoldScope, IdentifiedOperator, OperatorError, OperatorRights,
    ProofSelector, QueriedRecord, RetentionProgress, RetentionStatus,
};
use wardgate_transparency::{SignedNote, TlogProof};

use crate::canonical::RecordEntry;
use crate::details::DetailsVault;
use crate::export::ExportPart;
use crate::filter::{BytesFilter, RecordFilter, parse_call_id};
use crate::record_content::RecordContent;
use crate::retention::RetentionPolicy;
use crate::store::{LegalHold, StoreReader, StoreUpkeep};
use crate::writer::AppendQueue;
use crate::{CheckpointKind, Error, MacKey, export, proof, query};

/// How often to look for records of other processes, of whose appends nobody is told here.
const IDLE: Duration = Duration::from_secs(5);

/// How long a permission to watch is taken to hold, once it was given.
const RECHECK: Duration = Duration::from_secs(1);

/// Characters of a tenant's name.
const LONGEST_TENANT: usize = 512;

/// Reads the record for operators.
pub(crate) struct OperatorAccess {
    pub(crate) rights: OperatorRights,
    pub(crate) appends: AppendQueue,
    pub(crate) reader: StoreReader,
    pub(crate) vault: DetailsVault,
    pub(crate) mac_key: MacKey,
    pub(crate) retention: RetentionPolicy,
    pub(crate) ambient: Ambient,
}

/// The tenant whose records `operator` may read; none: all. An operator without a tenant belongs to whoever runs the whole.
fn tenant_of(operator: &IdentifiedOperator) -> Option<String> {
    let tenant = operator.caller.tenant();
    (!tenant.is_empty()).then(|| tenant.to_owned())
}

/// `filter`, with data subjects of no other tenant than that of `operator`.
fn restrict(operator: &IdentifiedOperator, filter: AuditFilter) -> AuditFilter {
    let data_subject = filter
        .data_subject
        .map(|subject| restrict_subject(operator, subject));
    AuditFilter {
        data_subject,
        ..filter
    }
}

/// `subject` of the tenant of `operator`, where they have one.
fn restrict_subject(
    operator: &IdentifiedOperator,
    subject: DataSubjectFilter,
) -> DataSubjectFilter {
    DataSubjectFilter {
        tenant: tenant_of(operator).unwrap_or(subject.tenant),
        key: subject.key,
    }
}

impl OperatorAccess {
    /// The records that match, once it is on record that the holder of `token` reads them.
    pub(crate) async fn read(
        &self,
        token: &str,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        let operator = self.authorize_reading(token).await?;
        let filter = self.filter(&operator, filter)?;
        let target = self.describe(&filter);
        let receipt = self
            .put_on_record(&operator, "audit.query", &target)
            .await?;
        let filter = up_to(&receipt, filter);
        let (reader, vault) = (self.reader.clone(), Some(self.vault.clone()));
        Ok(query::run(reader, vault, filter))
    }

    /// The records that match and are yet to come, each once it is durable; where the filter has `since`, those from then on
    /// come first.
    pub(crate) async fn watch(
        &self,
        token: &str,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        refuse_bounds(&filter)?;
        let operator = self.authorize_reading(token).await?;
        let filter = self.filter(&operator, filter)?;
        let target = self.describe(&filter);
        let receipt = self
            .put_on_record(&operator, "audit.watch", &target)
            .await?;
        let (reader, vault) = (self.reader.clone(), Some(self.vault.clone()));
        let earlier = match filter.since {
            Some(_) => {
                let earlier = up_to(&receipt, filter.clone());
                Either::Left(query::run(reader.clone(), vault.clone(), earlier))
            }
            None => Either::Right(stream::empty()),
        };
        let watch = RecordWatch {
            rights: self.rights.clone(),
            token: token.to_owned(),
            reader: self.reader.clone(),
            next: receipt.sequence() + 1,
            size: self.appends.size(),
            permitted_at: Instant::now(),
        };
        let filter = RecordFilter {
            since: None,
            ..filter
        };
        let later = stream::try_unfold(watch, move |mut watch| {
            let (reader, vault, filter) = (reader.clone(), vault.clone(), filter.clone());
            async move {
                let from_sequence = watch.next;
                let Some(size) = watch.grown().await? else {
                    return Ok::<_, Error>(None);
                };
                let new = RecordFilter {
                    from_sequence,
                    before_sequence: Some(size),
                    ..filter
                };
                Ok(Some((query::pages(reader, vault, new), watch)))
            }
        });
        Ok(earlier.chain(later.try_flatten()))
    }

    /// The newest checkpoint of a kind.
    pub(crate) async fn checkpoint(
        &self,
        token: &str,
        kind: CheckpointKind,
    ) -> Result<SignedNote, Error> {
        let operator = self.authorize_reading(token).await?;
        self.put_on_record(&operator, "audit.checkpoint", describe_kind(kind))
            .await?;
        proof::newest_checkpoint(&self.reader, kind).await
    }

    /// The proof of a record by the newest checkpoint of a kind. Of a record of another tenant it says what it says of one that
    /// there is not.
    pub(crate) async fn prove(
        &self,
        token: &str,
        selector: &ProofSelector,
        kind: CheckpointKind,
    ) -> Result<TlogProof, Error> {
        let operator = self.authorize_reading(token).await?;
        let target = match selector {
            ProofSelector::Sequence(sequence) => format!("sequence={sequence}"),
            ProofSelector::Call { call_id, .. } => {
                format!("call_id={}", parse_call_id(call_id)?)
            }
        };
        self.put_on_record(&operator, "audit.proof", &target)
            .await?;
        let sequence = match selector {
            ProofSelector::Sequence(sequence) => *sequence,
            ProofSelector::Call { call_id, leaf_hash } => {
                let tenant = tenant_of(&operator);
                proof::find_of_call(&self.reader, call_id, *leaf_hash, tenant).await?
            }
        };
        let proof = proof::prove(&self.reader, sequence, kind).await?;
        let record = RecordContent::of(proof.extra.as_deref().unwrap_or_default());
        let is_theirs = |tenant: String| record.is_some_and(|record| record.is_of_tenant(&tenant));
        if tenant_of(&operator).is_none_or(is_theirs) {
            return Ok(proof);
        }
        Err(match selector {
            ProofSelector::Sequence(_) => {
                let size = proof::size_of(&proof.checkpoint)?;
                Error::NotCovered { sequence, size }
            }
            ProofSelector::Call { call_id, .. } => Error::NoSuchCall {
                call_id: call_id.clone(),
            },
        })
    }

    /// The newest checkpoint of a kind and all records that it covers.
    pub(crate) async fn export(
        &self,
        token: &str,
        kind: CheckpointKind,
    ) -> Result<
        (
            SignedNote,
            impl Stream<Item = Result<ExportPart, Error>> + Send + use<>,
        ),
        Error,
    > {
        let mut operator = self.authorize_reading(token).await?;
        self.put_on_record_of_all(&mut operator, "audit.export", describe_kind(kind))
            .await?;
        let checkpoint = proof::newest_checkpoint(&self.reader, kind).await?;
        let parts = export::parts(self.reader.clone(), &checkpoint).await?;
        Ok((checkpoint, parts))
    }

    /// What retention keeps, and what it would remove now.
    pub(crate) async fn retention(&self, token: &str) -> Result<RetentionStatus, Error> {
        let mut operator = self.authorize_reading(token).await?;
        self.put_on_record_of_all(&mut operator, "audit.retention", "all")
            .await?;
        self.retention.status().await
    }

    /// Removes what retention does not keep, as long as somebody listens.
    pub(crate) async fn apply_retention(
        &self,
        token: &str,
    ) -> Result<impl Stream<Item = Result<RetentionProgress, Error>> + Send + use<>, Error> {
        let mut operator = self.authorize_management(token).await?;
        let below = match operator.check_permitted() {
            Ok(()) => {
                let status = self.retention.status().await;
                let status =
                    self.put_failure_on_record(&operator, "audit.prune", "below=unknown", status);
                status.await?.removable_below
            }
            Err(_) => 0,
        };
        let target = format!("below={below}");
        self.put_on_record_of_all(&mut operator, "audit.prune", &target)
            .await?;
        Ok(self.retention.apply(below))
    }

    /// Sets a legal hold; by an operator of a tenant, one for that tenant.
    pub(crate) async fn set_hold(
        &self,
        token: &str,
        name: &str,
        scope: HoldScope,
    ) -> Result<(), Error> {
        check_hold_name(name)?;
        if let HoldScope::Tenant(tenant)
        | HoldScope::DataSubject(DataSubjectFilter { tenant, .. }) = &scope
        {
            check_tenant(tenant)?;
        }
        let operator = self.authorize_management(token).await?;
        let tag = |subject: &DataSubjectFilter| self.vault.key().tag(&subject.tenant, &subject.key);
        let (tenant, tag) = match scope {
            HoldScope::DataSubject(subject) => {
                let subject = restrict_subject(&operator, subject);
                let tag = tag(&subject);
                (Some(subject.tenant), Some(tag))
            }
            HoldScope::Tenant(tenant) => (Some(tenant_of(&operator).unwrap_or(tenant)), None),
            HoldScope::Whole => (tenant_of(&operator), None),
        };
        let about = match (&tenant, tag) {
            (_, Some(tag)) => format!("subject=hmac:{tag}"),
            (Some(tenant), None) => format!("tenant={tenant}"),
            (None, None) => "all".to_owned(),
        };
        let target = format!("{name} {about}");
        self.put_on_record(&operator, "audit.hold", &target).await?;
        let hold = LegalHold {
            name: name.to_owned(),
            tenant,
            tag,
            set_by: operator.caller.subject().to_owned(),
            set_in: tenant_of(&operator),
            set_at: self.ambient.now(),
        };
        let set = self.appends.keep_up(StoreUpkeep::SetHold(hold)).await;
        let done = set.and_then(|is_set| {
            let name = name.to_owned();
            is_set.then_some(()).ok_or(Error::HoldExists { name })
        });
        self.put_failure_on_record(&operator, "audit.hold", &target, done)
            .await
    }

    /// Lifts a legal hold; by an operator of a tenant, one that an operator of that tenant set.
    pub(crate) async fn lift_hold(&self, token: &str, name: &str) -> Result<(), Error> {
        check_hold_name(name)?;
        let operator = self.authorize_management(token).await?;
        self.put_on_record(&operator, "audit.lift_hold", name)
            .await?;
        let lifted = async {
            let no_hold = || Error::NoSuchHold {
                name: name.to_owned(),
            };
            let lift = StoreUpkeep::LiftHold {
                name: name.to_owned(),
                of: tenant_of(&operator),
            };
            let is_lifted = self.appends.keep_up(lift).await?;
            is_lifted.then_some(()).ok_or_else(no_hold)
        };
        let done = lifted.await;
        self.put_failure_on_record(&operator, "audit.lift_hold", name, done)
            .await
    }

    /// Destroys the key of a data subject, and with it the details of all calls that concerned them; false where there is
    /// none. Fails where a legal hold keeps it, or the details of a call that concerned them too.
    pub(crate) async fn erase(
        &self,
        token: &str,
        subject: DataSubjectFilter,
    ) -> Result<bool, Error> {
        check_tenant(&subject.tenant)?;
        let operator = self.authorize_management(token).await?;
        let subject = restrict_subject(&operator, subject);
        let tag = self.vault.key().tag(&subject.tenant, &subject.key);
        let target = format!("subject=hmac:{tag}");
        self.put_on_record(&operator, "audit.erase", &target)
            .await?;
        let erased = async {
            let tenant = subject.tenant;
            let find = async |tenant: &str| {
                let hold = self.reader.keeping_hold(tenant, tag).await?;
                hold.map_or(Ok(()), |name| Err(Error::Held { name }))
            };
            find(&tenant).await?;
            let erase = StoreUpkeep::EraseSubject {
                tenant: tenant.clone(),
                tag,
            };
            let is_erased = self.appends.keep_up(erase).await?;
            if !is_erased {
                // A hold that was set in between.
                find(&tenant).await?;
            }
            self.vault.forget(tag);
            Ok(is_erased)
        };
        let done = erased.await;
        self.put_failure_on_record(&operator, "audit.erase", &target, done)
            .await
    }

    async fn authorize_reading(&self, token: &str) -> Result<IdentifiedOperator, OperatorError> {
        self.rights.decide(token, OperatorAction::ReadRecord).await
    }

    async fn authorize_management(&self, token: &str) -> Result<IdentifiedOperator, OperatorError> {
        self.rights
            .decide(token, OperatorAction::ManageRecord)
            .await
    }

    /// Makes durable that `operator` does what concerns the records of all tenants; an operator of a tenant may not.
    async fn put_on_record_of_all(
        &self,
        operator: &mut IdentifiedOperator,
        action: &'static str,
        target: &str,
    ) -> Result<(), Error> {
        let is_of_tenant = tenant_of(operator).is_some();
        operator.decision.allowed &= !is_of_tenant;
        let recorded = self.put_on_record(operator, action, target).await;
        if is_of_tenant {
            return Err(Error::OtherTenants);
        }
        recorded.map(drop)
    }

    /// `done`; where it failed, that is on record too.
    async fn put_failure_on_record<T>(
        &self,
        operator: &IdentifiedOperator,
        action: &'static str,
        target: &str,
        done: Result<T, Error>,
    ) -> Result<T, Error> {
        if done.is_err() {
            self.append(operator, (action, target), true).await?;
        }
        done
    }

    fn filter(
        &self,
        operator: &IdentifiedOperator,
        filter: AuditFilter,
    ) -> Result<RecordFilter, Error> {
        let filter = RecordFilter::of(restrict(operator, filter), Some(self.vault.key()))?;
        Ok(RecordFilter {
            bytes: BytesFilter {
                tenant: tenant_of(operator),
                ..filter.bytes
            },
            ..filter
        })
    }

    /// Makes durable that `operator` reads `target`; fails where they may not, which is on record as well.
    async fn put_on_record(
        &self,
        operator: &IdentifiedOperator,
        action: &'static str,
        target: &str,
    ) -> Result<Receipt, Error> {
        let recorded = self.append(operator, (action, target), false).await;
        operator.check_permitted()?;
        recorded
    }

    async fn append(
        &self,
        operator: &IdentifiedOperator,
        (action, target): (&'static str, &str),
        failed: bool,
    ) -> Result<Receipt, Error> {
        let change = AdminChange {
            failed,
            ..operator.change(action, target)
        };
        let entry = RecordEntry::of_admin_change(self.ambient.now(), &change)?;
        self.appends.append(entry, false).await
    }

    /// What a filter selects, without a word that a person typed: whom it names stands there as a keyed digest, a data subject
    /// by the one that records have.
    fn describe(&self, filter: &RecordFilter) -> String {
        let subject = filter.subject.as_ref().map(|subject| {
            let digest = Digest::of(subject.as_bytes());
            format!("user=hmac:{}", self.mac_key.mac(digest))
        });
        let tool = filter.tool.as_ref().map(|tool| {
            if tool.parse::<ToolName>().is_ok() {
                format!("tool={tool}")
            } else {
                "tool=(not a tool name)".to_owned()
            }
        });
        let content = &filter.bytes.content;
        let data_subject = filter.data_subject;
        let data_subject = data_subject.map(|tag| format!("subject=hmac:{tag}"));
        let parts = [
            subject,
            tool,
            data_subject,
            filter.call_id.map(|id| format!("call_id={id}")),
            filter
                .status
                .map(|status| format!("status={}", status.as_str())),
            filter.since.map(|time| format!("since={time}")),
            filter.until.map(|time| format!("until={time}")),
            (filter.from_sequence > 0).then(|| format!("from={}", filter.from_sequence)),
            filter
                .before_sequence
                .map(|before| format!("before={before}")),
            filter.limit.map(|limit| format!("limit={limit}")),
            filter.with_details.then(|| "details".to_owned()),
            content.reason.as_ref().map(|_| "reason".to_owned()),
            content.event.as_ref().map(|event| format!("event={event}")),
            content.decision.as_ref().map(|_| "decision".to_owned()),
            content.phi.then(|| "phi".to_owned()),
            content.withheld.then(|| "withheld".to_owned()),
        ];
        let parts: Vec<String> = parts.into_iter().flatten().collect();
        if parts.is_empty() {
            return "all".to_owned();
        }
        parts.join(" ")
    }
}

/// Fails unless it is 1 to 64 lower-case letters, digits and hyphens.
fn check_hold_name(name: &str) -> Result<(), InvalidMessage> {
    if is_label(name) {
        return Ok(());
    }
    let problem = "is not 1 to 64 lower-case letters, digits and hyphens";
    Err(InvalidMessage::field("name", problem))
}

/// Fails where a text is longer than a tenant's name or has control characters, which a store may not take.
fn check_tenant(tenant: &str) -> Result<(), InvalidMessage> {
    if tenant.chars().count() <= LONGEST_TENANT && !tenant.contains(char::is_control) {
        return Ok(());
    }
    let problem = format!("is longer than {LONGEST_TENANT} characters, or has control characters");
    Err(InvalidMessage::field("tenant", problem))
}

/// `filter` for what there was before it was put on record that it is read.
fn up_to(receipt: &Receipt, filter: RecordFilter) -> RecordFilter {
    // Of a reading that goes on before some time, the bound is another one.
    if filter.before_time.is_some() {
        return filter;
    }
    let end = receipt.sequence();
    RecordFilter {
        before_sequence: Some(filter.before_sequence.map_or(end, |before| before.min(end))),
        ..filter
    }
}

fn describe_kind(kind: CheckpointKind) -> &'static str {
    match kind {
        CheckpointKind::Signed => "signed",
        CheckpointKind::Cosigned => "cosigned",
    }
}

/// Fails where a filter says how much to read, or in which order: of what is yet to come nobody knows it.
fn refuse_bounds(filter: &AuditFilter) -> Result<(), InvalidMessage> {
    let field = if filter.limit.is_some() {
        "limit"
    } else if filter.newest_first {
        "newest_first"
    } else if filter.until.is_some() {
        "until"
    } else if filter.before_sequence.is_some() || filter.before_time.is_some() {
        "before_sequence"
    } else if filter.from_sequence > 0 {
        "from_sequence"
    } else {
        return Ok(());
    };
    Err(InvalidMessage::field(
        field,
        "does not go with records that are yet to come",
    ))
}

/// A watch of the record, for as long as the policy permits it.
struct RecordWatch {
    rights: OperatorRights,
    token: String,
    reader: StoreReader,
    /// The first position that was not looked at yet.
    next: u64,
    /// How many records there are, as of the last append by this process.
    size: watch::Receiver<u64>,
    permitted_at: Instant,
}

impl RecordWatch {
    /// Waits until there are more records, and goes on behind them; how many there are, or none when the service ends.
    async fn grown(&mut self) -> Result<Option<u64>, Error> {
        loop {
            self.size.mark_unchanged();
            let size = self.reader.head().await?.size;
            if size > self.next {
                self.check_permission().await?;
                self.next = size;
                return Ok(Some(size));
            }
            // Whoever appends tells it; another process does not.
            if let Ok(Err(_)) = timeout(IDLE, self.size.changed()).await {
                return Ok(None);
            }
        }
    }

    /// No record that is yet to come is shown by a permission that was withdrawn, nor by a token that has ended, for longer
    /// than a moment.
    async fn check_permission(&mut self) -> Result<(), Error> {
        if self.permitted_at.elapsed() >= RECHECK {
            self.rights
                .decide(&self.token, OperatorAction::ReadRecord)
                .await?
                .check_permitted()?;
            self.permitted_at = Instant::now();
        }
        Ok(())
    }
}
