//! Databases with the rows that the tools of the tests query.

use wardgate_testkit::TestDatabase;

/// Returns one database of each kind that is available.
pub(crate) async fn each() -> Vec<TestDatabase> {
    let mut databases = each_store().await;
    databases.extend(mysql().await);
    databases
}

/// Returns the databases of the kinds that can hold the service's own store.
pub(crate) async fn each_store() -> Vec<TestDatabase> {
    let mut databases = vec![sqlite().await];
    databases.extend(postgres().await);
    databases
}

pub(crate) async fn sqlite() -> TestDatabase {
    with_rows(TestDatabase::sqlite("")).await
}

pub(crate) async fn postgres() -> Option<TestDatabase> {
    Some(with_rows(TestDatabase::postgres().await?).await)
}

pub(crate) async fn mysql() -> Option<TestDatabase> {
    Some(with_rows(TestDatabase::mysql().await?).await)
}

async fn with_rows(database: TestDatabase) -> TestDatabase {
    database.execute(ROWS).await;
    database
}

/// Returns the harness's tools in the SQL dialect of this database.
pub(crate) fn translate_tools(database: &TestDatabase, tools: &str) -> String {
    match database {
        // MySQL limits the depth of a recursion.
        TestDatabase::Mysql { .. } => tools.replace(ENDLESS, ENDLESS_IN_MYSQL),
        _ => tools.to_owned(),
    }
}

const ROWS: &str = "
    CREATE TABLE records (
        id INTEGER PRIMARY KEY, patient TEXT NOT NULL, doctor TEXT, ward TEXT,
        sealed BOOLEAN NOT NULL, level BIGINT, note TEXT
    );
    INSERT INTO records VALUES
        (1, 'NUGWI', 'd1', 'W1', FALSE, 1, 'first'),
        (2, 'NUGWI', 'd2', 'W1', FALSE, 2, 'second'),
        (3, 'NUGWI', NULL, 'W2', FALSE, 3, 'third'),
        (4, 'ABCDE', 'd1', 'W2', TRUE, 4, 'fourth'),
        (5, 'ABCDE', 'd2', NULL, FALSE, NULL, 'fifth'),
        (6, 'ABCDE', 'd''1', 'W1', TRUE, 9007199254740993, 'it''s the \"sixth\"'),
        (7, 'FGHIJ', 'd1', 'W3', FALSE, -1, NULL);
    CREATE TABLE written (line VARCHAR(500) NOT NULL UNIQUE);
";

/// The statement of `endless_append`, and an equivalent that MySQL does not end by itself.
const ENDLESS: &str = "\
        WITH RECURSIVE n(value) AS (SELECT 1 UNION ALL SELECT value + 1 FROM n)
        INSERT INTO written SELECT 'x' || max(value) FROM n";
const ENDLESS_IN_MYSQL: &str =
    "INSERT INTO written SELECT 'x' || BENCHMARK(1000000000000000, 1 + 1)";
