//! Corrupt pages of SQLite and PostgreSQL databases.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};

use crate::database::TestDatabase;
use crate::until::until;

/// The type of a page that contains rows of a table.
const TABLE_LEAF: u8 = 13;

/// Makes the pages of the SQLite database at `path` that contain rows with one of `texts` unreadable. Other programs must not
/// write to the database. Returns the offsets of the pages in the file, for [`repair_sqlite_pages`].
pub async fn corrupt_sqlite_pages(path: &Path, texts: &[String]) -> Vec<u64> {
    write_back_log(path).await;
    let bytes = std::fs::read(path).unwrap();
    let page_size = usize::from(u16::from_be_bytes([bytes[16], bytes[17]]));
    let pages = (0_u64..).step_by(page_size).zip(bytes.chunks(page_size));
    let pages = pages.filter(|(_, page)| {
        let content = String::from_utf8_lossy(page);
        page[0] == TABLE_LEAF && texts.iter().any(|text| content.contains(text))
    });
    let offsets: Vec<u64> = pages.map(|(offset, _)| offset).collect();
    assert!(!offsets.is_empty(), "no row contains {texts:?}");
    write_page_type(path, &offsets, 0);
    offsets
}

/// Makes pages readable again that [`corrupt_sqlite_pages`] made unreadable.
pub fn repair_sqlite_pages(path: &Path, offsets: &[u64]) {
    write_page_type(path, offsets, TABLE_LEAF);
}

/// Replaces the last occurrence of `from` before each occurrence of `text` in the SQLite database at `path` by `to`, which has
/// the same length. Other programs must not write to the database.
pub async fn replace_sqlite_bytes(path: &Path, text: &str, from: &[u8], to: &[u8]) {
    write_back_log(path).await;
    let bytes = std::fs::read(path).unwrap();
    let texts = bytes.windows(text.len()).enumerate();
    let texts = texts.filter(|(_, found)| *found == text.as_bytes());
    let places = texts.map(|(offset, _)| {
        let before = bytes[..offset].windows(from.len());
        before
            .rev()
            .position(|found| found == from)
            .map_or(offset, |back| offset - from.len() - back)
    });
    let places: Vec<usize> = places.collect();
    assert!(!places.is_empty(), "the database does not contain {text}");
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for place in places {
        assert_eq!(&bytes[place..place + from.len()], from);
        file.write_all_at(to, place as u64).unwrap();
    }
}

/// Makes the first page of an index of the SQLite database at `path` unreadable. Other programs must not write to the database.
pub async fn corrupt_sqlite_index(path: &Path, index: &str) {
    write_back_log(path).await;
    let url = format!("sqlite:{}", path.display());
    let mut connection = SqliteConnection::connect(&url).await.unwrap();
    let offset = "SELECT (rootpage - 1) * page_size FROM sqlite_schema, pragma_page_size
                  WHERE type = 'index' AND name = $1";
    let offset = sqlx::query_scalar(offset).bind(index);
    let offset: i64 = offset.fetch_one(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    write_page_type(path, &[u64::try_from(offset).unwrap()], 0);
}

/// Returns a copy of the PostgreSQL database `original` in which the pages of `table` that contain the rows with the condition
/// `rows`, in SQL, are unreadable. Ends the connections to `original`. The role of the tests must be a superuser, because the server
/// overwrites the pages in its files. A copy is necessary, because the server does not read a page from its file while the page is
/// in its buffers.
pub async fn copy_with_corrupt_pages(
    original: &TestDatabase,
    table: &str,
    rows: &str,
) -> TestDatabase {
    let copy = original.copy().await;
    let mut connection = PgConnection::connect(&original.url()).await.unwrap();
    let file = file_in_copy(&mut connection, table, &copy).await;
    let offsets = format!(
        "SELECT DISTINCT (ctid::text::point)[0]::bigint * current_setting('block_size')::bigint
         FROM {table} WHERE {rows}"
    );
    let offsets = sqlx::query_scalar(AssertSqlSafe(offsets));
    let offsets: Vec<i64> = offsets.fetch_all(&mut connection).await.unwrap();
    assert!(!offsets.is_empty(), "no row of {table} has {rows}");
    for offset in offsets {
        // A program that the server starts runs in the directory of its data. The header of a page never consists of letters.
        let overwrite = format!(
            "COPY (SELECT repeat('x', 64)) TO PROGRAM 'dd of={file} bs=1 seek={offset} conv=notrunc status=none'"
        );
        let overwrite = sqlx::raw_sql(AssertSqlSafe(overwrite));
        connection.execute(overwrite).await.unwrap();
    }
    connection.close().await.unwrap();
    copy
}

/// Returns a copy of the PostgreSQL database `original` in which every page of the B-tree `index` is empty, except the first one,
/// which contains no entries. The requirements are those of [`copy_with_corrupt_pages`].
pub async fn copy_with_empty_index(original: &TestDatabase, index: &str) -> TestDatabase {
    let copy = original.copy().await;
    let mut connection = PgConnection::connect(&original.url()).await.unwrap();
    let file = file_in_copy(&mut connection, index, &copy).await;
    let sizes = format!(
        "SELECT current_setting('block_size')::bigint,
             pg_relation_size('{index}') / current_setting('block_size')::bigint - 1"
    );
    let sizes = sqlx::query_as(AssertSqlSafe(sizes));
    let (page_size, pages): (i64, i64) = sizes.fetch_one(&mut connection).await.unwrap();
    assert!(pages > 0, "{index} has no entries");
    let overwrite = format!(
        "COPY (SELECT 1 WHERE false) TO PROGRAM
             'dd if=/dev/zero of={file} bs={page_size} seek=1 count={pages} conv=notrunc status=none'"
    );
    let overwrite = sqlx::raw_sql(AssertSqlSafe(overwrite));
    connection.execute(overwrite).await.unwrap();
    connection.close().await.unwrap();
    copy
}

/// Returns the path of the file of `relation` in `copy`, a copy of the database of `connection`, relative to the directory of the
/// server's data. A copied relation has the same file name, in the directory of the copy.
async fn file_in_copy(
    connection: &mut PgConnection,
    relation: &str,
    copy: &TestDatabase,
) -> String {
    let file = format!(
        "SELECT regexp_replace(pg_relation_filepath('{relation}'), '^base/[0-9]+', 'base/' || oid)
         FROM pg_database WHERE datname = '{}'",
        copy.name()
    );
    let file = sqlx::query_scalar(AssertSqlSafe(file));
    file.fetch_one(connection).await.unwrap()
}

/// Writes the write-ahead log of the database back into its file, once no other connection prevents that.
async fn write_back_log(path: &Path) {
    let url = format!("sqlite:{}", path.display());
    until("the database consists of one file", async || {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let checkpoint = sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)");
        let is_blocked: i64 = checkpoint.fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        (is_blocked == 0).then_some(())
    })
    .await;
}

fn write_page_type(path: &Path, offsets: &[u64], page_type: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for offset in offsets {
        file.write_all_at(&[page_type], *offset).unwrap();
    }
}
