//! Versions of a store, and the migrations that it lacks.
//!
//! A program works with a store of its own version or of the next one, because in a rolling upgrade the store is
//! migrated before the last program is replaced. Therefore each release adds at most one version to a store, and a
//! migration may only add to the schema.

/// The error for a store that cannot be brought to the schema of this program, or has not been.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// The store was written by a program that is more than one version ahead.
    #[error(
        "the store has schema version {found}, but this program supports {known}; use the newer program"
    )]
    Newer {
        /// The version of the store.
        found: i64,
        /// The newest version that this program knows.
        known: usize,
    },
    /// The store was written by an older program, and this service is not allowed to migrate it.
    #[error(
        "the store has schema version {found}, but this program requires {known}; run `wardgate migrate --config FILE` with the address \
         of the owner of the tables, or set `migrate: true` under `database`"
    )]
    Older {
        /// The version of the store.
        found: i64,
        /// The version that this program needs.
        known: usize,
    },
    /// The configured role is the one that migrates, which owns the tables and so has every right to them.
    #[error(
        "`role` under `database` is the role that migrates; set it to the one with which the service connects"
    )]
    OwnRole,
    /// The database returned an error or did not respond.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// The versions of a store before and after its migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MigratedVersions {
    /// The version before, or 0 if the store did not exist.
    pub from: i64,
    /// The version after.
    pub to: i64,
}

/// Returns the `migrations` that a store of version `found` lacks. The first n of them make version n.
pub(crate) fn missing_migrations<'a>(
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

/// Checks that a program that knows `migrations` can work with a store of version `found`.
pub(crate) fn check(migrations: &[&'static str], found: i64) -> Result<(), MigrationError> {
    if missing_migrations(migrations, found)?.is_empty() {
        return Ok(());
    }
    let known = migrations.len();
    Err(MigrationError::Older { found, known })
}

/// Returns the version of a store after all of `migrations`, which is `found` if that is newer.
pub(crate) fn version(migrations: &[&'static str], found: i64) -> i64 {
    found.max(i64::try_from(migrations.len()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_done_and_a_store_two_versions_ahead_is_left_alone() {
        let all = ["one", "two"];
        assert_eq!(missing_migrations(&all, 0).unwrap(), all);
        assert_eq!(missing_migrations(&all, 1).unwrap(), ["two"]);
        assert!(missing_migrations(&all, 2).unwrap().is_empty());
        assert!(missing_migrations(&all, 3).unwrap().is_empty());
        for found in [4, -1] {
            let error = missing_migrations(&all, found).unwrap_err();
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
