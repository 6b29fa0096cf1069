//! The second copy: a directory on another disk that has every record before it is acknowledged.
//!
//! ```text
//!   DIR/wardgate-second-copy          made by an operator: this is the disk that is meant
//!   DIR/records-FIRST-N.jsonl         {"sequence":FIRST,"record":{…}} and those that follow, without a gap
//!   DIR/checkpoint                    the newest signed checkpoint, of records that are all there
//! ```
//!
//! The store commits first, since only its commit gives a record its position; then the copy gets it, and only then is it
//! acknowledged. So the copy never has a record that the store may not have, and what it lacks after a failure or a kill is
//! read from the store. A process writes files of its own, and writes into them what other processes stored since it started.

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

/// How long the disk may take for one piece of work, besides the limit of a write.
const JOB_LIMIT: Duration = Duration::from_secs(30);

type CopyJob = Box<dyn FnOnce(&mut CopyDirectory) + Send>;

/// The copy, as the writer of the store has it.
pub(crate) struct SecondCopy {
    directory: PathBuf,
    /// To a thread of its own: a disk that does not answer holds up nothing else.
    jobs: mpsc::Sender<CopyJob>,
    /// Every record below this position is there, as far as the store has it.
    next: u64,
    reader: StoreReader,
}

impl SecondCopy {
    /// The copy in `directory` once it has all that the store has; an error where it cannot be used, or has something else.
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
        tracing::info!(%directory, missing, "the record has a second copy, which gets what it lacks");
        copy.copy_up_to(size).await?;
        copy.probe().await?;
        Ok(copy)
    }

    /// Adds the records from `first` on, and before them what other processes have stored; returns once they are durable.
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

    /// Adds what the store has below `end` and the copy has not.
    pub(crate) async fn copy_up_to(&mut self, end: u64) -> Result<(), Error> {
        while self.next < end {
            // What retention removed is not missing.
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

    /// Sees whether the disk takes records.
    pub(crate) async fn probe(&self) -> Result<(), Error> {
        self.run(CopyDirectory::probe).await
    }

    /// After a failure of the copy or of the store: adds all that the store has, unless one of them has become another one.
    pub(crate) async fn recover(&mut self) -> Result<(), Error> {
        self.probe().await?;
        // Before the files are read: while the store does not answer, they need not be.
        let size = self.reader.head().await?.size;
        // The directory may be another one, which has less.
        self.next = self.next.min(self.compare_with_store().await?);
        self.copy_up_to(size).await
    }

    /// The position behind the last record that is there, where the store has the same ones.
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

    /// Keeps the checkpoint `note` of the first `size` records. It is a help to verify the copy, and nobody's answer depends on
    /// it.
    pub(crate) async fn keep_checkpoint(&mut self, size: u64, note: String) {
        let kept = async {
            self.copy_up_to(size).await?;
            self.run(move |files| files.keep_checkpoint(size, &note))
                .await
        };
        if let Err(error) = kept.await {
            tracing::debug!(%error, "the second copy keeps an older checkpoint");
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

    /// Has `work` done by the thread of the copy.
    async fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut CopyDirectory) -> Result<T, CopyProblem> + Send + 'static,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let job = move |files: &mut CopyDirectory| {
            // Nobody listens any more when it took too long.
            drop(answer.send(work(files)));
        };
        let done = match self.jobs.try_send(Box::new(job)) {
            Ok(()) => match timeout(JOB_LIMIT, answered).await {
                Ok(Ok(done)) => done,
                Ok(Err(_)) | Err(_) => Err(CopyProblem::Timeout),
            },
            // It still has earlier work.
            Err(_) => Err(CopyProblem::Timeout),
        };
        done.map_err(|problem| {
            counter!(names::AUDIT_COPY_FAILURES).increment(1);
            Error::second_copy(&self.directory, problem)
        })
    }
}

/// The disk of a copy, as a test makes it slow.
#[cfg(test)]
pub(crate) struct TestDisk(mpsc::Sender<CopyJob>);

#[cfg(test)]
impl TestDisk {
    /// Lets the disk do nothing until `held` is told something.
    pub(crate) async fn hold(&self, held: std::sync::mpsc::Receiver<()>) {
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

/// The position behind the last record of the copy in `directory`, whose newest records are `runs`, where the store has the
/// same ones.
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
