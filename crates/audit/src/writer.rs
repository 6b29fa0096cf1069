//! Group commit: one task writes all waiting records in one transaction, and then responds to all of them.
//!
//! ```text
//!   append ─┐                                          ┌─ receipt
//!   append ─┼▶ queue ─▶ one batch ─▶ its second copy ──┼─ receipt      batch n+1 gathers while batch n is flushed
//!   append ─┘                         if configured    └─ receipt
//! ```
//!
//! The tree grows in the transaction of a batch, so that its growth costs no flush of its own while records arrive.
//!
//! The writer fails closed: when the store fails, or takes longer than the measured limit, all waiting and all further appends
//! fail at once, until a write has succeeded.

use std::collections::{HashMap, HashSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{MissedTickBehavior, interval, sleep_until, timeout};
use wardgate_domain::Receipt;
use wardgate_rpc::{LatencyLimit, Readiness};
use wardgate_telemetry::names;
use wardgate_transparency::Hash;

use crate::Error;
use crate::canonical::RecordEntry;
use crate::recent_leaves::RecentLeaves;
use crate::second_copy::SecondCopy;
use crate::store::{
    Address, AppendError, AppendResult, LONGEST_WRITE, MAX_BATCH, NewSubjectKey, StoreUpkeep,
    StoreWriter, StoredEntry, TreeGrowth, WRITE_LIMIT, open_error,
};
use crate::store_health::StoreHealth;

/// Maximum number of waiting records. Further appends fail at once.
const QUEUE: usize = 4_096;

/// Time that an append may wait in addition to the time limit of a write, for its turn and for its answer. After that the
/// append fails, so that the result of a call is withheld rather than late.
const APPEND_MARGIN: Duration = Duration::from_millis(100);

/// Number of writes that measure the latency of the store before the first record.
const FIRST_PROBES: usize = 3;

/// Maximum time that the growth of the tree waits for records with which it shares a transaction.
const GROWTH_WAIT: Duration = Duration::from_millis(20);

/// Maximum number of retries of a batch because some of its records are stored already. After that, the store counts as failed.
const MAX_COLLISIONS: u32 = 3;

/// Interval between two probes of a failed store.
const PROBE_INTERVAL: Duration = Duration::from_millis(250);

/// Time without writes after which the store is probed, so that the readiness is up to date.
const PROBE_WHEN_IDLE: Duration = Duration::from_secs(5);

/// The queue to the writer, which is cheap to clone. The writer ends when the last clone is dropped.
#[derive(Debug, Clone)]
pub(crate) struct AppendQueue {
    queue: mpsc::Sender<WriterJob>,
    readiness: watch::Receiver<Readiness>,
    size: watch::Receiver<u64>,
    leaves: Arc<Mutex<RecentLeaves>>,
    write_limit: Arc<LatencyLimit>,
}

impl AppendQueue {
    /// Stores `entry`, and returns once it is durable. With `retry`, an entry that is stored already is not stored again.
    pub(crate) async fn append(&self, entry: RecordEntry, retry: bool) -> Result<Receipt, Error> {
        if !self.readiness.borrow().is_ready() {
            return Err(Error::NotDurable);
        }
        let (answer, answered) = oneshot::channel();
        let waiting = PendingAppend {
            entry,
            retry,
            answer,
        };
        self.queue
            .try_send(WriterJob::Append(waiting))
            .map_err(|_| Error::NotDurable)?;
        let limit = self.write_limit.current() + APPEND_MARGIN;
        match timeout(limit, answered).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) | Err(_) => Err(Error::NotDurable),
        }
    }

    /// Stores that every intent below `sequence` has an outcome.
    pub(crate) async fn closed_below(&self, sequence: u64) {
        // If this write is lost, the same intents are only read a second time.
        drop(self.queue.send(WriterJob::ClosedBelow(sequence)).await);
    }

    /// Stores the growth of the tree and its checkpoint. Returns `false` if the stored tree is not the one that `growth` begins with.
    pub(crate) async fn grow(&self, growth: TreeGrowth) -> Result<bool, Error> {
        self.run_job(|answer| WriterJob::Grow(PendingGrowth { growth, answer }))
            .await
    }

    /// Stores the keys of data subjects that have no key yet, except those encrypted under a master key that is not in force.
    pub(crate) async fn add_subject_keys(&self, keys: Vec<NewSubjectKey>) -> Result<(), Error> {
        self.run_job(|answer| WriterJob::SubjectKeys(keys, answer))
            .await
    }

    /// Stores a checkpoint of `size` records with the cosignatures of a quorum, unless a larger one is stored.
    pub(crate) async fn publish_cosigned(
        &self,
        size: u64,
        checkpoint: String,
    ) -> Result<(), Error> {
        self.run_job(|answer| WriterJob::PublishCosigned(size, checkpoint, answer))
            .await
    }

    /// Makes a change besides records and their tree. Returns `false` if its precondition does not hold.
    pub(crate) async fn keep_up(&self, upkeep: StoreUpkeep) -> Result<bool, Error> {
        self.run_job(|answer| WriterJob::Upkeep(upkeep, answer))
            .await?
    }

    /// Sends a job to the writer, and waits for its result.
    async fn run_job<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<T>) -> WriterJob,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let sent = self.queue.send(job(answer)).await;
        sent.map_err(|_| Error::NotDurable)?;
        answered.await.map_err(|_| Error::NotDurable)
    }

    /// Returns a receiver of the number of records after the last append of this process.
    pub(crate) fn size(&self) -> watch::Receiver<u64> {
        self.size.clone()
    }

    /// Removes and returns the leaf hashes of the records of `range`, or `None` if not all of them were recently stored by this
    /// process.
    pub(crate) fn take_leaf_hashes(&self, range: &Range<u64>) -> Option<Vec<Hash>> {
        let leaves = self.leaves.lock();
        leaves
            .unwrap_or_else(PoisonError::into_inner)
            .take_range(range)
    }

    pub(crate) fn readiness(&self) -> watch::Receiver<Readiness> {
        self.readiness.clone()
    }
}

