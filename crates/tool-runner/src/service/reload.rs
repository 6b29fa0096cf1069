//! The catalogue in force: its files are read again, and its version and the readiness are published.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use metrics::counter;
use tracing::{error, info, warn};
use wardgate_catalogue::{Catalogue, Files};
use wardgate_domain::Digest;
use wardgate_rpc::Readiness;
use wardgate_telemetry::{SecretFilesInUse, SecretKind, names};

use super::Runner;
use crate::Error;
use crate::loaded::LoadedCatalogue;
use crate::switchboard::Switches;

impl Runner {
    /// Publishes the version of the catalogue and the switches if it has changed.
    pub(super) fn publish_version(&self) {
        self.version.send_if_modified(|current| {
            let switches = self.switchboard.current();
            let version = version(&self.loaded.load(), switches.as_deref());
            let changed = *current != version;
            *current = version;
            changed
        });
    }

    /// Publishes the readiness if it has changed.
    pub(super) fn publish_readiness(&self) {
        self.readiness.send_if_modified(|current| {
            let readiness = if self.switchboard.current().is_none() {
                Readiness::NotReady("the switches have not been read yet".to_owned())
            } else if self.is_outdated.load(Ordering::Relaxed) {
                Readiness::Outdated(
                    "the changed catalogue has an error; the previous one stays in force",
                )
            } else {
                Readiness::Ready
            };
            let changed = *current != readiness;
            *current = readiness;
            changed
        });
    }

    /// Puts the files in force if they differ from those last `seen` and have no faults. Returns whether it did.
    pub(crate) async fn reload(&self, seen: &mut Files) -> bool {
        let path = self.config.catalogue.clone();
        let attached = seen.attached.clone();
        let read = tokio::task::spawn_blocking(move || Files::load(&path, &attached)).await;
        // A file that is missing while it is being replaced changes nothing.
        let Ok(Ok(found)) = read else {
            return false;
        };
        if found == *seen || found.texts.is_empty() {
            return false;
        }
        *seen = found;
        let reloaded = self.try_reload(seen, log_warnings);
        self.is_outdated.store(reloaded.is_err(), Ordering::Relaxed);
        self.publish_readiness();
        match reloaded {
            Ok(version) => {
                seen.attached = self.loaded.load().attached_files();
                counter!(names::CATALOGUE_RELOADS, "outcome" => "loaded").increment(1);
                info!(%version, "the tool catalogue changed and is in force");
                true
            }
            Err(error) => {
                counter!(names::CATALOGUE_RELOADS, "outcome" => "faulty").increment(1);
                error!(%error, "the changed tool catalogue has errors; the previous one stays in force");
                false
            }
        }
    }

    /// Imports what upstreams offer now, in addition to the files that are in force.
    pub(super) fn reimport(&self, files: &Files) {
        match self.try_reload(files, |_| {}) {
            Ok(version) => info!(%version, "the tools of the upstream servers were read again"),
            Err(error) => {
                error!(%error, "the tools of the upstream servers cannot be loaded; the previous ones stay in force");
            }
        }
    }

    fn try_reload(&self, files: &Files, log: fn(&Catalogue)) -> Result<Digest, Error> {
        let mut catalogue =
            Catalogue::parse(&files.texts, &self.config.variables).map_err(Error::Catalogue)?;
        log(&catalogue);
        self.importer.import(&mut catalogue, &files.lock)?;
        let previous = self.loaded.load();
        let loaded = LoadedCatalogue::new(
            catalogue,
            &self.config,
            &self.keys,
            &self.shared,
            Some(&previous),
        )?;
        let version = loaded.version();
        self.importer.follow(loaded.upstreams());
        loaded.contents().follow_servers(&self.shared.following);
        let secret_files = SecretFilesInUse::record(SecretKind::Credential, loaded.secret_files());
        self.secret_files.store(Arc::new(secret_files));
        self.loaded.store(Arc::new(loaded));
        self.publish_version();
        Ok(version)
    }
}

/// Logs the warnings about a changed file, with the file, the line and the remedy.
pub(super) fn log_warnings(catalogue: &Catalogue) {
    let unclassified = catalogue.unclassified_columns();
    for warning in catalogue.warnings().iter().chain(&unclassified) {
        warn!("{warning}");
    }
}

/// Returns the version of the list of tools, which differs for any two lists with different contents.
pub(super) fn version(loaded: &LoadedCatalogue, switches: Option<&Switches>) -> Digest {
    let servers = loaded.servers();
    let servers = servers.iter();
    let shown_by_servers: Vec<_> = servers
        .map(|server| {
            let shown = *server.observed_server().borrow();
            (shown.has_tasks, shown.declares)
        })
        .collect();
    Digest::of_parts([
        loaded.version().as_bytes().as_slice(),
        shown_version(loaded, switches).as_bytes(),
        format!("{shown_by_servers:?}").as_bytes(),
    ])
}

/// Returns the version of the part of the list that callers are shown.
pub(super) fn shown_version(loaded: &LoadedCatalogue, switches: Option<&Switches>) -> Digest {
    let switches = switches.map_or(0, Switches::version).to_be_bytes();
    Digest::of_parts([loaded.shown_version().as_bytes().as_slice(), &switches])
}
