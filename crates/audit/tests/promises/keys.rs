//! Tests of the keys of the audit log: a store accepts only the keys that it was used with, unless the configuration says that
//! a key was replaced.

use wardgate_audit::{
    AuditKeys, CallingProcesses, CheckpointKind, Config, Error, LogKey, MacKey, RecordReader,
};
use wardgate_domain::Ambient;
use wardgate_store::DatabaseSettings;
use wardgate_transparency::VerifierKey;

use crate::support::{TestStore, intent, keys, log_key, on_both_stores, subject};

on_both_stores! {
    a_log_starts_with_another_key_only_where_the_former_one_is_named
    a_checkpoint_that_was_altered_is_refused
    digests_are_made_with_another_key_only_where_the_former_one_is_named
    a_store_of_an_earlier_release_takes_the_key_that_it_is_started_with
}

const ORIGIN: &str = "example.com/audit";

/// Starts the service with `keys` and stops it, after it has signed a checkpoint of its records.
async fn start(config: &Config, keys: AuditKeys) -> Result<(), Error> {
    let callers = CallingProcesses::OtherProcesses;
    let started = wardgate_audit::service(config.clone(), keys, callers, None, Ambient::system());
    let (_, closer) = Box::pin(started).await?;
    closer.close().await;
    Ok(())
}

/// Returns [`keys`] with the signing key of `seed`. Seed 1 is that of [`keys`].
fn with_log_key(seed: u8) -> AuditKeys {
    AuditKeys {
        log: LogKey::from_pkcs8(&log_key(seed)).unwrap(),
        ..keys()
    }
}

fn public_key(seed: u8) -> VerifierKey {
    let key = LogKey::from_pkcs8(&log_key(seed)).unwrap();
    key.verifier_key(ORIGIN).unwrap()
}

async fn a_log_starts_with_another_key_only_where_the_former_one_is_named(store: &TestStore) {
    let config = Config {
        log_origin: Some(ORIGIN.to_owned()),
        ..Config::for_store(&store.url)
    };
    start(&config, with_log_key(1)).await.unwrap();
    let unnamed = Config::for_store(&store.url);
    for config in [&config, &unnamed] {
        let refused = start(config, with_log_key(2)).await.unwrap_err();
        assert!(
            matches!(&refused, Error::OtherLogKey { configured } if *configured == public_key(2).to_string()),
            "{refused}"
        );
    }
    let replacing = |former: String| Config {
        former_log_key: Some(former),
        ..config.clone()
    };
    let of_another = replacing(public_key(3).to_string());
    let refused = start(&of_another, with_log_key(2)).await.unwrap_err();
    assert!(matches!(refused, Error::OtherLogKey { .. }), "{refused}");
    let unfit = start(&replacing("a key".to_owned()), with_log_key(2)).await;
    assert!(matches!(unfit, Err(Error::FormerLogKey(_))), "{unfit:?}");

    start(&replacing(public_key(1).to_string()), with_log_key(2))
        .await
        .unwrap();
    let reader = RecordReader::open(&store.url, &DatabaseSettings::default())
        .await
        .unwrap();
    let note = reader.checkpoint(CheckpointKind::Signed).await.unwrap();
    public_key(2).verify(&note).unwrap();
    // From then on, the former key is refused.
    start(&config, with_log_key(2)).await.unwrap();
    let refused = start(&config, with_log_key(1)).await.unwrap_err();
    assert!(matches!(refused, Error::OtherLogKey { .. }), "{refused}");
}

async fn a_checkpoint_that_was_altered_is_refused(store: &TestStore) {
    let config = Config::for_store(&store.url);
    let service = store.service().await;
    let record = intent(&subject());
    service.audit.append(&record, false).await.unwrap();
    service.closer.close().await;
    let altered = [
        // The checkpoint states two records in place of one.
        "replace(checkpoint, chr(10) || '1' || chr(10), chr(10) || '2' || chr(10))",
        "'no checkpoint'",
        // The last letters are part of the signature.
        "left(checkpoint, length(checkpoint) - 8) || 'AAAAAA==' || chr(10)",
    ];
    for checkpoint in altered {
        store
            .execute("UPDATE tree SET cosigned = checkpoint")
            .await
            .unwrap();
        let alter = format!("UPDATE tree SET checkpoint = {checkpoint}");
        let alter = if store.is_sqlite() {
            alter
                .replace("chr(", "char(")
                .replace("left(checkpoint,", "substr(checkpoint, 1,")
        } else {
            alter
        };
        store.execute(&alter).await.unwrap();
        let refused = start(&config, keys()).await.unwrap_err();
        assert!(
            matches!(refused, Error::AlteredCheckpoint(_)),
            "{checkpoint}: {refused}"
        );
        store
            .execute("UPDATE tree SET checkpoint = cosigned")
            .await
            .unwrap();
        start(&config, keys()).await.unwrap();
    }
}

fn with_mac_key(byte: u8) -> AuditKeys {
    AuditKeys {
        mac: MacKey::from_bytes(&[byte; 32]),
        ..keys()
    }
}

async fn digests_are_made_with_another_key_only_where_the_former_one_is_named(store: &TestStore) {
    let config = Config::for_store(&store.url);
    start(&config, with_mac_key(7)).await.unwrap();
    start(&config, with_mac_key(7)).await.unwrap();
    let refused = start(&config, with_mac_key(8)).await.unwrap_err();
    let Error::OtherMacKey { stored } = refused else {
        panic!("{refused}")
    };
    let replacing = |former: String| Config {
        former_mac_key: Some(former),
        ..config.clone()
    };
    let unfit = start(&replacing("7".to_owned()), with_mac_key(8)).await;
    assert!(matches!(unfit, Err(Error::FormerMacKey)), "{unfit:?}");
    let other = start(&replacing("0".repeat(64)), with_mac_key(8)).await;
    assert!(matches!(other, Err(Error::OtherMacKey { .. })), "{other:?}");
    start(&replacing(stored.to_string()), with_mac_key(8))
        .await
        .unwrap();
    // From then on, the former key is refused.
    start(&config, with_mac_key(8)).await.unwrap();
    let refused = start(&config, with_mac_key(7)).await.unwrap_err();
    assert!(matches!(refused, Error::OtherMacKey { .. }), "{refused}");
}

async fn a_store_of_an_earlier_release_takes_the_key_that_it_is_started_with(store: &TestStore) {
    let config = Config::for_store(&store.url);
    start(&config, with_mac_key(7)).await.unwrap();
    store
        .execute("UPDATE head SET mac_check = NULL")
        .await
        .unwrap();
    start(&config, with_mac_key(8)).await.unwrap();
    let refused = start(&config, with_mac_key(7)).await.unwrap_err();
    assert!(matches!(refused, Error::OtherMacKey { .. }), "{refused}");
}
