//! Corrupt pages of SQLite databases.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use sqlx::{Connection, SqliteConnection};

use crate::until::until;

/// The type of a page that contains rows of a table.
const TABLE_LEAF: u8 = 13;

/// Makes the pages of the SQLite database at `path` that contain rows with one of `texts` unreadable. Other programs must not
/// write to the database. Returns the offsets of the pages in the file, for [`repair_sqlite_pages`].
pub async fn corrupt_sqlite_pages(path: &Path, texts: &[String]) -> Vec<u64> {
    let url = format!("sqlite:{}", path.display());
    until("the database consists of one file", async || {
        let mut connection = SqliteConnection::connect(&url).await.unwrap();
        let checkpoint = sqlx::query_scalar("PRAGMA wal_checkpoint(TRUNCATE)");
        let is_blocked: i64 = checkpoint.fetch_one(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        (is_blocked == 0).then_some(())
    })
    .await;
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

fn write_page_type(path: &Path, offsets: &[u64], page_type: u8) {
    let file = OpenOptions::new().write(true).open(path).unwrap();
    for offset in offsets {
        file.write_all_at(&[page_type], *offset).unwrap();
    }
}
