//! Random rules over random rows: the rows that a tool releases are those that an independent oracle admits, on each
//! database, with the rule pushed down and without.
//!
//! The oracle is the meaning of each generated policy in plain Rust ([`policies`]). It uses neither Cedar nor SQL.
//! `ORACLE_ROWS` sets the number of decisions about rows with the rule pushed down, and `ORACLE_SEED` the seed.
//! `make test` compares a million.

mod policies;
mod rows;

use wardgate_testkit::{SeededRandom, TestDatabase, number_from_environment};

use self::policies::SampleRule;
use self::rows::{SampleRow, TABLE};
use super::database;
use super::harness::Harness;

/// Number of decisions on all databases together, unless the environment variable sets another one. An unoptimised
/// build makes about 15,000 per second.
const DECISIONS: (&str, u64) = ("ORACLE_ROWS", 60_000);

/// Seed of the rows and rules, unless the environment variable sets another one.
const SEED: (&str, u64) = ("ORACLE_SEED", 1);

/// Number of rows of a table.
const ROWS: u64 = 400;

/// Number of rules that are applied to the same rows.
const RULES: u64 = 10;

/// The tool. `note` and `born` are left to the check of the tool-runner.
const TOOLS: &str = r#"
sources:
  rows: { type: "${TYPE}", url: "${URL}", max_connections: 4 }
tools:
  - name: people
    description: Rows that the policy governs.
    annotations: { readOnlyHint: true }
    input_schema: { type: object, properties: {} }
    execute:
      type: sql
      source: rows
      statement: >
        SELECT r.id, r.code, r.doctor, r.ward, r.note, r.amount, r.born, r.sealed, r.level
        FROM people r WHERE :row_rule ORDER BY r.id
    result:
      entity: Record
      key: code
      internal: [code, doctor, ward, note, amount, born, sealed, level]
      row_rule: { doctor: r.doctor, ward: r.ward, amount: r.amount, sealed: r.sealed, level: r.level }
"#;

/// Replaces the rows of the table by random ones.
async fn replace_rows(database: &TestDatabase, random: &mut SeededRandom) -> Vec<SampleRow> {
    let ids = 1..=i64::try_from(ROWS).unwrap();
    let rows: Vec<SampleRow> = ids
        .map(|id| SampleRow::random(random, id, database))
        .collect();
    let values: Vec<String> = rows.iter().map(|row| row.sql(database)).collect();
    let insert = format!(
        "DELETE FROM people; INSERT INTO people VALUES {}",
        values.join(", ")
    );
    database.execute(&insert).await;
    rows
}

/// Returns the ids of the released rows, and the number of rows that the database returned and the check withheld.
async fn fetch_released_rows(harness: &Harness, rule: &SampleRule) -> (Vec<i64>, u64) {
    let mut terms = harness.terms("people").await;
    terms.row_rule = Some(rule.row_rule());
    let answer = harness.call_with(&terms, "{}").await.unwrap();
    (answer.column("id"), answer.facts().rows_withheld)
}

#[tokio::test]
async fn p3_pushdown_releases_the_rows_that_an_independent_oracle_admits() {
    let decisions = number_from_environment(DECISIONS.0, DECISIONS.1);
    let seed = number_from_environment(SEED.0, SEED.1);
    let databases = database::each().await;
    let queries = decisions.div_ceil(u64::try_from(databases.len()).unwrap() * ROWS);
    for database in databases {
        let mut random = SeededRandom::new(seed);
        database.execute(TABLE).await;
        let pushed = Harness::with(&database, TOOLS, |config| config.pushdown = true).await;
        let checked = Harness::with(&database, TOOLS, |config| config.pushdown = false).await;
        let (mut rows, mut admitted, mut withheld_late) = (Vec::new(), 0, 0);
        for query in 0..queries {
            if query % RULES == 0 {
                rows = replace_rows(&database, &mut random).await;
            }
            let rule = SampleRule::random(&mut random);
            let expected = rows.iter().filter(|row| rule.admits(row));
            let expected: Vec<i64> = expected.map(|row| row.id).collect();
            let withheld = ROWS - u64::try_from(expected.len()).unwrap();
            let at = format!("{}, seed {seed}, query {query}: {rule:#?}", database.kind());
            let (ids, late) = fetch_released_rows(&pushed, &rule).await;
            assert_eq!(ids, expected, "{at}");
            assert!(late <= withheld, "{at}");
            admitted += ROWS - withheld;
            withheld_late += late;
            if query % RULES == 0 {
                assert_eq!(
                    fetch_released_rows(&checked, &rule).await,
                    (expected, withheld),
                    "{at}"
                );
            }
        }
        let decided = queries * ROWS;
        println!(
            "{}: {decided} rows, {admitted} admitted, {withheld_late} withheld after the database, 0 mismatches, seed {seed}",
            database.kind()
        );
        // The rules admit some rows and withhold others, many of them already in the database.
        assert!(
            admitted > decided / 50 && admitted < decided / 2,
            "{admitted}"
        );
        assert!(withheld_late < (decided - admitted) / 2, "{withheld_late}");
    }
}
