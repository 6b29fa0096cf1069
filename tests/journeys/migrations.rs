//! Tests of stores whose tables another role owns, and of stores that are one version ahead of the programs that use them.

use std::path::Path;

use sqlx::{AssertSqlSafe, Connection, Executor, PgConnection, SqliteConnection};
use wardgate_domain::Ambient;
use wardgate_testkit::{SeparateProcesses, System, run};

use super::hospital::main_calls;
use super::postgres::{Database, SEPARATE};
use crate::{REPOSITORY, WARDGATE};

/// The services with stores: the names of their sections in the environment, of their schemas and of their commands.
const STORES: [(&str, &str, &str); 4] = [
    ("GATEWAY", "gateway", "gateway"),
    ("TOOL_RUNNER", "tool_runner", "tool-runner"),
    ("AUDIT", "audit", "audit"),
    ("MEMORY", "memory", "memory"),
];

/// Returns a setting with the same value for every service.
fn everywhere(key: &str, value: &str) -> Vec<(String, String)> {
    let set = |(section, ..): (&str, &str, &str)| {
        (format!("WARDGATE_{section}__{key}"), value.to_owned())
    };
    STORES.map(set).to_vec()
}

fn lent(environment: &[(String, String)]) -> Vec<(&str, &str)> {
    let pairs = environment.iter();
    pairs
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .collect()
}

/// A role that the services connect as, which owns nothing.
struct ServiceRole {
    name: String,
    url: String,
}

impl ServiceRole {
    async fn create(database: &Database) -> Self {
        let random = u128::from_be_bytes(Ambient::system().random());
        let name = format!("service_{random:032x}");
        let make = format!("CREATE ROLE {name} LOGIN PASSWORD '{name}'");
        execute(&database.url, &make).await.unwrap();
        let url = format!("{}?user={name}&password={name}", database.url);
        Self { name, url }
    }

    async fn remove(self, database: Database) {
        let Self { name, .. } = self;
        let remove = format!("DROP OWNED BY {name}; DROP ROLE {name}");
        execute(&database.url, &remove).await.unwrap();
        database.remove().await;
    }
}

async fn execute(url: &str, sql: &str) -> Result<(), sqlx::Error> {
    let mut connection = PgConnection::connect(url).await?;
    let done = connection.execute(sqlx::raw_sql(AssertSqlSafe(sql))).await;
    done.map(drop)
}

#[tokio::test]
async fn services_work_with_a_role_that_owns_nothing_on_stores_one_version_ahead() {
    let Some(database) = Database::create().await else {
        return;
    };
    let role = ServiceRole::create(&database).await;
    let mut owner = everywhere("STORE", &database.url);
    owner.extend(everywhere("DATABASE__ROLE", &role.name));
    // The console is not started here, but its store is migrated too.
    owner.push(("WARDGATE_CONSOLE__STORE".to_owned(), database.url.clone()));
    let migrate = || {
        run(
            WARDGATE.as_ref(),
            &["migrate", "--config", SEPARATE],
            &lent(&owner),
        )
    };
    assert!(migrate().success().contains("audit: schema version"));
    // A migration can be repeated.
    migrate().success();
    for (_, schema, _) in STORES {
        widen_postgres(&database.url, schema).await;
    }

    let mut services = everywhere("STORE", &role.url);
    services.extend(everywhere("DATABASE__MIGRATE", "false"));
    let system =
        SeparateProcesses::start_with(WARDGATE, REPOSITORY.as_ref(), &lent(&services)).await;
    main_calls(&system).await;
    drop(system);

    for refused in [
        "UPDATE audit.record SET status = 'ok'",
        "DELETE FROM audit.record",
        "TRUNCATE audit.record",
        "DELETE FROM audit.head",
        "ALTER TABLE audit.record DISABLE TRIGGER ALL",
        "DROP TABLE audit.record",
        "CREATE TABLE audit.other (id bigint)",
        "UPDATE memory.schema_version SET version = 0",
        "CREATE TABLE memory.other (id bigint)",
    ] {
        let error = execute(&role.url, refused).await.unwrap_err();
        let code = error
            .as_database_error()
            .and_then(|error| error.code().map(String::from));
        assert_eq!(code.as_deref(), Some("42501"), "{refused}: {error}");
    }
    role.remove(database).await;
}

