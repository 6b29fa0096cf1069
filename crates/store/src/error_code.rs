//! What the error codes of SQLite and PostgreSQL say about a failure.

/// Returns whether a store that fails with `error` may be available a moment later, because another process has locked
/// it, every connection is in use, or the server is starting.
pub fn is_busy(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::PoolTimedOut => true,
        sqlx::Error::Database(error) => match error.code().as_deref() {
            // PostgreSQL: too_many_connections, cannot_connect_now, lock_not_available.
            Some("53300" | "57P03" | "55P03") => true,
            // SQLite: SQLITE_BUSY or SQLITE_LOCKED.
            Some(code) => matches!(sqlite_code(code), Some(5 | 6)),
            None => false,
        },
        _ => false,
    }
}

/// Returns whether the rows of a table are corrupt at the place that a statement read, or contain a value that cannot be decoded
/// as the type of its column. The same read fails again, but reads of other places may succeed. A corrupt index of PostgreSQL
/// does not count, see [`is_corrupt_index`]: the rows are intact, and can be read without the index, or once it is rebuilt.
pub fn is_corrupt(error: &sqlx::Error) -> bool {
    let error = match error {
        sqlx::Error::Database(error) => error,
        // The tables accept only values of the right types.
        sqlx::Error::ColumnDecode { .. } => return true,
        _ => return false,
    };
    match error.code().as_deref() {
        // PostgreSQL: data_corrupted.
        Some("XX001") => true,
        // SQLite: SQLITE_CORRUPT.
        Some(code) => sqlite_code(code) == Some(11),
        None => false,
    }
}

/// Returns whether an index of PostgreSQL that a statement read is corrupt in its structure. SQLite does not distinguish this from
/// [`is_corrupt`].
pub fn is_corrupt_index(error: &sqlx::Error) -> bool {
    // index_corrupted
    matches!(error, sqlx::Error::Database(error) if error.code().as_deref() == Some("XX002"))
}

/// Returns whether SQLite failed to read or write its files, for example because the disk is full. What the files contain is then
/// uncertain until they are opened again.
pub fn is_io_failure(error: &sqlx::Error) -> bool {
    let sqlx::Error::Database(error) = error else {
        return false;
    };
    // SQLITE_IOERR, SQLITE_FULL
    let code = error.code().and_then(|code| sqlite_code(&code));
    matches!(code, Some(10 | 13))
}

/// Returns the primary result code of SQLite, without the extended code in the upper bits, or `None` if `code` is of PostgreSQL,
/// whose codes have five characters.
fn sqlite_code(code: &str) -> Option<u32> {
    let code = code.parse::<u32>().ok().filter(|_| code.len() < 5)?;
    Some(code & 0xff)
}
