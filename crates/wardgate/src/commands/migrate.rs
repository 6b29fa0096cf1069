//! `wardgate migrate`: migrates every store of a configuration to its newest schema.

use wardgate_store::{Layout, MigratedVersions};

use crate::Failure;
use crate::cli::ConfigFile;
use crate::config::Settings;

/// Sections of services that have a store, and the layouts of the stores.
const STORES: [(&str, Layout); 5] = [
    ("gateway", wardgate_gateway::LAYOUT),
    ("tool_runner", wardgate_tool_runner::LAYOUT),
    ("audit", wardgate_audit::LAYOUT),
    ("memory", wardgate_memory::LAYOUT),
    ("console", wardgate_console::LAYOUT),
];

pub(crate) async fn run(arguments: &ConfigFile) -> Result<(), Failure> {
    let settings = Settings::load(&arguments.config)?;
    let mut named = 0;
    for (section, layout) in STORES {
        let Some(configured) = settings.store(section)? else {
            continue;
        };
        let wrong = |error: &dyn std::fmt::Display| format!("{section}.store: {error}");
        let address = configured.address().map_err(|error| wrong(&error))?;
        let migrated = layout.migrate(&address, configured.database.role.as_ref());
        let MigratedVersions { from, to } = migrated.await.map_err(|error| wrong(&error))?;
        println!("{section}: schema version {to} (was {from}) in {address}");
        named += 1;
    }
    if named == 0 {
        let file = arguments.config.display();
        return Err(
            format!("{file} contains no store; set `store` in the section of a service").into(),
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the statements of a migration in upper case, without comments.
    fn statements(migration: &str) -> Vec<String> {
        let lines = migration.lines();
        let text: Vec<&str> = lines
            .map(|line| line.split_once("--").map_or(line, |(sql, _)| sql))
            .collect();
        // Bodies of functions are every other part between `$$`. A semicolon in a body does not end a statement.
        let outside = text.join("\n").to_uppercase();
        let text: String = outside.split("$$").step_by(2).collect();
        let statements = text.split(';').map(|one| one.trim().to_owned());
        statements.filter(|one| !one.is_empty()).collect()
    }

    /// Returns whether a program that does not know this statement works as before. An older program does not know the
    /// unique and `NOT NULL` constraints that a statement adds.
    fn only_adds(statement: &str, made: &[&str], indexes: &[String]) -> bool {
        let words: Vec<&str> = statement.split_whitespace().collect();
        match words[..] {
            // `END` remains after the body of a trigger.
            ["CREATE", "TABLE" | "INDEX" | "FUNCTION", ..]
            | ["CREATE", "OR", "REPLACE", "FUNCTION", ..]
            | ["END"] => true,
            // Without a plain index, an older program is slower but returns the same results.
            ["DROP", "INDEX", index] => {
                let name = index.rsplit('.').next().unwrap_or(index);
                indexes.iter().any(|plain| plain == name)
            }
            ["ALTER", "TABLE", _, "ADD", "COLUMN", ..] => {
                !statement.contains("NOT NULL") || statement.contains("DEFAULT")
            }
            ["CREATE", "UNIQUE", "INDEX", _, "ON", table, ..] | ["INSERT", "INTO", table, ..] => {
                made.contains(&table)
            }
            // An older program does not write to a table that it does not know.
            ["CREATE", "TRIGGER", ..] if made.contains(&triggering_table(&words)) => true,
            // A trigger is harmless if its body only adds to what an older program writes.
            ["CREATE", "TRIGGER", _, "AFTER", "INSERT", ..] => (statement.split_once("BEGIN"))
                .is_some_and(|(_, effect)| only_adds(effect.trim(), made, indexes)),
            _ => false,
        }
    }

    /// Returns the table of a `CREATE TRIGGER` statement.
    fn triggering_table<'a>(words: &[&'a str]) -> &'a str {
        let mut words = words.iter().skip_while(|word| **word != "ON");
        words.nth(1).copied().unwrap_or_default()
    }

    /// Returns the names of the non-unique indexes that `migrations` create.
    fn plain_indexes(migrations: &[&str]) -> Vec<String> {
        let statements = migrations
            .iter()
            .flat_map(|migration| statements(migration));
        let names = statements.filter_map(|statement| {
            let rest = statement.strip_prefix("CREATE INDEX ")?;
            rest.split_whitespace().next().map(str::to_owned)
        });
        names.collect()
    }

    fn faults(migration: &str, indexes: &[String]) -> Vec<String> {
        let statements = statements(migration);
        let made: Vec<&str> = statements
            .iter()
            .filter_map(|statement| statement.strip_prefix("CREATE TABLE "))
            .filter_map(|rest| rest.split_whitespace().next())
            .collect();
        let faulty = |statement: &&String| !only_adds(statement, &made, indexes);
        statements.iter().filter(faulty).cloned().collect()
    }

    #[test]
    fn every_migration_after_the_first_only_adds() {
        for (section, layout) in STORES {
            let (postgres, sqlite) = (layout.schema.migrations, layout.sqlite);
            assert_eq!(
                postgres.len(),
                sqlite.len(),
                "{section}: one number, one meaning"
            );
            for migrations in [postgres, sqlite] {
                let indexes = plain_indexes(migrations);
                for migration in &migrations[1..] {
                    assert_eq!(faults(migration, &indexes), [""; 0], "{section}");
                }
            }
        }
    }

    #[test]
    fn what_an_older_program_would_stumble_over_is_seen() {
        for fine in [
            "CREATE TABLE a.b (c bigint); -- as; ever\nCREATE UNIQUE INDEX i ON a.b (c)",
            "CREATE INDEX i ON a.b (c); DROP INDEX a.i",
            "ALTER TABLE a.b ADD COLUMN c text",
            "ALTER TABLE a.b ADD COLUMN c bigint NOT NULL DEFAULT 0",
            "CREATE TABLE a (c bigint); CREATE TRIGGER t AFTER INSERT ON b BEGIN INSERT INTO a (c) SELECT 1; END",
            "CREATE TABLE a (c bigint); CREATE TRIGGER t AFTER DELETE ON a BEGIN UPDATE b SET c = 1; END",
        ] {
            assert_eq!(faults(fine, &plain_indexes(&[fine])), [""; 0], "{fine}");
        }
        for bad in [
            "DROP TABLE a.b",
            "CREATE TABLE a.b (c bigint); CREATE UNIQUE INDEX i ON a.b (c); DROP INDEX a.i",
            "ALTER TABLE a.b RENAME COLUMN c TO d",
            "ALTER TABLE a.b DROP COLUMN c",
            "ALTER TABLE a.b ADD COLUMN c bigint NOT NULL",
            "CREATE UNIQUE INDEX i ON a.b (c)",
            "UPDATE a.b SET c = 1",
            "CREATE TRIGGER t AFTER INSERT ON b BEGIN DELETE FROM a; END",
        ] {
            assert_eq!(faults(bad, &plain_indexes(&[bad])).len(), 1, "{bad}");
        }
    }
}
