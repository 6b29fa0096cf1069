//! The rate limits that the replicas of a service share in PostgreSQL.
//!
//! A bucket is one row with the time at which the bucket will be full (generic cell rate algorithm). All times are
//! those of the database, in microseconds since 1970, so the clocks of the replicas do not matter. The tables `rate`
//! and `rate_replica` are in the schema of the service.

use std::time::Duration;

use wardgate_resilience::{Lease, LeaseRequest};

use crate::{Database, from_row};

/// The SQL statements for the tables of one schema, which [`rate_statements!`](crate::rate_statements) creates.
#[derive(Debug, Clone, Copy)]
pub struct RateStatements {
    /// Takes calls from a bucket.
    pub take: &'static str,
    /// Records that a replica is running, and counts the running replicas.
    pub announce: &'static str,
    /// Removes buckets that are full.
    pub sweep: &'static str,
    /// Removes replicas that are no longer running.
    pub sweep_replicas: &'static str,
}

/// The row that the `take` statement returns.
struct TakenCalls {
    taken: i64,
    /// Microseconds until the bucket is full.
    full_in: i64,
}

from_row!(TakenCalls { taken, full_in });

/// Creates the `RateStatements` for the tables of `$schema`.
#[macro_export]
macro_rules! rate_statements {
    ($schema:literal) => {
        $crate::rate_statements!(@ $schema, "(extract(epoch FROM statement_timestamp()) * 1000000)::bigint")
    };
    (@ $schema:literal, $now:literal) => {
        $crate::rate_statements!(@ $schema, $now, concat!(
            "(CASE WHEN (", $now, " + $6 * $4 - GREATEST(held.full_at, ", $now, ")) / $4 - $5 >= $3 ",
            "THEN LEAST($2, (", $now, " + $6 * $4 - GREATEST(held.full_at, ", $now, ")) / $4 - $5) ELSE 0 END)"
        ))
    };
    (@ $schema:literal, $now:literal, $taken:expr) => {
        $crate::RateStatements {
            take: concat!(
                "INSERT INTO ", $schema, ".rate AS held (bucket, full_at, taken) ",
                "VALUES ($1, ", $now, " + ($2 + $5) * $4, $2) ",
                "ON CONFLICT (bucket) DO UPDATE SET taken = ", $taken, ", ",
                "full_at = GREATEST(held.full_at, ", $now, ") + ($5 + ", $taken, ") * $4 ",
                "RETURNING taken, full_at - ", $now, " AS full_in"
            ),
            announce: concat!(
                "WITH own AS (INSERT INTO ", $schema, ".rate_replica (id, seen_at) VALUES ($1, ", $now, ") ",
                "ON CONFLICT (id) DO UPDATE SET seen_at = excluded.seen_at) ",
                "SELECT count(*) + 1 FROM ", $schema, ".rate_replica ",
                "WHERE id <> $1 AND seen_at > ", $now, " - 15000000"
            ),
            sweep: concat!(
                "DELETE FROM ", $schema, ".rate WHERE bucket IN ",
                "(SELECT bucket FROM ", $schema, ".rate WHERE full_at <= $1 ORDER BY full_at LIMIT $2)"
            ),
            sweep_replicas: concat!(
                "DELETE FROM ", $schema, ".rate_replica WHERE id IN ",
                "(SELECT id FROM ", $schema, ".rate_replica WHERE seen_at + 60000000 <= $1 ORDER BY seen_at LIMIT $2)"
            ),
        }
    };
}

impl Database {
    /// Takes calls from a bucket. The store must be PostgreSQL, because a SQLite file is never shared by replicas.
    pub async fn lease_calls(
        &self,
        statements: RateStatements,
        request: LeaseRequest,
    ) -> Result<Lease, sqlx::Error> {
        let micros = request.interval.as_nanos().div_ceil(1_000);
        let values = [
            request.bucket.as_bytes()[..].into(),
            i64::from(request.calls).into(),
            i64::from(request.least).into(),
            i64::try_from(micros).unwrap_or(i64::MAX).into(),
            i64::from(request.spent).into(),
            i64::from(request.capacity).into(),
        ];
        let rows: Vec<TakenCalls> = self.rows(statements.take, values).await?;
        let taken = rows.first().ok_or(sqlx::Error::RowNotFound)?;
        Ok(Lease {
            calls: u32::try_from(taken.taken).unwrap_or(0),
            full_in: Duration::from_micros(u64::try_from(taken.full_in).unwrap_or(0)),
        })
    }

    /// Records that `replica` is running, and returns the number of running replicas including this one.
    pub async fn announce_replica(
        &self,
        statements: RateStatements,
        replica: [u8; 16],
    ) -> Result<u32, sqlx::Error> {
        let rows: Vec<(i64,)> = self.rows(statements.announce, [replica[..].into()]).await?;
        let replicas = rows.first().map_or(1, |(replicas,)| *replicas);
        Ok(u32::try_from(replicas).unwrap_or(u32::MAX))
    }
}
