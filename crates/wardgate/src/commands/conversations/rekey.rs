//! `wardgate conversations rekey`: moves the store of conversations from a former master key to the current one.

use std::path::Path;

use figment::value::Dict;
use wardgate_domain::{Ambient, mark_invisible};
use wardgate_memory::{MasterKeys, RekeyEvent, RekeyOutcome};

use crate::Failure;
use crate::cli::{LogVerbosity, RekeyOptions};
use crate::commands::progress::{Progress, check_unreadable, print_moved, print_nothing_to_move};
use crate::commands::serve::require_key_file;
use crate::commands::up::UpSettings;
use crate::config::{ServiceWiring, Settings, StoreSettings};
use crate::data_dir::{self, DataDir};

/// What the move counts: the words for one and for several.
const THINGS: [&str; 2] = ["conversation", "conversations"];

const MESSAGES: [&str; 2] = ["message", "messages"];

pub(super) async fn run(options: &RekeyOptions, verbosity: LogVerbosity) -> Result<(), Failure> {
    let (store, keys) = store_and_keys(options)?;
    let mut moving = Progress::for_things(THINGS[1], "moved", verbosity);
    let mut checking = Progress::for_things(THINGS[1], "checked", verbosity);
    let told = |event: RekeyEvent<'_>| match event {
        RekeyEvent::Moved(so_far) => moving.print_rekey(so_far),
        RekeyEvent::UnreadableMessages(count) => {
            let [one, many] = MESSAGES;
            let things = if count == 1 { one } else { many };
            eprintln!("{count} {things} of moved conversations cannot be decrypted");
        }
        RekeyEvent::Checked(count) => checking.print_count(count, None),
        RekeyEvent::Unreadable(key) => {
            let key = mark_invisible(key);
            eprintln!("the current master key does not decrypt the conversation {key}");
        }
    };
    let ambient = Ambient::system();
    let outcome = wardgate_memory::rekey(&store.store, &store.database, keys, ambient, told);
    let (unreadable, unreadable_messages) = match outcome.await? {
        RekeyOutcome::NotNeeded { unreadable } => {
            print_nothing_to_move("master key", unreadable, THINGS[0]);
            (unreadable, 0)
        }
        RekeyOutcome::Finished {
            conversations,
            unreadable_messages,
        } => {
            print_moved("master key", conversations.done, THINGS);
            (conversations.unreadable, unreadable_messages)
        }
    };
    check_unreadable(&[(unreadable, THINGS), (unreadable_messages, MESSAGES)])
}

/// Returns the store and the master keys of separate services or of `wardgate up`.
fn store_and_keys(options: &RekeyOptions) -> Result<(StoreSettings, MasterKeys), Failure> {
    let Some(file) = &options.config else {
        let dir = DataDir::open_existing(&options.data_dir)?;
        return Ok((StoreSettings::file(dir.memory_store()), keys_of_up(&dir)?));
    };
    let settings = Settings::load(file)?;
    if settings.has("memory.master_key_file") {
        let (_, wiring): (Dict, ServiceWiring) = settings.service("memory")?;
        let store = settings.store("memory")?;
        let store = store.ok_or_else(|| missing_key(file, "memory.store"))?;
        let current = require_key_file(wiring.master_key_file.as_ref(), "memory.master_key_file")?;
        let keys = data_dir::memory_keys(current, &wiring.former_master_key_files)?;
        return Ok((store, keys));
    }
    let dir = DataDir::open_existing(&options.data_dir)?;
    let memory = UpSettings::from_settings(&settings, &dir)?.memory;
    let store = StoreSettings {
        store: memory.store,
        database: memory.database,
    };
    Ok((store, keys_of_up(&dir)?))
}

fn keys_of_up(dir: &DataDir) -> Result<MasterKeys, Failure> {
    Ok(data_dir::memory_keys(
        &dir.memory_key(),
        &dir.former_memory_keys(),
    )?)
}

fn missing_key(file: &Path, key: &str) -> String {
    format!("{} does not set {key}", file.display())
}
