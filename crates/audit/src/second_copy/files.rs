//! The files of a second copy. Each holds records without a gap, one to a line as in an export, and only grows.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use wardgate_domain::Digest;

use crate::canonical::leaf_hash;
use crate::copy_problem::{CopyProblem, MARKER};
use crate::record_line::CHECKPOINT;

/// Most records of one file: so much is read of the newest at a start.
pub(crate) const FILE_RECORDS: u64 = 16_384;

/// The records of one file.
#[derive(Debug)]
pub(crate) struct CopiedRun {
    /// The position of the first.
    pub(crate) first: u64,
    /// Their leaf hashes, in order.
    pub(crate) leaf_hashes: Vec<Digest>,
}

impl CopiedRun {
    /// The position behind the last.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.leaf_hashes.len() as u64
    }
}

/// The directory of a second copy, with the file that is written to.
#[derive(Debug)]
pub(super) struct CopyDirectory {
    path: PathBuf,
    /// None at first, and after a failure: what is in an unknown state is not written to again.
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    first: u64,
    /// The position of the next record.
    next: u64,
    /// The length that is durable.
    length: u64,
}

impl CopyDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    /// Adds `lines`, which are those of `records` records from `first` on, and returns once they are durable.
    pub(super) fn append(
        &mut self,
        first: u64,
        records: u64,
        lines: &[u8],
    ) -> Result<(), CopyProblem> {
        // What is still open may be of a disk that nobody finds there any more.
        check_marker(&self.path)?;
        let mut open = match self.open.take() {
            Some(open) if open.next == first && first + records - open.first <= FILE_RECORDS => {
                open
            }
            _ => self.create(first)?,
        };
        let written = open.file.write_all(lines);
        if let Err(error) = written.and_then(|()| open.file.sync_data()) {
            open.discard_tail();
            return Err(error.into());
        }
        open.next += records;
        open.length += lines.len() as u64;
        self.open = Some(open);
        Ok(())
    }

    /// Writes something, to see whether the disk takes it.
    pub(super) fn probe(&mut self) -> Result<(), CopyProblem> {
        check_marker(&self.path)?;
        let mut file = options().open(self.path.join("probe"))?;
        file.write_all(b"The audit service writes this file to see whether it can.\n")?;
        Ok(file.sync_data()?)
    }

    /// Puts the newest checkpoint beside the records that it covers.
    pub(super) fn keep_checkpoint(&mut self, size: u64, note: &str) -> Result<(), CopyProblem> {
        check_marker(&self.path)?;
        let new = self.path.join(format!("{CHECKPOINT}-{size}"));
        fs::write(&new, note)?;
        Ok(fs::rename(new, self.path.join(CHECKPOINT))?)
    }

    fn create(&self, first: u64) -> Result<OpenFile, CopyProblem> {
        // Of several processes, or after a failure, several files can begin with the same record.
        let mut number = 0;
        loop {
            let path = self
                .path
                .join(format!("{PREFIX}{first:020}-{number}{SUFFIX}"));
            match options().create_new(true).open(&path) {
                Ok(file) => {
                    File::open(&self.path)?.sync_all()?;
                    return Ok(OpenFile {
                        file,
                        path,
                        first,
                        next: first,
                        length: 0,
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl OpenFile {
    /// Takes away what was written and is not durable: after a failed flush it can be read, and be gone later.
    fn discard_tail(self) {
        let discarded = if self.length == 0 {
            fs::remove_file(&self.path)
        } else {
            self.file.set_len(self.length)
        };
        if let Err(error) = discarded {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the end of a file of the second copy is not taken away");
        }
    }
}

const PREFIX: &str = "records-";
const SUFFIX: &str = ".jsonl";

fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true).create(true).mode(0o600);
    options
}

/// Fails where `directory` is not one that somebody meant for a copy.
pub(crate) fn check_marker(directory: &Path) -> Result<(), CopyProblem> {
    match fs::metadata(directory.join(MARKER)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CopyProblem::NoMarker),
        Err(error) => Err(error.into()),
    }
}

/// The files of records in `directory`, each with the position of its first record, in order.
pub(crate) fn files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let numbers = name.and_then(|name| name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX));
        let first = numbers.and_then(|numbers| numbers.split_once('-')?.0.parse().ok());
        files.extend(first.map(|first| (first, path)));
    }
    files.sort();
    Ok(files)
}

/// The records of the newest files in `directory`, with everything that is durable from the first of them on; none where
/// there is no record.
pub(crate) fn newest(directory: &Path) -> Result<Vec<CopiedRun>, CopyProblem> {
    check_marker(directory)?;
    let mut runs: Vec<CopiedRun> = Vec::new();
    let mut end = 0;
    for (first, path) in files(directory)?.into_iter().rev() {
        if first.saturating_add(FILE_RECORDS) <= end {
            break;
        }
        // A process that was killed may not have come to do it.
        File::open(&path)?.sync_all()?;
        let mut leaf_hashes = Vec::new();
        for_each_record(first, &fs::read(&path)?, |record| {
            leaf_hashes.push(leaf_hash(record));
        });
        let run = CopiedRun { first, leaf_hashes };
        end = end.max(run.end());
        runs.push(run);
    }
    runs.retain(|run| !run.leaf_hashes.is_empty());
    Ok(runs)
}

/// Shows `on_record` the records in `bytes`, which are a file that begins with the record `first`. They end at the first
/// line that is not that of the next record: a write that was interrupted, whose records another file has.
pub(crate) fn for_each_record(first: u64, bytes: &[u8], mut on_record: impl FnMut(&[u8])) {
    for (line, sequence) in bytes.split_inclusive(|byte| *byte == b'\n').zip(first..) {
        let start = format!("{{\"sequence\":{sequence},\"record\":");
        let record = line.strip_prefix(start.as_bytes());
        match record.and_then(|record| record.strip_suffix(b"}\n")) {
            Some(record) => on_record(record),
            None => return,
        }
    }
}
