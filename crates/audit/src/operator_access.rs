//! Access to the audit log for operators. The policy decides each access, which is recorded before a record is returned.
//!
//! ```text
//!  token ─▶ policy: who is it? ─▶ read_record? ── no ──▶ recorded as denied ─▶ refused
//!                                      │ yes
//!                                      ▼
//!                          recorded, durably ─▶ records, only of the operator's tenant if the operator has one
//! ```

use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::Either;
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::sync::watch;
use tokio::time::timeout;
use wardgate_domain::{
    AdminChange, Ambient, Digest, InvalidMessage, OperatorAction, Receipt, ToolName, UNKNOWN_NAME,
    is_label,
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
use crate::query::{self, IndexCorruption};
use crate::record_content::RecordContent;
use crate::retention::RetentionPolicy;
use crate::store::{LegalHold, PageBounds, StoreReader, StoreUpkeep};
use crate::writer::AppendQueue;
use crate::{CheckpointKind, Error, MacKey, export, proof};

/// Interval between checks for records of other processes, whose appends do not notify this one.
const IDLE: Duration = Duration::from_secs(5);

/// Time for which a permission to watch is valid before it is checked again.
const RECHECK: Duration = Duration::from_secs(1);

/// Number of the newest records of a tool among which one must be readable for the operator, so that an access records its name.
const NAME_SEARCH: u64 = 64;

/// Maximum length of the name of a tenant, in characters.
const LONGEST_TENANT: usize = 512;

/// Gives operators access to the audit log.
pub(crate) struct OperatorAccess {
    pub(crate) rights: OperatorRights,
    pub(crate) appends: AppendQueue,
    pub(crate) reader: StoreReader,
    pub(crate) vault: Arc<DetailsVault>,
    pub(crate) mac_key: MacKey,
    pub(crate) retention: RetentionPolicy,
    pub(crate) ambient: Ambient,
}

/// Returns the tenant whose records `operator` may read, or `None` for all records. An operator without a tenant may read the
/// records of all tenants.
fn tenant_of(operator: &IdentifiedOperator) -> Option<String> {
    let tenant = operator.caller.tenant();
    (!tenant.is_empty()).then(|| tenant.to_owned())
}

/// Returns `filter` with its data subject restricted to the tenant of `operator`.
fn restrict(operator: &IdentifiedOperator, filter: AuditFilter) -> AuditFilter {
    let data_subject = filter
        .data_subject
        .map(|subject| restrict_subject(operator, subject));
    AuditFilter {
        data_subject,
        ..filter
    }
}

/// Returns `subject`, in the tenant of `operator` if the operator has one.
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
    /// Returns the records that match, after recording that the holder of `token` reads them.
    pub(crate) async fn read_records(
        &self,
        token: &str,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        let operator = self.authorize_reading(token).await?;
        let filter = self.filter(&operator, filter)?;
        let target = self.describe(&operator, &filter).await;
        let receipt = self
            .put_on_record(&operator, "audit.query", &target)
            .await?;
        let filter = up_to(&receipt, filter);
        let (reader, vault) = (self.reader.clone(), Some(self.vault.clone()));
        Ok(query::run(
            reader,
            vault,
            filter,
            IndexCorruption::default(),
        ))
    }

    /// Returns the new records that match, each once it is durable. If the filter has `since`, the stream begins with the
    /// existing records from that time on.
    pub(crate) async fn watch(
        &self,
        token: &str,
        filter: AuditFilter,
    ) -> Result<impl Stream<Item = Result<QueriedRecord, Error>> + Send + use<>, Error> {
        refuse_bounds(&filter)?;
        let operator = self.authorize_reading(token).await?;
        let filter = self.filter(&operator, filter)?;
        let target = self.describe(&operator, &filter).await;
        let receipt = self
            .put_on_record(&operator, "audit.watch", &target)
            .await?;
        let (reader, vault) = (self.reader.clone(), Some(self.vault.clone()));
        let corruption = IndexCorruption::default();
        let earlier = match filter.since {
            Some(_) => {
                let earlier = up_to(&receipt, filter.clone());
                Either::Left(query::run(
                    reader.clone(),
                    vault.clone(),
                    earlier,
                    corruption.clone(),
                ))
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
            let corruption = corruption.clone();
            async move {
                let from_sequence = watch.next;
                let Some(size) = watch.wait_for_records().await? else {
                    return Ok::<_, Error>(None);
                };
                let new = RecordFilter {
                    from_sequence,
                    before_sequence: Some(size),
                    ..filter
                };
                let pages = query::pages(reader, vault, new, corruption);
                Ok(Some((pages, watch)))
            }
        });
        Ok(earlier.chain(later.try_flatten()))
    }

    /// Returns the newest checkpoint of `kind`.
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

    /// Returns the proof of a record by the newest checkpoint of `kind`. A record of another tenant leads to the same error as
    /// a record that does not exist.
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
        let record = RecordContent::parse(proof.extra.as_deref().unwrap_or_default());
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

    /// Returns the newest checkpoint of `kind` and all records that it covers.
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

    /// Returns what retention keeps, and what it would remove now.
    pub(crate) async fn retention(&self, token: &str) -> Result<RetentionStatus, Error> {
        let mut operator = self.authorize_reading(token).await?;
        self.put_on_record_of_all(&mut operator, "audit.retention", "all")
            .await?;
        self.retention.status().await
    }

    /// Removes the records that retention does not keep, until the returned stream is dropped.
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

    /// Sets a legal hold. An operator of a tenant can set holds only in that tenant.
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
        let tag =
            |subject: &DataSubjectFilter| self.vault.tags().tag(&subject.tenant, &subject.key);
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

    /// Lifts a legal hold. An operator of a tenant can lift only a hold that an operator of that tenant set.
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

    /// Destroys the key of a data subject, which erases the details of all calls that concerned the data subject. Returns
    /// `false` if there is no key. Fails if a legal hold protects the key, or protects the details of a call that also
    /// concerned this data subject.
    pub(crate) async fn erase(
        &self,
        token: &str,
        subject: DataSubjectFilter,
    ) -> Result<bool, Error> {
        check_tenant(&subject.tenant)?;
        let operator = self.authorize_management(token).await?;
        let subject = restrict_subject(&operator, subject);
        let tag = self.vault.tags().tag(&subject.tenant, &subject.key);
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
                // A hold may have been set since the first check.
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

    /// Records durably an action that concerns the records of all tenants. Fails if the operator belongs to a tenant, and
    /// records the action as denied in that case.
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

    /// Returns `done`. If it is an error, the failure is recorded too.
    async fn put_failure_on_record<T>(
        &self,
        operator: &IdentifiedOperator,
        action: &'static str,
        target: &str,
        done: Result<T, Error>,
    ) -> Result<T, Error> {
        if done.is_err() {
            self.append(operator, action, target, true).await?;
        }
        done
    }

    fn filter(
        &self,
        operator: &IdentifiedOperator,
        filter: AuditFilter,
    ) -> Result<RecordFilter, Error> {
        let filter = RecordFilter::new(restrict(operator, filter), Some(self.vault.tags()))?;
        Ok(RecordFilter {
            bytes: BytesFilter {
                tenant: tenant_of(operator),
                ..filter.bytes
            },
            ..filter
        })
    }

    /// Records durably that `operator` performs `action` on `target`. Fails if the operator lacks permission, which is recorded
    /// too.
    async fn put_on_record(
        &self,
        operator: &IdentifiedOperator,
        action: &'static str,
        target: &str,
    ) -> Result<Receipt, Error> {
        let recorded = self.append(operator, action, target, false).await;
        operator.check_permitted()?;
        recorded
    }

    async fn append(
        &self,
        operator: &IdentifiedOperator,
        action: &'static str,
        target: &str,
        failed: bool,
    ) -> Result<Receipt, Error> {
        let change = AdminChange {
            failed,
            ..operator.change(action, target)
        };
        let entry = RecordEntry::of_admin_change(self.ambient.now(), &change)?;
        self.appends.append(entry, false).await
    }

    /// Returns the tool, or the key of a conversation, that `filter` selects, as the access of `operator` is recorded: in clear
    /// if records that the operator may read contain it, and otherwise as [`UNKNOWN_NAME`], because a person may type anything
    /// as a name, even personal data. Without permission, or if the store cannot be read, it is unknown.
    async fn recorded_name<'a>(
        &self,
        operator: &IdentifiedOperator,
        filter: &'a RecordFilter,
    ) -> Option<&'a str> {
        let name = filter.tool.as_deref()?;
        let may_search = name.parse::<ToolName>().is_ok() && operator.check_permitted().is_ok();
        let is_known = may_search
            && self
                .is_on_record(name, filter.bytes.tenant.as_deref())
                .await;
        Some(if is_known { name } else { UNKNOWN_NAME })
    }

    /// Returns whether one of the newest records of the tool `name` is of `tenant`, or of any tenant if `tenant` is `None`. The
    /// search reads an index, and at most [`NAME_SEARCH`] records.
    async fn is_on_record(&self, name: &str, tenant: Option<&str>) -> bool {
        let filter = RecordFilter {
            tool: Some(name.to_owned()),
            ..RecordFilter::default()
        };
        let newest = PageBounds {
            range: 0..u64::MAX,
            after: None,
            limit: NAME_SEARCH,
            newest_first: true,
        };
        let Ok(found) = self.reader.page(&filter, &newest).await else {
            return false;
        };
        found.records.iter().flatten().any(|row| {
            let content = || RecordContent::parse(&row.canonical);
            tenant.is_none_or(|tenant| content().is_some_and(|it| it.is_of_tenant(tenant)))
        })
    }

    /// Describes what a filter selects, without any text that a person typed. The user is represented by a keyed digest, a data
    /// subject by the tag that records contain, and a tool by [`Self::recorded_name`].
    async fn describe(&self, operator: &IdentifiedOperator, filter: &RecordFilter) -> String {
        let subject = filter.subject.as_ref().map(|subject| {
            let digest = Digest::compute(subject.as_bytes());
            format!("user=hmac:{}", self.mac_key.mac(digest))
        });
        let tool = self.recorded_name(operator, filter).await;
        let tool = tool.map(|name| format!("tool={name}"));
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

/// Fails unless the name consists of 1 to 64 lower-case letters, digits and hyphens.
fn check_hold_name(name: &str) -> Result<(), InvalidMessage> {
    if is_label(name) {
        return Ok(());
    }
    let problem = "is not 1 to 64 lower-case letters, digits and hyphens";
    Err(InvalidMessage::field("name", problem))
}

/// Fails if the name of a tenant is too long or contains control characters, which a store may refuse.
fn check_tenant(tenant: &str) -> Result<(), InvalidMessage> {
    if tenant.chars().count() <= LONGEST_TENANT && !tenant.contains(char::is_control) {
        return Ok(());
    }
    let problem =
        format!("is longer than {LONGEST_TENANT} characters, or contains control characters");
    Err(InvalidMessage::field("tenant", problem))
}

/// Restricts `filter` to the records before `receipt`, which is the receipt for the record of this access.
fn up_to(receipt: &Receipt, filter: RecordFilter) -> RecordFilter {
    // In a query that continues before a time, `before_sequence` is part of that position.
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

/// Fails if a filter limits or orders the records, which is not possible for records that do not exist yet.
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
        "is not supported for records that do not exist yet",
    ))
}

/// A watch for new records, for as long as the policy permits it.
struct RecordWatch {
    rights: OperatorRights,
    token: String,
    reader: StoreReader,
    /// The first sequence number that was not read yet.
    next: u64,
    /// The number of records after the last append of this process.
    size: watch::Receiver<u64>,
    permitted_at: Instant,
}

impl RecordWatch {
    /// Waits until there are new records, and continues after them. Returns the number of records, or `None` if the service
    /// shuts down.
    async fn wait_for_records(&mut self) -> Result<Option<u64>, Error> {
        loop {
            self.size.mark_unchanged();
            let size = self.reader.head().await?.size;
            if size > self.next {
                self.check_permission().await?;
                self.next = size;
                return Ok(Some(size));
            }
            // Appends of this process notify the receiver. Those of other processes are found after the timeout.
            if let Ok(Err(_)) = timeout(IDLE, self.size.changed()).await {
                return Ok(None);
            }
        }
    }

    /// Checks the permission again if the last check is too long ago, so that a withdrawn permission or an expired token ends
    /// the watch within [`RECHECK`].
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
