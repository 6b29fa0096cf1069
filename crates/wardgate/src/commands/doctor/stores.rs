//! Checks of databases: they can be reached and written to, have the schema of this program, and let nobody change the
//! record.

use std::fs::OpenOptions;
use std::path::Path;
use std::time::Duration;

use futures::future::join_all;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection};
use tokio::time::timeout;
use wardgate_domain::{Ambient, Timestamp};
use wardgate_store::postgres::PostgresServer;
use wardgate_store::{Address, Layout};

use super::clock;
use super::finding::{Finding, FindingSubject};
use crate::config::StoreSettings;

/// Timeout of the checks of one database.
const LIMIT: Duration = Duration::from_secs(5);

/// The store of one service.
#[derive(Debug, Clone)]
pub(super) struct ServiceStore {
    /// The key of the configuration that names the store.
    pub(super) setting: &'static str,
    pub(super) configured: StoreSettings,
    pub(super) layout: &'static Layout,
}

pub(super) async fn examine(stores: &[ServiceStore]) -> Vec<Finding> {
    let all = stores.iter().map(examine_one);
    join_all(all).await.into_iter().flatten().collect()
}

async fn examine_one(store: &ServiceStore) -> Vec<Finding> {
    let about = FindingSubject::new("store", store.setting);
    let address = match store.configured.address() {
        Ok(address) => address,
        Err(error) => {
            let remedy = format!("fix {}", store.setting);
            return vec![about.fail(format!("{error}"), remedy)];
        }
    };
    let about = FindingSubject::new("store", format!("{}, {address}", store.setting));
    let looking = async {
        match &address {
            Address::Sqlite(path) => sqlite(&about, path, store.layout).await,
            Address::Postgres(server) => postgres(&about, server, store).await,
        }
    };
    match timeout(LIMIT, looking).await {
        Ok(Ok(findings)) => findings,
        Ok(Err(error)) => vec![about.fail(format!("cannot be read: {error}"), remedy(&error))],
        Err(_) => {
            let what = format!("does not answer within {} s", LIMIT.as_secs());
            vec![about.fail(
                what,
                "check that the database runs and is reachable from here",
            )]
        }
    }
}

/// Returns how to fix an error of a database. Connection poolers cause errors of their own kinds.
fn remedy(error: &sqlx::Error) -> &'static str {
    let code = error
        .as_database_error()
        .and_then(sqlx::error::DatabaseError::code);
    match code.as_deref() {
        // A prepared statement is missing, or exists already: another client used the connection in between.
        Some("26000" | "42P05") => {
            "a connection pooler uses another connection for each transaction and loses prepared statements: configure session pooling, \
             or set its `max_prepared_statements` (pgBouncer 1.21 or later)"
        }
        Some("08P01") => {
            "if a connection pooler is used, configure it to ignore unknown startup parameters: `ignore_startup_parameters = \
             extra_float_digits, options` (pgBouncer)"
        }
        _ => {
            "check that the database runs, is reachable from here, and accepts the user of the store"
        }
    }
}

async fn sqlite(
    about: &FindingSubject,
    path: &Path,
    layout: &Layout,
) -> Result<Vec<Finding>, sqlx::Error> {
    if let Err(error) = OpenOptions::new().append(true).open(path) {
        let remedy =
            "start the service once, which creates it, or fix the path and its permissions";
        return Ok(vec![
            about.fail(format!("cannot be written: {error}"), remedy),
        ]);
    }
    let options = SqliteConnectOptions::new().filename(path).read_only(true);
    let mut connection = options.connect().await?;
    let version: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut connection)
        .await?;
    connection.close().await?;
    Ok(vec![schema(about, version, layout.sqlite.len())])
}

