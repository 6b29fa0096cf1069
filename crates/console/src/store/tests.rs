//! Tests of the start of the store.

use sqlx::{ConnectOptions, Connection};

use super::*;

async fn open(url: &str) -> Result<Arc<ConsoleStore>, StoreError> {
    let (settings, key) = (DatabaseSettings::default(), CookieKey::from_bytes(&[7; 32]));
    ConsoleStore::open(url, &settings, &key, Ambient::system()).await
}

#[tokio::test]
async fn a_file_that_another_program_has_locked_is_waited_for() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("console.sqlite");
    let options = sqlx::sqlite::SqliteConnectOptions::new()
        .filename(&path)
        .create_if_missing(true);
    let mut other = options.connect().await.unwrap();
    let lock = other.begin_with("BEGIN EXCLUSIVE").await.unwrap();
    let url = format!("sqlite:{}", path.display());
    let opening = tokio::spawn(async move { open(&url).await.map(drop) });
    // This is longer than any other operation waits for the store.
    tokio::time::sleep(LIMIT + Duration::from_secs(1)).await;
    assert!(!opening.is_finished());
    lock.rollback().await.unwrap();
    opening.await.unwrap().unwrap();
}

#[tokio::test]
async fn a_file_that_cannot_be_made_is_refused_at_once() {
    let nowhere = open("sqlite:/nowhere/at/all.sqlite").await;
    assert!(matches!(nowhere.err(), Some(StoreError::Database(_))));
}
