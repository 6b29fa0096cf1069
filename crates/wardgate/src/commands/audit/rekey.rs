//! `wardgate audit rekey`: moves the record from a former key of the details of calls to the current one.

use wardgate_audit::{DetailsKeys, RekeyOutcome};
use wardgate_domain::Ambient;
use wardgate_store::RekeyProgress;

use crate::Failure;
use crate::cli::{AuditRekey, LogVerbosity};
use crate::commands::progress::{Progress, check_unreadable, print_moved, print_nothing_to_move};
use crate::commands::serve::details_keys;
use crate::commands::up::UpSettings;
use crate::config::{ServiceWiring, Settings, StoreSettings};
use crate::data_dir::{self, DataDir};

/// What the move counts: the words for one and for several.
const THINGS: [&str; 2] = ["key of a data subject", "keys of data subjects"];

pub(super) async fn run(options: &AuditRekey, verbosity: LogVerbosity) -> Result<(), Failure> {
    let (store, keys) = store_and_keys(options)?;
    let mut progress = Progress::for_things(THINGS[1], "moved", verbosity);
    let told = |so_far: &RekeyProgress| progress.print_rekey(so_far);
    let ambient = Ambient::system();
    let outcome = wardgate_audit::rekey(&store.store, &store.database, keys, ambient, told);
    let unreadable = match Box::pin(outcome).await? {
        RekeyOutcome::NotInProgress => {
            println!("the current key is in force; no rotation is in progress");
            0
        }
        RekeyOutcome::NotNeeded { unreadable } => {
            print_nothing_to_move("key", unreadable, THINGS[0]);
            unreadable
        }
        RekeyOutcome::Finished(moved) => {
            print_moved("key", moved.done, THINGS);
            moved.unreadable
        }
    };
    check_unreadable(&[(unreadable, THINGS)])
}

/// Returns the store and the keys of separate services or of `wardgate up`.
fn store_and_keys(options: &AuditRekey) -> Result<(StoreSettings, DetailsKeys), Failure> {
    let Some(file) = &options.config else {
        let dir = DataDir::open_existing(&options.data_dir)?;
        let keys = data_dir::details_keys_of_up(&dir)?;
        return Ok((StoreSettings::file(dir.record()), keys));
    };
    let settings = Settings::load(file)?;
    let (audit, keys) = if settings.has("audit.details_key_file") {
        let (audit, wiring): (wardgate_audit::Config, ServiceWiring) = settings.service("audit")?;
        (audit, details_keys(&wiring)?)
    } else {
        let dir = DataDir::open_existing(&options.data_dir)?;
        let audit = UpSettings::from_settings(&settings, &dir)?.audit;
        (audit, data_dir::details_keys_of_up(&dir)?)
    };
    let store = StoreSettings {
        store: audit.store,
        database: audit.database,
    };
    Ok((store, keys))
}
