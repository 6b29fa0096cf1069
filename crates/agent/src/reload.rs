//! Reloads assistants when their files change, if the new files are valid.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::time::MissedTickBehavior;
use wardgate_telemetry::{SecretFilesInUse, SecretKind, names};

use crate::Error;
use crate::assistant::{Assistants, SecretFiles, Text, texts};

/// Parses assistants from files and collects the secret files that they refer to.
pub(crate) type Parse =
    dyn Fn(&[Text], &mut SecretFiles) -> Result<Assistants, Error> + Send + Sync;

/// The files that the assistants in force were parsed from.
pub(crate) struct LoadedFiles {
    pub(crate) texts: Vec<Text>,
    pub(crate) secret_files: SecretFiles,
    pub(crate) in_use: SecretFilesInUse,
}

/// Checks the files every `interval` for as long as `in_force` is in use. Each changed set of files is tried once.
pub(crate) fn watch(
    in_force: &Arc<ArcSwap<Assistants>>,
    path: PathBuf,
    mut loaded: LoadedFiles,
    parse: Arc<Parse>,
    interval: Duration,
) {
    let in_force = Arc::downgrade(in_force);
    tokio::spawn(async move {
        let mut ticker = tokio::time::interval(interval);
        ticker.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticker.tick().await;
            let path = path.clone();
            let secret_files = loaded.secret_files;
            let read = tokio::task::spawn_blocking(move || {
                let are_changed = secret_files.are_changed();
                (texts(&path), secret_files, are_changed)
            });
            let Ok((read, files, are_changed)) = read.await else {
                return;
            };
            loaded.secret_files = files;
            if in_force.strong_count() == 0 {
                return;
            }
            // Files that are unreadable now may be in the middle of being replaced.
            if let Ok(now) = read
                && (are_changed || now != loaded.texts)
            {
                loaded.secret_files = SecretFiles::default();
                if take_up(&in_force, &now, &*parse, &mut loaded.secret_files) {
                    let paths = loaded.secret_files.paths();
                    let used = SecretFilesInUse::record(SecretKind::Credential, paths);
                    drop(std::mem::replace(&mut loaded.in_use, used));
                }
                loaded.texts = now;
            }
        }
    });
}

/// Puts the assistants of `texts` in force. Returns whether they are usable.
fn take_up(
    in_force: &Weak<ArcSwap<Assistants>>,
    texts: &[Text],
    parse: &Parse,
    secret_files: &mut SecretFiles,
) -> bool {
    let Some(in_force) = in_force.upgrade() else {
        return false;
    };
    match parse(texts, secret_files) {
        Ok(assistants) => {
            in_force.store(Arc::new(assistants));
            metrics::counter!(names::AGENT_RELOADS, "outcome" => "swapped").increment(1);
            tracing::info!("changed assistants are in force");
            true
        }
        Err(error) => {
            metrics::counter!(names::AGENT_RELOADS, "outcome" => "refused").increment(1);
            tracing::error!(cause = %error, "the changed assistants are not usable; the ones in force stay");
            false
        }
    }
}