async fn postgres(
    about: &FindingSubject,
    server: &PostgresServer,
    store: &ServiceStore,
) -> Result<Vec<Finding>, sqlx::Error> {
    let name = store.layout.schema.name;
    let connection = server.connect(|options| {
        let options = options.application_name("wardgate doctor");
        options.options([("statement_timeout", ASKED_FOR)])
    });
    let mut connection = connection.await?;
    let (role, micros, standby): (String, i64, bool) = sqlx::query_as(
        "SELECT current_user::text, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint, pg_is_in_recovery()",
    )
    .fetch_one(&mut connection)
    .await?;
    let now = Ambient::system().now();
    let mut findings = Vec::new();
    findings.extend(in_between(about, &role, store, &mut connection).await?);
    if standby {
        let remedy = "specify the primary; a standby does not accept writes";
        findings.push(about.fail("is a standby", remedy));
    }
    let table = format!("{name}.schema_version");
    let exists: bool = sqlx::query_scalar("SELECT to_regclass($1) IS NOT NULL")
        .bind(&table)
        .fetch_one(&mut connection)
        .await?;
    let version = if exists {
        let version = format!("SELECT version FROM {table}");
        sqlx::query_scalar(AssertSqlSafe(version))
            .fetch_one(&mut connection)
            .await?
    } else {
        0
    };
    findings.push(schema(about, version, store.layout.schema.migrations.len()));
    if exists && store.setting == RECORD {
        findings.push(grants(about, &role, &mut connection).await?);
    }
    let theirs = Timestamp::from_micros(micros);
    let subject = format!("database of {}", store.setting);
    findings.push(clock::compare(&subject, theirs, now));
    connection.close().await?;
    Ok(findings)
}

/// An unusual `statement_timeout`, by which the check recognizes whether its own setting took effect.
const ASKED_FOR: &str = "4999ms";

/// Checks whether a pooler drops the settings that a service requests when it connects. If so, the role must have them.
async fn in_between(
    about: &FindingSubject,
    role: &str,
    store: &ServiceStore,
    connection: &mut PgConnection,
) -> Result<Option<Finding>, sqlx::Error> {
    let (limit, commits): (String, String) = sqlx::query_as(
        "SELECT current_setting('statement_timeout'), current_setting('synchronous_commit')",
    )
    .fetch_one(connection)
    .await?;
    if limit == ASKED_FOR {
        return Ok(None);
    }
    if store.setting == RECORD && commits == "off" {
        let remedy = format!("ALTER ROLE \"{role}\" SET synchronous_commit = on");
        let what = "a connection pooler drops `synchronous_commit`, so records are acknowledged before they are durable";
        return Ok(Some(about.fail(what, remedy)));
    }
    let remedy = format!("ALTER ROLE \"{role}\" SET statement_timeout = '2s'");
    let what = "a connection pooler drops `statement_timeout`, and the role sets none";
    Ok((limit == "0").then(|| about.warn(what, remedy)))
}

fn schema(about: &FindingSubject, found: i64, known: usize) -> Finding {
    let known = i64::try_from(known).unwrap_or(i64::MAX);
    let message = format!("has schema version {found}");
    match found.cmp(&known) {
        std::cmp::Ordering::Equal => about.ok(message),
        std::cmp::Ordering::Less => about.fail(
            format!("{message}, this program requires {known}"),
            "run `wardgate migrate` with the same configuration",
        ),
        std::cmp::Ordering::Greater => about.warn(
            format!("{message}, this program supports {known}"),
            "finish the upgrade: a newer program migrated the store",
        ),
    }
}

/// The setting of the store whose rows must not be changed.
const RECORD: &str = "audit.store";

async fn grants(
    about: &FindingSubject,
    role: &str,
    connection: &mut PgConnection,
) -> Result<Finding, sqlx::Error> {
    let (adds, changes): (bool, bool) = sqlx::query_as(
        "SELECT has_table_privilege('audit.record', 'INSERT'),
                has_table_privilege('audit.record', 'UPDATE, DELETE, TRUNCATE')",
    )
    .fetch_one(connection)
    .await?;
    Ok(match (adds, changes) {
        (false, _) => about.fail(
            format!("`{role}` cannot add audit records"),
            "run `wardgate migrate` as its owner, which grants it",
        ),
        (true, true) => about.warn(
            format!("`{role}` could change or remove audit records if it dropped the trigger that prevents this, which it is allowed to \
                     drop"),
            "use a role that owns no tables for the services, and the owner's role for `wardgate migrate`",
        ),
        (true, false) => about.ok(format!("`{role}` can add audit records and cannot change them")),
    })
}
