//! Which migrations a store lacks.

/// A store that cannot be brought to the schema of this program.
#[derive(Debug, thiserror::Error)]
pub enum MigrationError {
    /// A newer program wrote it.
    #[error("the store has schema version {found}, this program knows {known}")]
    Newer {
        /// Version of the store.
        found: i64,
        /// Newest version this program knows.
        known: usize,
    },
    /// The database says no, or does not answer.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// Those of `migrations` that a store of version `found` lacks. Version n is what the first n of them make.
pub(crate) fn missing<'a>(
    migrations: &'a [&'static str],
    found: i64,
) -> Result<&'a [&'static str], MigrationError> {
    let known = migrations.len();
    usize::try_from(found)
        .ok()
        .and_then(|done| migrations.get(done..))
        .ok_or(MigrationError::Newer { found, known })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_done_and_a_newer_store_is_left_alone() {
        let all = ["one", "two"];
        assert_eq!(missing(&all, 0).unwrap(), all);
        assert_eq!(missing(&all, 1).unwrap(), ["two"]);
        assert!(missing(&all, 2).unwrap().is_empty());
        for found in [3, -1] {
            let error = missing(&all, found).unwrap_err();
            assert!(matches!(error, MigrationError::Newer { known: 2, .. }));
        }
    }
}