/// A job for the writer.
#[derive(Debug)]
enum WriterJob {
    Append(PendingAppend),
    ClosedBelow(u64),
    Grow(PendingGrowth),
    PublishCosigned(u64, String, oneshot::Sender<()>),
    SubjectKeys(Vec<NewSubjectKey>, oneshot::Sender<()>),
    Upkeep(StoreUpkeep, oneshot::Sender<Result<bool, Error>>),
}

/// A growth of the tree that is not durable yet. The publisher waits for its answer, so if there are two, the first one was
/// abandoned.
#[derive(Debug)]
struct PendingGrowth {
    growth: TreeGrowth,
    answer: oneshot::Sender<bool>,
}

impl PendingGrowth {
    /// Stores the checkpoint in the copy too, and answers. `has_grown` is whether the growth was stored.
    async fn finish(self, has_grown: bool, copy: &mut Option<SecondCopy>) {
        let Self { growth, answer } = self;
        if let (Some(copy), Some(checkpoint), true) = (copy, growth.checkpoint, has_grown) {
            copy.keep_checkpoint(growth.to.size, checkpoint).await;
        }
        // The receiver is gone when the service shuts down.
        let _ = answer.send(has_grown);
    }
}

/// An append that is not durable yet.
#[derive(Debug)]
struct PendingAppend {
    entry: RecordEntry,
    retry: bool,
    answer: oneshot::Sender<Result<Receipt, Error>>,
}

impl PendingAppend {
    fn answer(self, answer: Result<Receipt, Error>) {
        // The receiver is gone when the append timed out.
        drop(self.answer.send(answer));
    }

    fn answer_found(self, found: &StoredEntry) {
        let answer = if found.holds(&self.entry) {
            Ok(Receipt::for_durable(found.sequence(), self.entry.leaf_hash))
        } else {
            Err(Error::AlreadyRecorded {
                event: self.entry.event,
            })
        };
        self.answer(answer);
    }
}

