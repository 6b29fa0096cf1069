//! The files of a second copy. Each file contains consecutive records, one per line as in an export.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};

use wardgate_domain::{Digest, NewFileAccess, replace_file, restrict_to_owner};

use crate::canonical::leaf_hash;
use crate::copy_problem::{CopyProblem, MARKER};
use crate::record_line::CHECKPOINT;

/// Maximum number of records in one file. At the start, only the files that begin within this many of the newest records are
/// read.
pub(crate) const FILE_RECORDS: u64 = 16_384;

/// Maximum length of a line in bytes: a record has at most 65,535 bytes, and the rest of the line less than 100.
const MAX_LINE: u64 = 65_535 + 100;

/// The records of one file.
#[derive(Debug)]
pub(crate) struct CopiedRun {
    /// The sequence number of the first record.
    pub(crate) first: u64,
    /// The leaf hashes of the records, in order.
    pub(crate) leaf_hashes: Vec<Digest>,
}

impl CopiedRun {
    /// Returns the sequence number that follows the last record.
    pub(crate) fn end(&self) -> u64 {
        self.first + self.leaf_hashes.len() as u64
    }
}

/// The directory of a second copy, with the file that is being written.
#[derive(Debug)]
pub(super) struct CopyDirectory {
    path: PathBuf,
    /// The open file. `None` at first and after a failure, because a file in an unknown state is not written again.
    open: Option<OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    path: PathBuf,
    first: u64,
    /// The sequence number of the next record.
    next: u64,
    /// The length in bytes that is durable.
    length: u64,
}

impl CopyDirectory {
    pub(super) fn new(path: PathBuf) -> Self {
        Self { path, open: None }
    }

    /// Appends `lines`, which contain `records` records from `first` on. Returns once they are durable.
    pub(super) fn append(
        &mut self,
        first: u64,
        records: u64,
        lines: &[u8],
    ) -> Result<(), CopyProblem> {
        // The open file may be on a disk that is no longer mounted here.
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

    /// Writes a small file, to check whether the disk accepts writes.
    pub(super) fn probe(&mut self) -> Result<(), CopyProblem> {
        check_marker(&self.path)?;
        let mut file = options().open(self.path.join("probe"))?;
        file.write_all(
            b"The audit service writes this file to test whether the directory is writable.\n",
        )?;
        Ok(file.sync_data()?)
    }

    /// Stores the newest checkpoint beside the records that it covers.
    pub(super) fn keep_checkpoint(&mut self, size: u64, note: &str) -> Result<(), CopyProblem> {
        check_marker(&self.path)?;
        let unfinished = self.path.join(format!("{CHECKPOINT}-{size}"));
        let (path, access) = (self.path.join(CHECKPOINT), NewFileAccess::OwnerOnly);
        let kept = replace_file(&path, &unfinished, access, note.as_bytes());
        Ok(kept.map_err(io::Error::from)?)
    }

    fn create(&self, first: u64) -> Result<OpenFile, CopyProblem> {
        // Several files can begin with the same record, if several processes write them or after a failure.
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
    /// Removes the bytes that were written and are not durable. After a failed flush, they can be readable now and lost later.
    fn discard_tail(self) {
        let discarded = if self.length == 0 {
            fs::remove_file(&self.path)
        } else {
            self.file.set_len(self.length)
        };
        if let Err(error) = discarded {
            let path = self.path.display();
            tracing::warn!(%error, %path, "the incomplete end of a file of the second copy was not removed");
        }
    }
}

const PREFIX: &str = "records-";
const SUFFIX: &str = ".jsonl";

fn options() -> fs::OpenOptions {
    let mut options = File::options();
    options.write(true).create(true);
    restrict_to_owner(&mut options);
    options
}

/// Fails if `directory` does not contain the marker file of a second copy.
pub(crate) fn check_marker(directory: &Path) -> Result<(), CopyProblem> {
    match fs::metadata(directory.join(MARKER)) {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Err(CopyProblem::NoMarker),
        Err(error) => Err(error.into()),
    }
}

/// Returns the record files in `directory` in order, each with the sequence number of its first record.
pub(crate) fn list_files(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
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

/// Reads and flushes the newest files in `directory`, so that all records from the first of these files on are durable. Returns
/// none if there are no records.
pub(crate) fn read_newest_runs(directory: &Path) -> Result<Vec<CopiedRun>, CopyProblem> {
    check_marker(directory)?;
    let mut runs: Vec<CopiedRun> = Vec::new();
    let mut end = 0;
    for (first, path) in list_files(directory)?.into_iter().rev() {
        if first.saturating_add(FILE_RECORDS) <= end {
            break;
        }
        let mut file = File::open(&path)?;
        let mut leaf_hashes = Vec::new();
        for_each_record(first, BufReader::new(&mut file), |record| {
            leaf_hashes.push(leaf_hash(record));
        })?;
        // A process that was killed may not have flushed the file.
        file.sync_all()?;
        // A file without a complete record does not determine how far the files before it reach.
        if !leaf_hashes.is_empty() {
            let run = CopiedRun { first, leaf_hashes };
            end = end.max(run.end());
            runs.push(run);
        }
    }
    Ok(runs)
}

/// Calls `on_record` with each record of `file`, which begins with the record `first`. Stops at the first line that is not the
/// next record: such a line is an interrupted write, whose records are in another file.
pub(crate) fn for_each_record(
    first: u64,
    mut file: impl BufRead,
    mut on_record: impl FnMut(&[u8]),
) -> io::Result<()> {
    let mut line = Vec::new();
    for sequence in first.. {
        line.clear();
        file.by_ref().take(MAX_LINE).read_until(b'\n', &mut line)?;
        let start = format!("{{\"sequence\":{sequence},\"record\":");
        let record = line.strip_prefix(start.as_bytes());
        match record.and_then(|record| record.strip_suffix(b"}\n")) {
            Some(record) => on_record(record),
            None => break,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record_line::write_line;

    #[test]
    fn a_file_without_a_whole_record_does_not_hide_the_full_one_before_it() {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join(MARKER), "").unwrap();
        let mut files = CopyDirectory::new(directory.path().to_owned());
        let mut lines = Vec::new();
        for sequence in 0..FILE_RECORDS {
            write_line(sequence, b"{}", &mut lines);
        }
        files.append(0, FILE_RECORDS, &lines).unwrap();
        files.create(FILE_RECORDS).unwrap();
        let runs = read_newest_runs(directory.path()).unwrap();
        assert_eq!(runs.iter().map(CopiedRun::end).max(), Some(FILE_RECORDS));
    }

    #[test]
    fn records_end_where_a_line_is_not_that_of_the_next_record() {
        let mut lines = Vec::new();
        for sequence in [7, 8, 10] {
            write_line(sequence, b"{\"a\":1}", &mut lines);
        }
        let read = |bytes: &[u8]| {
            let mut records = 0;
            for_each_record(7, bytes, |_| records += 1).unwrap();
            records
        };
        assert_eq!(read(&lines), 2);
        assert_eq!(read(&lines[..=lines.len() / 3]), 1);
        assert_eq!(read("x".repeat(200_000).as_bytes()), 0);
    }
}
