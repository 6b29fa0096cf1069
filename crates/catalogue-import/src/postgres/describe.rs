//! Description of PostgreSQL tables: columns, keys, indexes and comments, read from the system catalogue.

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{Connection, Row};

use super::{LIMIT, PostgresOptions};
use crate::ImportError;
use wardgate_sql::postgres_reader;

/// A table or view that the user may read.
#[derive(Debug, Clone)]
pub(super) struct Table {
    pub(super) schema: String,
    pub(super) name: String,
    pub(super) is_view: bool,
    pub(super) comment: Option<String>,
    pub(super) columns: Vec<Column>,
}

/// A column that the user may read.
#[derive(Debug, Clone, Default)]
pub(super) struct Column {
    pub(super) name: String,
    /// The type, or the base type if it is a domain.
    pub(super) base: String,
    pub(super) base_schema: String,
    pub(super) comment: Option<String>,
    /// The position in the primary key, counted from 1.
    pub(super) key_position: Option<i32>,
    /// Whether the column is part of the primary key or of a foreign key.
    pub(super) is_key: bool,
    /// Whether the column is the first of an index.
    pub(super) is_indexed: bool,
    /// The labels if the type is an enumeration.
    pub(super) labels: Vec<String>,
}

impl Column {
    /// Returns whether values of the column's type have a JSON form.
    pub(super) fn has_json_form(&self) -> bool {
        const TYPES: [&str; 26] = [
            "bool",
            "int2",
            "int4",
            "int8",
            "float4",
            "float8",
            "numeric",
            "text",
            "varchar",
            "bpchar",
            "name",
            "citext",
            "bytea",
            "json",
            "jsonb",
            "uuid",
            "date",
            "time",
            "timestamp",
            "timestamptz",
            "_bool",
            "_int2",
            "_int4",
            "_int8",
            "_text",
            "_varchar",
        ];
        TYPES.contains(&self.base.as_str()) || !self.labels.is_empty()
    }
}

/// Query for tables, views, materialized views and foreign tables. Partitions are read through their tables.
const TABLES: &str = "
SELECT c.oid::bigint AS oid, n.nspname::text AS schema, c.relname::text AS name,
       c.relkind IN ('v', 'm') AS is_view, obj_description(c.oid, 'pg_class') AS comment
FROM pg_class c
JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND NOT c.relispartition
  AND n.nspname = ANY($1) AND (cardinality($2::text[]) = 0 OR c.relname = ANY($2))
  AND has_schema_privilege(n.oid, 'USAGE') AND has_any_column_privilege(c.oid, 'SELECT')
ORDER BY array_position($1, n.nspname::text), c.relname
LIMIT $3";

const COLUMNS: &str = "
SELECT a.attrelid::bigint AS oid, a.attname::text AS name, b.typname::text AS base, bn.nspname::text AS base_schema,
       col_description(a.attrelid, a.attnum) AS comment,
       (SELECT array_position(k.conkey, a.attnum) FROM pg_constraint k
        WHERE k.conrelid = a.attrelid AND k.contype = 'p') AS key_position,
       EXISTS (SELECT FROM pg_constraint k
               WHERE k.conrelid = a.attrelid AND k.contype IN ('p', 'f') AND a.attnum = ANY(k.conkey)) AS is_key,
       EXISTS (SELECT FROM pg_index i
               WHERE i.indrelid = a.attrelid AND i.indisvalid AND i.indkey[0] = a.attnum) AS is_indexed,
       ARRAY(SELECT e.enumlabel::text FROM pg_enum e WHERE e.enumtypid = b.oid ORDER BY e.enumsortorder) AS labels
FROM pg_attribute a
JOIN pg_type t ON t.oid = a.atttypid
JOIN pg_type b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
JOIN pg_namespace bn ON bn.oid = b.typnamespace
WHERE a.attrelid::bigint = ANY($1) AND a.attnum > 0 AND NOT a.attisdropped
  AND has_column_privilege(a.attrelid, a.attnum, 'SELECT')
ORDER BY a.attrelid, a.attnum";

/// Reads the tables that `options` selects, and one more than `most` if there are more.
pub(super) async fn tables(
    url: &str,
    options: &PostgresOptions,
    most: usize,
) -> Result<Vec<Table>, ImportError> {
    let mut session = postgres_reader(url, LIMIT)
        .await
        .map_err(|error| failure(&error))?;
    let tables = read_tables(&mut session, options, most)
        .await
        .map_err(|error| failure(&error))?;
    // The tables were read, so an error on closing does not matter.
    let _ = session.close().await;
    Ok(tables)
}

async fn read_tables(
    session: &mut PgConnection,
    options: &PostgresOptions,
    most: usize,
) -> Result<Vec<Table>, sqlx::Error> {
    let limit = i64::try_from(most).unwrap_or(i64::MAX).saturating_add(1);
    let rows = sqlx::query(TABLES)
        .bind(&options.schemas)
        .bind(&options.tables)
        .bind(limit)
        .fetch_all(&mut *session)
        .await?;
    let mut tables = Vec::new();
    for row in &rows {
        let table = Table {
            schema: row.try_get("schema")?,
            name: row.try_get("name")?,
            is_view: row.try_get("is_view")?,
            comment: row.try_get("comment")?,
            columns: Vec::new(),
        };
        tables.push((row.try_get::<i64, _>("oid")?, table));
    }
    let oids: Vec<_> = tables.iter().map(|(oid, _)| *oid).collect();
    let rows = sqlx::query(COLUMNS).bind(&oids).fetch_all(session).await?;
    for row in &rows {
        let oid: i64 = row.try_get("oid")?;
        if let Some((_, table)) = tables.iter_mut().find(|(it, _)| *it == oid) {
            table.columns.push(column(row)?);
        }
    }
    Ok(tables.into_iter().map(|(_, table)| table).collect())
}

fn column(row: &PgRow) -> Result<Column, sqlx::Error> {
    Ok(Column {
        name: row.try_get("name")?,
        base: row.try_get("base")?,
        base_schema: row.try_get("base_schema")?,
        comment: row.try_get("comment")?,
        key_position: row.try_get("key_position")?,
        is_key: row.try_get("is_key")?,
        is_indexed: row.try_get("is_indexed")?,
        labels: row.try_get("labels")?,
    })
}

/// Describes an error without the URL or any part of it.
fn failure(error: &sqlx::Error) -> ImportError {
    let text = match error {
        sqlx::Error::Database(error) => {
            format!("it returned SQLSTATE {}", error.code().unwrap_or_default())
        }
        sqlx::Error::Io(error) => format!("it cannot be reached: {}", error.kind()),
        sqlx::Error::Tls(_) => "its TLS certificate is not accepted".to_owned(),
        sqlx::Error::Configuration(_) => {
            "the URL is not one like postgres://user@host/database".to_owned()
        }
        _ => "its response is not valid".to_owned(),
    };
    ImportError::Database(text)
}
