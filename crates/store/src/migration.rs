//! Which migrations a store lacks.
//!
//! A program works with a store of its own version, or of the next: in a rolling upgrade the store is new before the last
//! program is. So each release brings at most one version of a store, and what a migration makes may only add.

/// A store that cannot be brought to the schema of this program, or was not.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A program more than one version ahead wrote it.
    #[error(
        "the store has schema version {found}, this program knows {known}; use the newer program"
    )]
    Newer {
        /// Version of the store.
        found: i64,
        /// Newest version this program knows.
        known: usize,
    },
    /// An older program wrote it, and it is not this one's to change.
    #[error(
        "the store has schema version {found}, this program needs {known}; run `wardgate migrate --config FILE` with the address of the owner of the tables, or set `migrate: true` under `database`"
    )]
    Older {
        /// Version of the store.
        found: i64,
        /// Version this program needs.
        known: usize,
    },
    /// The role that owns the tables can do everything with them.
    #[error(
        "`role` under `database` names the role that migrates; name the one that the service connects as"
    )]
    OwnRole,
    /// The database says no, or does not answer.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Versions of a store, before and after.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigratedVersions {
    /// What it had; 0: it was not there.
    pub from: i64,
    /// What it has.
    pub to: i64,
}

/// Those of `migrations` that a store of version `found` lacks. Version n is what the first n of them make.
pub(crate) fn missing<'a>(
    migrations: &'a [&'static str],
    found: i64,
) -> Result<&'a [&'static str], MigrationError> {
    let known = migrations.len();
    let newer = MigrationError::Newer { found, known };
    match usize::try_from(found) {
        Ok(next) if next == known + 1 => Ok(&[]),
        Ok(done) => migrations.get(done..).ok_or(newer),
        Err(_) => Err(newer),
    }
}

/// Whether a program that knows `migrations` can work with a store of version `found` as it is.
pub(crate) fn check(migrations: &[&'static str], found: i64) -> Result<(), MigrationError> {
    if missing(migrations, found)?.is_empty() {
        return Ok(());
    }
    let known = migrations.len();
    Err(MigrationError::Older { found, known })
}

/// The version after all of `migrations`, for a store of version `found`.
pub(crate) fn version(migrations: &[&'static str], found: i64) -> i64 {
    found.max(i64::try_from(migrations.len()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_done_and_a_store_two_versions_ahead_is_left_alone() {
        let all = ["one", "two"];
        assert_eq!(missing(&all, 0).unwrap(), all);
        assert_eq!(missing(&all, 1).unwrap(), ["two"]);
        assert!(missing(&all, 2).unwrap().is_empty());
        assert!(missing(&all, 3).unwrap().is_empty());
        for found in [4, -1] {
            let error = missing(&all, found).unwrap_err();
            assert!(matches!(error, MigrationError::Newer { known: 2, .. }));
        }
    }

    #[test]
    fn a_program_that_may_not_migrate_refuses_an_older_store_and_names_the_command() {
        let all = ["one", "two"];
        assert!(check(&all, 2).is_ok() && check(&all, 3).is_ok());
        let message = check(&all, 1).unwrap_err().to_string();
        assert!(
            message.contains("version 1") && message.contains("wardgate migrate"),
            "{message}"
        );
    }

    #[test]
    fn a_store_of_the_next_version_keeps_it() {
        assert_eq!(version(&["one"], 0), 1);
        assert_eq!(version(&["one"], 2), 2);
    }
}
