//! Records in files, one to a line, and what stands beside them.

/// The checkpoint's place in a directory.
pub(crate) const CHECKPOINT: &str = "checkpoint";

/// The records' place in a directory, one to a line.
pub(crate) const RECORDS: &str = "records.jsonl";

/// Writes the line of `record` in [`RECORDS`] to the end of `line`.
pub(crate) fn write_line(sequence: u64, record: &[u8], line: &mut Vec<u8>) {
    line.extend_from_slice(format!("{{\"sequence\":{sequence},\"record\":").as_bytes());
    line.extend_from_slice(record);
    line.extend_from_slice(b"}\n");
}
