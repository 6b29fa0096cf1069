//! SQLite: the file itself holds its version.

use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};

use crate::migration::{MigrationError, missing};

/// Brings a file to the schema that `migrations` make, all or nothing; of two programs one waits for the other.
pub async fn migrate(
    connection: &mut SqliteConnection,
    migrations: &[&'static str],
) -> Result<(), MigrationError> {
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await?;
    let found: i64 = sqlx::query_scalar("PRAGMA user_version")
        .fetch_one(&mut *transaction)
        .await?;
    for migration in missing(migrations, found)? {
        sqlx::raw_sql(*migration).execute(&mut *transaction).await?;
    }
    let version = format!("PRAGMA user_version = {}", migrations.len());
    sqlx::raw_sql(AssertSqlSafe(version))
        .execute(&mut *transaction)
        .await?;
    Ok(transaction.commit().await?)
}
