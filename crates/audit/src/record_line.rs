//! The format of records in files, one per line, and the names of the files.

/// File name of the checkpoint in a directory.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// File name of the records in a directory, one per line.
pub(crate) const RECORDS: &str = "records.jsonl";

/// Appends the line of `record` in [`RECORDS`] to `line`.
pub(crate) fn write_line(sequence: u64, record: &[u8], line: &mut Vec<u8>) {
    line.extend_from_slice(format!("{{\"sequence\":{sequence},\"record\":").as_bytes());
    line.extend_from_slice(record);
    line.extend_from_slice(b"}\n");
}
