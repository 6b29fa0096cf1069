//! The second copy: a directory on another disk to which every record is written before it is acknowledged.
//!
//! ```text
//!   DIR/wardgate-second-copy          marker file, created by an operator on the intended disk
//!   DIR/records-FIRST-N.jsonl         {"sequence":FIRST,"record":{…}} and the records that follow, without a gap
//!   DIR/checkpoint                    the newest signed checkpoint whose records are all in the copy
//! ```
//!
//! The store commits first, because only its commit determines the sequence number of a record. Then the record is copied, and
//! only then is it acknowledged. So the copy never has a record that the store may not have, and records that are missing after
//! a failure or a kill are read from the store. Each process writes its own files, which also contain the records that other
//! processes stored since it started.

mod files;

use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use metrics::{counter, histogram};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use wardgate_telemetry::names;
use wardgate_transparency::TILE_WIDTH;

use crate::copy_problem::CopyProblem;
use crate::store::{MAX_BATCH, StoreReader};
use crate::{Error, record_line};

use self::files::CopyDirectory;

pub(crate) use self::files::{
    CopiedRun, FILE_RECORDS, check_marker, for_each_record, list_files, read_newest_runs,
};

/// Maximum time of one operation on the disk, besides the time limit of a write.
const JOB_LIMIT: Duration = Duration::from_secs(30);

type CopyJob = Box<dyn FnOnce(&mut CopyDirectory) + Send>;

/// The second copy, as the writer of the store uses it.
pub(crate) struct SecondCopy {
    directory: PathBuf,
    /// The queue to a separate thread, so that a disk that does not respond blocks nothing else.
    jobs: mpsc::Sender<CopyJob>,
    /// The end of the records in the copy: every record that the store has below this sequence number is in the copy.
    next: u64,
    reader: StoreReader,
}

impl SecondCopy {
    /// Opens the copy in `directory`, and copies the records that it lacks. Fails if the directory cannot be used or contains
    /// other records than the store.
    pub(crate) async fn open(directory: &Path, reader: StoreReader) -> Result<Self, Error> {
        let (jobs, mut waiting) = mpsc::channel::<CopyJob>(1);
        let mut files = CopyDirectory::new(directory.to_owned());
        let work = move || {
            while let Some(job) = waiting.blocking_recv() {
                job(&mut files);
            }
        };
        let started = thread::Builder::new().name("second copy".to_owned());
        let started = started.spawn(work).map_err(CopyProblem::Io);
        started.map_err(|problem| Error::second_copy(directory, problem))?;
        let mut copy = Self {
            directory: directory.to_owned(),
            jobs,
            next: 0,
            reader,
        };
        copy.next = copy.compare_with_store().await?;
        let size = copy.reader.head().await?.size;
        let (missing, directory) = (size.saturating_sub(copy.next), directory.display());
        tracing::info!(%directory, missing, "the second copy of the audit log is enabled; missing records are being added");
        copy.copy_up_to(size).await?;
        copy.probe().await?;
        Ok(copy)
    }

    /// Appends the records from `first` on, after any earlier records that other processes have stored. Returns once they are
    /// durable.
    pub(crate) async fn append(
        &mut self,
        first: u64,
        records: impl ExactSizeIterator<Item = &[u8]>,
    ) -> Result<(), Error> {
        if first < self.next {
            let (copied, stored) = (self.next, first);
            let problem = CopyProblem::Ahead { copied, stored };
            return Err(Error::second_copy(&self.directory, problem));
        }
        self.copy_up_to(first).await?;
        self.write(first, records).await
    }

    /// Appends the records of the store below `end` that the copy lacks.
    pub(crate) async fn copy_up_to(&mut self, end: u64) -> Result<(), Error> {
        while self.next < end {
            // Records that retention removed are not missing.
            let first = self.next.max(self.reader.head().await?.minimum_index);
            let page = first..end.min(first + TILE_WIDTH);
            if page.is_empty() {
                break;
            }
            let rows = self.reader.records(page).await?;
            let records = rows.iter().map(|row| row.canonical.as_slice());
            self.write(first, records).await?;
        }
        Ok(())
    }

