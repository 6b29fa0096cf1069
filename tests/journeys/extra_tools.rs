//! Tools that are added to the demo's catalogue while it runs.

use sqlx::{Connection, SqliteConnection};
use wardgate_testkit::{System, until};

use super::people::doctor;

/// Makes the tool-runner poll the catalogue often, so that a test does not have to wait long.
pub(super) const LOOK_OFTEN: (&str, &str) = ("WARDGATE_TOOL_RUNNER__RELOAD_INTERVAL", "50ms");

/// Makes the process that runs tools log each run.
pub(super) const LOG_RUNS: (&str, &str) =
    ("WARDGATE_TELEMETRY__LOG", "info,wardgate_tool_runner=debug");

/// A tool that inserts a row, which shows that it ran.
pub(super) const COUNT_UP: &str = r"
  - name: count_up
    description: Adds a row to a table.
    tags: [staff]
    input_schema:
      type: object
      properties: { note: { type: string } }
      required: [note]
    execute:
      type: sql
      source: hospital
      statement: INSERT INTO counter (note) VALUES (:note) RETURNING id
    result: { classes: { id: none } }
";

/// A tool that counts as long as the caller requests, up to two seconds.
pub(super) const COUNT_LONG: &str = r"
  - name: count_long
    description: Counts to a number.
    tags: [staff]
    annotations: { readOnlyHint: true }
    time_limit: 2s
    input_schema:
      type: object
      properties: { to: { type: integer } }
      required: [to]
    execute:
      type: sql
      source: hospital
      statement: >
        WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :to)
        SELECT count(*) AS counted FROM n
    result: { classes: { counted: none } }
";

/// Adds one of the tools above, and waits until a doctor sees it.
pub(super) async fn add(system: &impl System, tool: &str) {
    add_with_source(system, "", tool).await;
}

/// Adds a tool with its sources.
pub(super) async fn add_with_source(system: &impl System, sources: &str, tool: &str) {
    let catalogue = system.example_dir().join("tools.yaml");
    let text = std::fs::read_to_string(&catalogue).unwrap() + tool;
    let text = text.replacen("\nsources:\n", &format!("\nsources:\n{sources}"), 1);
    // The file is replaced atomically, because an incomplete catalogue is invalid.
    let beside = catalogue.with_extension("new");
    std::fs::write(&beside, text).unwrap();
    std::fs::rename(&beside, &catalogue).unwrap();
    let name = tool
        .lines()
        .find_map(|line| line.trim().strip_prefix("- name: "))
        .unwrap();
    let doctor = doctor(system);
    until("the new tool is listed", async || {
        let names = system.client().tool_names(&doctor).await;
        names.iter().any(|listed| listed == name).then_some(())
    })
    .await;
}

/// The table of [`COUNT_UP`], which is created and read directly.
pub(super) struct Counter(SqliteConnection);

impl Counter {
    /// Creates the table and adds its tool.
    pub(super) async fn add_to(system: &impl System) -> Self {
        let url = format!(
            "sqlite:{}",
            system.data_dir().join("hospital.sqlite").display()
        );
        let mut database = SqliteConnection::connect(&url).await.unwrap();
        sqlx::query("CREATE TABLE counter (id INTEGER PRIMARY KEY, note TEXT NOT NULL)")
            .execute(&mut database)
            .await
            .unwrap();
        add(system, COUNT_UP).await;
        Self(database)
    }

    /// Returns the notes of all rows.
    pub(super) async fn notes(&mut self) -> Vec<String> {
        sqlx::query_scalar("SELECT note FROM counter ORDER BY id")
            .fetch_all(&mut self.0)
            .await
            .unwrap()
    }
}