/// The reason why a write is not known to have succeeded.
#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error(transparent)]
    Store(#[from] sqlx::Error),
    #[error(transparent)]
    Copy(#[from] Error),
}

impl From<AppendError> for WriteError {
    fn from(error: AppendError) -> Self {
        Self::Store(match error {
            AppendError::Duplicate => {
                sqlx::Error::Protocol("the records do not match the head row".to_owned())
            }
            AppendError::Store(error) => error,
        })
    }
}

/// Starts the writer of the store at `address` and of its second copy. `limit` is the maximum time of one write.
pub(crate) async fn start(
    address: Address,
    limit: Duration,
    copy: Option<SecondCopy>,
) -> Result<AppendQueue, Error> {
    let connection = StoreWriter::connect(&address)
        .await
        .map_err(|source| open_error(&address, source))?;
    let (queue, jobs) = mpsc::channel(QUEUE);
    let (sender, readiness) = watch::channel(Readiness::Ready);
    let (size_sender, size) = watch::channel(0);
    let leaves = Arc::default();
    let write_limit = Arc::new(LatencyLimit::new(limit, LONGEST_WRITE));
    let mut writer = WriterTask {
        connection: Some(connection),
        copy,
        health: StoreHealth {
            address,
            limit: Arc::clone(&write_limit),
            readiness: sender,
        },
        stored: StoredRecords {
            size: size_sender,
            leaves: Arc::clone(&leaves),
        },
    };
    for _ in 0..FIRST_PROBES {
        writer.probe().await;
        if !writer.is_ready() {
            break;
        }
    }
    tokio::spawn(writer.run(jobs));
    Ok(AppendQueue {
        queue,
        readiness,
        size,
        leaves,
        write_limit,
    })
}

struct WriterTask {
    /// The connection, or `None` after a failure of the store or of the copy, because a connection in an unknown state is not
    /// used again.
    connection: Option<StoreWriter>,
    copy: Option<SecondCopy>,
    health: StoreHealth,
    stored: StoredRecords,
}

/// The records that this process has stored, for the tasks that read new records.
struct StoredRecords {
    /// The number of records, for the tasks that wait for new ones.
    size: watch::Sender<u64>,
    /// The leaf hashes, for the tree.
    leaves: Arc<Mutex<RecentLeaves>>,
}

impl StoredRecords {
    /// Adds `entries`, which are stored from `first` on.
    fn add(&self, first: u64, entries: &[&RecordEntry]) {
        let hashes = entries.iter().map(|entry| *entry.leaf_hash.as_bytes());
        let leaves = self.leaves.lock();
        leaves
            .unwrap_or_else(PoisonError::into_inner)
            .add(first, hashes);
        self.size.send_replace(first + entries.len() as u64);
    }
}

impl WriterTask {
    async fn run(mut self, mut jobs: mpsc::Receiver<WriterJob>) {
        let mut probe = interval(PROBE_INTERVAL);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut last_use = Instant::now();
        let mut batch = Vec::with_capacity(MAX_BATCH);
        // The time until which a growth in `batch` waits for records.
        let mut wait_end = tokio::time::Instant::now();
        loop {
            tokio::select! {
                biased;
                count = jobs.recv_many(&mut batch, MAX_BATCH) => {
                    if count == 0 {
                        break;
                    }
                    if self.waits_for_records(&batch) {
                        wait_end = tokio::time::Instant::now() + GROWTH_WAIT;
                        continue;
                    }
                    // Callers that are ready to run may append too, so they run first, and one flush covers all of it.
                    tokio::task::yield_now().await;
                    while batch.len() < MAX_BATCH && let Ok(job) = jobs.try_recv() {
                        batch.push(job);
                    }
                }
                () = sleep_until(wait_end), if !batch.is_empty() => {}
                _ = probe.tick() => {
                    if !self.is_ready() || last_use.elapsed() >= PROBE_WHEN_IDLE {
                        last_use = Instant::now();
                        self.probe().await;
                    }
                    continue;
                }
            }
            last_use = Instant::now();
            let was_ready = self.is_ready();
            self.handle(batch.drain(..)).await;
            if was_ready && !self.is_ready() {
                // A server that was restarted usually accepts the first attempt.
                probe.reset_immediately();
            }
        }
        if let Some(connection) = self.connection.take() {
            // Everything that was acknowledged is durable already; this only closes the connection cleanly.
            drop(timeout(WRITE_LIMIT, connection.close()).await);
        }
    }

    fn is_ready(&self) -> bool {
        self.connection.is_some()
    }

    /// Returns whether `jobs` are a growth of the tree that waits for records. There may be none soon if this process has stored
    /// none yet, or if the growth is a step of a catch-up.
    fn waits_for_records(&self, jobs: &[WriterJob]) -> bool {
        let [WriterJob::Grow(pending)] = jobs else {
            return false;
        };
        pending.growth.checkpoint.is_some() && *self.stored.size.borrow() > 0
    }

    async fn handle(&mut self, jobs: impl Iterator<Item = WriterJob>) {
        let mut batch = Vec::with_capacity(jobs.size_hint().0);
        let mut growth = None;
        let mut closed_below = None;
        let mut cosigned = Vec::new();
        let mut of_subjects = Vec::new();
        let mut upkeep = Vec::new();
        for job in jobs {
            match job {
                // The append timed out, so its caller was told that the record is not durable.
                WriterJob::Append(waiting) if waiting.answer.is_closed() => {}
                WriterJob::Append(waiting) => batch.push(waiting),
                WriterJob::ClosedBelow(sequence) => closed_below = Some(sequence),
                WriterJob::Grow(pending) => growth = Some(pending),
                WriterJob::PublishCosigned(size, checkpoint, answer) => {
                    cosigned.push((size, checkpoint, answer));
                }
                WriterJob::SubjectKeys(keys, answer) => of_subjects.push((keys, answer)),
                WriterJob::Upkeep(job, answer) => upkeep.push((job, answer)),
            }
        }
        if let Some(connection) = &mut self.connection {
            let started = Instant::now();
            let copy = &mut self.copy;
            let write = async {
                store(connection, copy, &mut batch, growth, &self.stored).await?;
                if let Some(sequence) = closed_below {
                    connection.closed_below(sequence).await?;
                }
                for (size, checkpoint, answer) in cosigned {
                    connection.publish_cosigned(size, &checkpoint).await?;
                    // The receiver is gone when the service shuts down.
                    let _ = answer.send(());
                }
                add_subject_keys(connection, of_subjects).await?;
                for (job, answer) in upkeep {
                    keep_up(connection, &job, answer).await?;
                }
                Ok::<_, WriteError>(())
            };
            if self.health.supervise(write).await.is_some() {
                histogram!(names::AUDIT_BATCH_SECONDS).record(started.elapsed());
            } else {
                self.connection = None;
            }
        }
        for waiting in batch {
            waiting.answer(Err(Error::NotDurable));
        }
    }

    async fn probe(&mut self) {
        let connection = self.connection.take();
        // The recovery of the copy is not subject to the time limit of a write, because no record is accepted in the meantime
        // and many records may have to be copied.
        if connection.is_none()
            && let Some(copy) = &mut self.copy
            && let Err(error) = copy.recover().await
        {
            self.health.report_failure(&error.to_string());
            return;
        }
        let address = &self.health.address;
        let copy = &self.copy;
        let write = async {
            let mut connection = match connection {
                Some(connection) => {
                    if let Some(copy) = copy {
                        copy.probe().await?;
                    }
                    connection
                }
                None => StoreWriter::connect(address).await?,
            };
            connection.probe().await?;
            Ok::<_, WriteError>(connection)
        };
        self.connection = self.health.supervise(write).await;
    }
}

/// Stores `batch` with the growth of the tree, and answers each append and the growth. After an error, the growth and the appends
/// that remain in `batch` are not known to be stored.
async fn store(
    connection: &mut StoreWriter,
    copy: &mut Option<SecondCopy>,
    batch: &mut Vec<PendingAppend>,
    mut growth: Option<PendingGrowth>,
    stored: &StoredRecords,
) -> Result<(), WriteError> {
    let mut grown = None;
    let mut is_shared = true;
    let mut collisions = 0;
    while !batch.is_empty() {
        if batch.iter().any(|waiting| waiting.retry) {
            answer_stored(connection, copy, batch).await?;
            if batch.is_empty() {
                break;
            }
        }
        let repeats = take_repeats(batch);
        let entries: Vec<_> = batch.iter().map(|waiting| &waiting.entry).collect();
        let pending = growth.take_if(|_| is_shared);
        let growing = pending.as_ref().map(|pending| &pending.growth);
        match connection.append(&entries, growing).await {
            Ok(AppendResult { first, has_grown }) => {
                counter!(names::AUDIT_RECORDS).increment(entries.len() as u64);
                stored.add(first, &entries);
                if let Some(copy) = copy {
                    let records = entries.iter().map(|entry| entry.canonical.as_slice());
                    copy.append(first, records).await?;
                }
                for (waiting, sequence) in batch.drain(..).zip(first..) {
                    let receipt = Receipt::for_durable(sequence, waiting.entry.leaf_hash);
                    waiting.answer(Ok(receipt));
                }
                grown = grown.or(pending.map(|pending| (pending, has_grown)));
            }
            // The growth may be the cause, which must not prevent the records from being stored.
            Err(error) if pending.is_some() && error.is_refusal() => {
                growth = pending;
                is_shared = false;
            }
            // Nothing was stored. Appends that are in the store already are answered first, and the others are stored without
            // them. Another replica may still add a record of the same call in between.
            Err(AppendError::Duplicate) if collisions < MAX_COLLISIONS => {
                collisions += 1;
                for waiting in batch.iter_mut() {
                    waiting.retry |= waiting.entry.call_id.is_some();
                }
            }
            Err(error) => return Err(error.into()),
        }
        batch.extend(repeats);
    }
    if let Some(pending) = growth {
        let appended = connection.append(&[], Some(&pending.growth)).await?;
        grown = Some((pending, appended.has_grown));
    }
    if let Some((pending, has_grown)) = grown {
        pending.finish(has_grown, copy).await;
    }
    Ok(())
}

/// Runs `job` and sends its result. If the store refuses the job but accepts other writes, only the job fails.
async fn keep_up(
    connection: &mut StoreWriter,
    job: &StoreUpkeep,
    answer: oneshot::Sender<Result<bool, Error>>,
) -> Result<(), sqlx::Error> {
    let done = match connection.keep_up(job).await {
        Ok(done) => Ok(done),
        Err(error @ sqlx::Error::Database(_)) => {
            connection.probe().await?;
            tracing::error!(%error, "the audit store refuses a change beside the record");
            Err(Error::UpkeepRefused(error))
        }
        Err(error) => return Err(error),
    };
    // The receiver is gone when the service shuts down.
    let _ = answer.send(done);
    Ok(())
}

/// Stores all `keys` at once, and answers all jobs that wait for them.
async fn add_subject_keys(
    connection: &mut StoreWriter,
    keys: Vec<(Vec<NewSubjectKey>, oneshot::Sender<()>)>,
) -> Result<(), sqlx::Error> {
    let (keys, answers): (Vec<_>, Vec<_>) = keys.into_iter().unzip();
    let keys = keys.concat();
    if !keys.is_empty() {
        connection.add_subject_keys(&keys).await?;
    }
    for answer in answers {
        // The receiver is gone when the append was abandoned.
        let _ = answer.send(());
    }
    Ok(())
}

/// Answers and removes the appends of `batch` that are retries of stored records.
async fn answer_stored(
    connection: &mut StoreWriter,
    copy: &mut Option<SecondCopy>,
    batch: &mut Vec<PendingAppend>,
) -> Result<(), WriteError> {
    let entries: Vec<_> = batch
        .iter()
        .filter(|waiting| waiting.retry)
        .map(|waiting| &waiting.entry)
        .collect();
    let found = connection.find(&entries).await?;
    let end = found.iter().map(|found| found.sequence() + 1).max();
    if let (Some(copy), Some(end)) = (copy, end) {
        // Another process may have stored the record without copying it.
        copy.copy_up_to(end).await?;
    }
    for waiting in std::mem::take(batch) {
        let stored = found
            .iter()
            .find(|found| waiting.retry && found.takes_the_place_of(&waiting.entry));
        match stored {
            Some(found) => waiting.answer_found(found),
            None => batch.push(waiting),
        }
    }
    Ok(())
}

/// Removes the appends of `batch` that repeat an earlier one, and returns them, to be looked up after the earlier ones are
/// stored.
fn take_repeats(batch: &mut Vec<PendingAppend>) -> Vec<PendingAppend> {
    let mut seen = HashSet::with_capacity(batch.len());
    // Equal records without a call id are repeats only if one of them says so.
    let mut retries = HashMap::new();
    let repeated: Vec<_> = batch
        .iter()
        .map(|PendingAppend { entry, retry, .. }| {
            if let Some(call_id) = &entry.call_id {
                return !seen.insert((call_id.as_str(), entry.event));
            }
            let earlier = retries.insert(*entry.leaf_hash.as_bytes(), *retry);
            earlier.is_some_and(|earlier| earlier || *retry)
        })
        .collect();
    if !repeated.contains(&true) {
        return Vec::new();
    }
    let mut repeats = Vec::new();
    for (mut waiting, repeated) in std::mem::take(batch).into_iter().zip(repeated) {
        if repeated {
            waiting.retry = true;
            repeats.push(waiting);
        } else {
            batch.push(waiting);
        }
    }
    repeats
}

#[cfg(test)]
mod tests;