    /// Checks whether the disk accepts writes.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        self.run(CopyDirectory::probe).await
    }

    /// Brings the copy up to date after a failure of the copy or of the store. Fails if the copy and the store have different
    /// records.
    pub(crate) async fn recover(&mut self) -> Result<(), Error> {
        self.probe().await?;
        // The store is queried first, so that the files are not read in vain while the store does not respond.
        let size = self.reader.head().await?.size;
        // The directory may have been replaced by one with fewer records.
        self.next = self.next.min(self.compare_with_store().await?);
        self.copy_up_to(size).await
    }

    /// Returns the sequence number that follows the last record of the copy. Fails if the newest records of the copy differ
    /// from those of the store.
    async fn compare_with_store(&self) -> Result<u64, Error> {
        let path = self.directory.clone();
        let runs = self.run(move |_| read_newest_runs(&path)).await?;
        let compared = compare_with_store(&self.directory, &runs, &self.reader).await;
        compared.inspect_err(|error| {
            if matches!(error, Error::SecondCopy { .. }) {
                counter!(names::AUDIT_COPY_FAILURES).increment(1);
            }
        })
    }

    /// Stores the checkpoint `note` of the first `size` records. A failure is only logged, because the checkpoint is needed
    /// only to verify the copy.
    pub(crate) async fn keep_checkpoint(&mut self, size: u64, note: String) {
        let kept = async {
            self.copy_up_to(size).await?;
            self.run(move |files| files.keep_checkpoint(size, &note))
                .await
        };
        if let Err(error) = kept.await {
            tracing::debug!(%error, "the second copy contains an older checkpoint");
        }
    }

    async fn write(
        &mut self,
        first: u64,
        records: impl ExactSizeIterator<Item = &[u8]>,
    ) -> Result<(), Error> {
        let started = Instant::now();
        let count = records.len() as u64;
        let mut lines = Vec::new();
        for (record, sequence) in records.zip(first..) {
            record_line::write_line(sequence, record, &mut lines);
        }
        self.run(move |files| files.append(first, count, &lines))
            .await?;
        self.next = first + count;
        histogram!(names::AUDIT_COPY_SECONDS).record(started.elapsed());
        Ok(())
    }

    /// Runs `work` on the thread of the copy, and waits for its result.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut CopyDirectory) -> Result<T, CopyProblem> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let job = move |files: &mut CopyDirectory| {
            // The receiver is gone when the work took too long.
            drop(answer.send(work(files)));
        };
        let done = match self.jobs.try_send(Box::new(job)) {
            Ok(()) => match timeout(JOB_LIMIT, answered).await {
                Ok(Ok(done)) => done,
                Ok(Err(_)) | Err(_) => Err(CopyProblem::Timeout),
            },
            // The thread is still busy with an earlier operation.
            Err(_) => Err(CopyProblem::Timeout),
        };
        done.map_err(|problem| {
            counter!(names::AUDIT_COPY_FAILURES).increment(1);
            Error::second_copy(&self.directory, problem)
        })
    }
}

/// The disk of a copy, which a test can block.
#[cfg(test)]
pub(crate) struct TestDisk(mpsc::Sender<CopyJob>);

#[cfg(test)]
impl TestDisk {
    /// Blocks the disk until `held` receives a message.
    pub(crate) async fn block_until(&self, held: std::sync::mpsc::Receiver<()>) {
        let job = move |_: &mut CopyDirectory| {
            let _ = held.recv();
        };
        assert!(self.0.send(Box::new(job)).await.is_ok());
    }
}

#[cfg(test)]
impl SecondCopy {
    pub(crate) fn disk(&self) -> TestDisk {
        TestDisk(self.jobs.clone())
    }
}

/// Returns the sequence number that follows the last record of the copy in `directory`, whose newest records are `runs`. Fails
/// if these differ from the records of the store.
pub(crate) async fn compare_with_store(
    directory: &Path,
    runs: &[CopiedRun],
    reader: &StoreReader,
) -> Result<u64, Error> {
    let refuse = |problem| Err(Error::second_copy(directory, problem));
    let head = reader.head().await?;
    let end = runs.iter().map(CopiedRun::end).max();
    let end = end.unwrap_or(head.minimum_index);
    if end > head.size {
        let (copied, stored) = (end, head.size);
        return refuse(CopyProblem::Ahead { copied, stored });
    }
    for run in runs {
        let mut first = run.first;
        for copied in run.leaf_hashes.chunks(MAX_BATCH) {
            let range = first..first + copied.len() as u64;
            let stored = reader.leaf_hashes(range.clone()).await?;
            let pairs = copied.iter().zip(stored.as_chunks::<32>().0).zip(range);
            for ((copied, stored), sequence) in pairs {
                if copied.as_bytes() != stored {
                    return refuse(CopyProblem::Fork { sequence });
                }
            }
            first += copied.len() as u64;
        }
    }
    Ok(end)
}