#[tokio::test]
async fn a_service_that_may_not_migrate_refuses_an_older_store_and_names_the_command() {
    let Some(database) = Database::create().await else {
        return;
    };
    let mut environment = everywhere("STORE", &database.url);
    environment.extend(everywhere("DATABASE__MIGRATE", "false"));
    environment.extend(everywhere("LISTEN", "127.0.0.1:0"));
    // Keys and certificates must exist, because they are read before the store is opened.
    let system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    let config = system.config().display().to_string();
    for (_, section, command) in STORES {
        let refused = run(
            WARDGATE.as_ref(),
            &[command, "--config", &config],
            &lent(&environment),
        );
        assert_eq!(refused.code, Some(1), "{command}");
        let told = &refused.stderr;
        assert!(told.contains("wardgate migrate"), "{section}: {told}");
    }
    database.remove().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn services_work_on_files_one_version_ahead() {
    let mut system = SeparateProcesses::start(WARDGATE, REPOSITORY.as_ref()).await;
    for (.., command) in STORES {
        widen_sqlite(&system.data_dir().join(format!("{command}.sqlite"))).await;
    }
    tokio::task::block_in_place(|| {
        for (.., command) in STORES {
            system.restart(command);
        }
    });
    system.until_ready(true).await;
    main_calls(&system).await;
    for (.., command) in STORES {
        let file = system.data_dir().join(format!("{command}.sqlite"));
        let mut connection = sqlite(&file).await;
        let version: i64 = sqlx::query_scalar("PRAGMA user_version")
            .fetch_one(&mut connection)
            .await
            .unwrap();
        assert!(version > 1, "{command} keeps the version it finds");
    }
}

/// Applies the largest change that the next version of a schema may make to existing tables, and sets that version.
async fn widen_postgres(url: &str, schema: &str) {
    let widen = format!(
        "DO $$ DECLARE name text; BEGIN
             FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = '{schema}' AND tablename <> 'schema_version' LOOP
                 EXECUTE format('ALTER TABLE {schema}.%I ADD COLUMN of_the_next_version text', name);
             END LOOP;
         END $$;
         UPDATE {schema}.schema_version SET version = version + 1"
    );
    execute(url, &widen).await.unwrap();
}

async fn widen_sqlite(file: &Path) {
    let mut connection = sqlite(file).await;
    let tables = "SELECT name FROM pragma_table_list
        WHERE schema = 'main' AND type = 'table' AND name NOT LIKE 'sqlite_%'";
    let tables: Vec<String> = sqlx::query_scalar(tables)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    for table in tables {
        let add = format!("ALTER TABLE {table} ADD COLUMN of_the_next_version TEXT");
        connection.execute(AssertSqlSafe(add)).await.unwrap();
    }
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    let next = format!("PRAGMA user_version = {}", version + 1);
    connection.execute(AssertSqlSafe(next)).await.unwrap();
}

async fn sqlite(file: &Path) -> SqliteConnection {
    let url = format!("sqlite:{}", file.display());
    SqliteConnection::connect(&url).await.unwrap()
}

#[test]
fn no_statement_of_a_store_depends_on_how_many_columns_a_table_has() {
    let mut inserts = 0;
    for (.., service) in STORES {
        let krate = if service == "gateway" {
            "gateway-store"
        } else {
            service
        };
        for text in sources(&format!("{REPOSITORY}/crates/{krate}/src/store")) {
            for word in ["SELECT *", "RETURNING *"] {
                assert!(!text.contains(word), "{service}: {word}");
            }
            for insert in text.split("INSERT INTO ").skip(1) {
                // The list of columns follows the table and its alias, if there is one.
                let (table, rest) = insert.split_once(char::is_whitespace).unwrap();
                let rest = rest.trim_start();
                let rest = rest.strip_prefix("AS ").map_or(rest, |alias| {
                    alias
                        .split_once(char::is_whitespace)
                        .unwrap()
                        .1
                        .trim_start()
                });
                assert!(
                    rest.starts_with('('),
                    "{service}: name the columns of {table}"
                );
                inserts += 1;
            }
        }
    }
    assert!(inserts > 10, "the statements are elsewhere now");
}

/// Returns the Rust files below a directory, except tests.
fn sources(directory: &str) -> Vec<String> {
    let mut texts = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if matches!(name.as_str(), "tests" | "tests.rs" | "plans.rs") {
            continue;
        }
        if path.is_dir() {
            texts.extend(sources(&path.display().to_string()));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            texts.push(text.split("#[cfg(test)]").next().unwrap().to_owned());
        }
    }
    texts
}
