use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use wardgate_domain::{AttributeValue, Caller, CallerClaims, Timestamp};
use wardgate_edge::{CallerLookup, TokenRefusal};
use wardgate_testkit::{TestClock, TestDatabase};

use crate::{Error, LookupConfig, open};

const TTL: Duration = Duration::from_mins(1);

/// A directory for a table, and a clock.
struct Directory {
    dir: TempDir,
    clock: TestClock,
}

impl Directory {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: TestClock::at(1_000_000),
        }
    }

    fn write(&self, table: &str) {
        std::fs::write(self.dir.path().join("people.yaml"), table).unwrap();
    }

    fn table_config(&self) -> LookupConfig {
        config(&format!(
            "table_file: {}/people.yaml",
            self.dir.path().display()
        ))
    }

    async fn open(&self, config: &LookupConfig) -> CallerLookup {
        open(config, self.clock.ambient()).await.unwrap()
    }
}

fn config(text: &str) -> LookupConfig {
    wardgate_yaml::parse(text).unwrap()
}

/// Creates the settings of a lookup in `database`.
fn query_config(database: &TestDatabase, statement: &str, more: &str) -> LookupConfig {
    config(&format!(
        "query: {{ url: \"{}\", statement: \"{statement}\"{more} }}",
        database.url()
    ))
}

async fn open_query(config: &LookupConfig) -> (CallerLookup, TestClock) {
    let clock = TestClock::at(1_000_000);
    let lookup = open(config, clock.ambient()).await.unwrap();
    (lookup, clock)
}

fn caller(subject: &str) -> Arc<Caller> {
    Arc::new(Caller::from_verified(CallerClaims {
        issuer: "https://issuer.example".to_owned(),
        subject: subject.to_owned(),
        tenant: String::new(),
        roles: vec!["Trainee".to_owned()],
        attributes: BTreeMap::from([("ward".to_owned(), text("W2"))]),
        token_id: "t".to_owned(),
        expires_at: Timestamp::from_seconds(2_000_000),
    }))
}

fn text(text: &str) -> AttributeValue {
    AttributeValue::Text(text.to_owned())
}

fn texts(items: &[&str]) -> AttributeValue {
    AttributeValue::List(items.iter().map(ToString::to_string).collect())
}

async fn roles(lookup: &CallerLookup, subject: &str) -> Result<Vec<String>, TokenRefusal> {
    let known = lookup.complete(caller(subject)).await;
    known.map(|caller| caller.roles().to_vec())
}

#[tokio::test]
async fn the_table_adds_roles_and_its_attributes_take_the_place_of_claims() {
    let directory = Directory::new();
    directory.write(
        "people:\n\
         - { subject: joy, roles: [Nurse], attributes: { ward: W7, care_teams: [cardio, icu], on_duty: true } }\n\
         - { subject: kim, issuer: \"https://other.example\", roles: [Doctor] }\n\
         - { subject: kim, issuer: \"https://issuer.example\", roles: [Porter] }\n",
    );
    let lookup = directory.open(&directory.table_config()).await;
    let joy = lookup.complete(caller("joy")).await.unwrap();
    assert_eq!(joy.roles(), ["Nurse", "Trainee"]);
    assert_eq!(joy.attributes()["ward"], text("W7"));
    assert_eq!(joy.attributes()["care_teams"], texts(&["cardio", "icu"]));
    assert_eq!(joy.attributes()["on_duty"], AttributeValue::Boolean(true));
    assert_eq!(
        joy.rights_expire_at(),
        Some(Timestamp::from_seconds(1_000_060))
    );
    // A person with the same subject at another issuer is a different person.
    assert_eq!(roles(&lookup, "kim").await.unwrap(), ["Porter", "Trainee"]);
    assert_eq!(roles(&lookup, "who").await.unwrap(), ["Trainee"]);
}

#[tokio::test]
async fn as_the_only_source_a_lookup_leaves_nothing_of_the_claims() {
    let directory = Directory::new();
    directory.write("people: [{ subject: joy, roles: [Nurse] }]");
    let config = LookupConfig {
        only_source: true,
        ..directory.table_config()
    };
    let lookup = directory.open(&config).await;
    let joy = lookup.complete(caller("joy")).await.unwrap();
    assert_eq!(joy.roles(), ["Nurse"]);
    assert_eq!(joy.attributes(), &BTreeMap::new());
    assert!(roles(&lookup, "who").await.unwrap().is_empty());
}

#[tokio::test]
async fn who_is_not_listed_is_refused_where_the_lookup_says_so() {
    let directory = Directory::new();
    directory.write("people: [{ subject: joy }]");
    let text = format!(
        "{{ table_file: {}/people.yaml, unlisted: refuse }}",
        directory.dir.path().display()
    );
    let lookup = directory.open(&config(&text)).await;
    assert!(roles(&lookup, "joy").await.is_ok());
    let refused = roles(&lookup, "who").await.unwrap_err();
    assert_eq!(refused, TokenRefusal::CallerUnlisted);
}

#[tokio::test]
async fn a_role_that_is_taken_away_in_the_table_is_gone_once_the_lookup_ends() {
    let directory = Directory::new();
    directory.write("people: [{ subject: joy, roles: [Nurse] }]");
    let lookup = directory.open(&directory.table_config()).await;
    assert_eq!(roles(&lookup, "joy").await.unwrap(), ["Nurse", "Trainee"]);
    directory.write("people: []");
    directory.clock.advance(TTL);
    wardgate_testkit::until_true("the changed table counts", async || {
        // Each poll must be a new lookup.
        directory.clock.advance(TTL);
        roles(&lookup, "joy").await.unwrap() == ["Trainee"]
    })
    .await;
}

#[tokio::test]
async fn a_table_that_cannot_be_used_any_more_refuses_its_callers_after_the_time_that_it_counts() {
    let directory = Directory::new();
    directory.write("people: [{ subject: joy, roles: [Nurse] }]");
    let lookup = directory.open(&directory.table_config()).await;
    directory.write("people: [{ subject: joy, rolls: [Nurse] }]");
    wardgate_testkit::until_true("the table counts no more", async || {
        directory.clock.advance(TTL);
        roles(&lookup, "joy").await == Err(TokenRefusal::RightsUnavailable)
    })
    .await;
    directory.write("people: [{ subject: joy, roles: [Nurse] }]");
    wardgate_testkit::until_true("the table counts again", async || {
        roles(&lookup, "joy").await.is_ok()
    })
    .await;
}

#[tokio::test]
async fn a_fault_of_the_table_names_its_line() {
    let directory = Directory::new();
    for (table, at, problem) in [
        ("people:\n- { subject: a, rolls: [] }", ":2:", "rolls"),
        (
            "people:\n- { subject: a }\n- { subject: a, issuer: b }",
            ":3:",
            "listed before",
        ),
        (
            "people:\n- { subject: a, issuer: b }\n- { subject: a }",
            ":3:",
            "listed before",
        ),
        ("people:\n- { subject: \"\" }", ":2:", "subject"),
        (
            "people:\n- { subject: a, attributes: { x: { y: 1 } } }",
            ":2:",
            "`x`",
        ),
    ] {
        directory.write(table);
        let error = open(&directory.table_config(), directory.clock.ambient()).await;
        let error = error.unwrap_err().to_string();
        assert!(error.contains(at) && error.contains(problem), "{error}");
    }
}

#[tokio::test]
async fn the_rows_of_a_query_give_roles_lists_and_attributes() {
    let mut databases = vec![TestDatabase::sqlite("")];
    databases.extend(TestDatabase::postgres().await);
    databases.extend(TestDatabase::mysql().await);
    for database in databases {
        let kind = database.kind();
        database
            .execute(
                "CREATE TABLE staff (subject VARCHAR(40), role VARCHAR(40), ward VARCHAR(40), team VARCHAR(40));
                 INSERT INTO staff VALUES ('joy', 'Nurse', 'W7', 'cardio'), ('joy', 'Auditor', 'W7', 'icu'),
                     ('kim', NULL, NULL, NULL), ('two', 'Nurse', 'W1', NULL), ('two', 'Nurse', 'W2', NULL);",
            )
            .await;
        let statement = "SELECT role, ward, team FROM staff WHERE subject = :subject";
        let config = query_config(&database, statement, ", lists: [team]");
        let (lookup, clock) = open_query(&config).await;
        let joy = lookup.complete(caller("joy")).await.unwrap();
        assert_eq!(joy.roles(), ["Auditor", "Nurse", "Trainee"], "{kind}");
        assert_eq!(joy.attributes()["ward"], text("W7"), "{kind}");
        assert_eq!(
            joy.attributes()["team"],
            texts(&["cardio", "icu"]),
            "{kind}"
        );
        // NULL is ignored, and a list without values is empty.
        let kim = lookup.complete(caller("kim")).await.unwrap();
        assert_eq!(kim.attributes()["ward"], text("W2"), "{kind}");
        assert_eq!(kim.attributes()["team"], texts(&[]), "{kind}");
        // A caller whom the database does not know has the claims only, and no list.
        let who = lookup.complete(caller("' OR 1=1 --")).await.unwrap();
        assert_eq!(who.roles(), ["Trainee"], "{kind}");
        assert!(!who.attributes().contains_key("team"), "{kind}");
        // Two different values of a single attribute are an error.
        let refused = roles(&lookup, "two").await.unwrap_err();
        assert_eq!(refused, TokenRefusal::RightsUnavailable, "{kind}");

        database.execute("DELETE FROM staff").await;
        let remembered = roles(&lookup, "joy").await.unwrap();
        assert_eq!(remembered, ["Auditor", "Nurse", "Trainee"], "{kind}");
        clock.advance(TTL);
        assert_eq!(roles(&lookup, "joy").await.unwrap(), ["Trainee"], "{kind}");
    }
}

#[tokio::test]
async fn a_database_that_is_away_refuses_all_but_those_it_has_just_told_of() {
    let database = TestDatabase::sqlite("");
    database
        .execute("CREATE TABLE staff (subject TEXT, role TEXT); INSERT INTO staff VALUES ('joy', 'Nurse');")
        .await;
    let statement = "SELECT role FROM staff WHERE subject = :subject";
    let (lookup, clock) = open_query(&query_config(&database, statement, "")).await;
    assert!(roles(&lookup, "joy").await.is_ok());
    database.execute("ALTER TABLE staff RENAME TO gone").await;
    assert!(roles(&lookup, "joy").await.is_ok());
    let away = Err(TokenRefusal::RightsUnavailable);
    assert_eq!(roles(&lookup, "kim").await, away);
    clock.advance(TTL);
    assert_eq!(roles(&lookup, "joy").await, away);
    database.execute("ALTER TABLE gone RENAME TO staff").await;
    assert!(roles(&lookup, "joy").await.is_ok());
}

#[tokio::test]
async fn a_query_cannot_write() {
    let database = TestDatabase::sqlite("");
    database
        .execute("CREATE TABLE staff (subject TEXT, role TEXT); INSERT INTO staff VALUES ('joy', 'Nurse');")
        .await;
    let statement = "DELETE FROM staff WHERE subject = :subject RETURNING role";
    let (lookup, _) = open_query(&query_config(&database, statement, "")).await;
    assert!(roles(&lookup, "joy").await.is_err());
    assert_eq!(database.number("SELECT COUNT(*) FROM staff").await, 1);
}

#[tokio::test]
async fn a_query_that_takes_too_long_refuses() {
    let database = TestDatabase::sqlite("");
    database.execute("CREATE TABLE staff (subject TEXT)").await;
    let statement = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) \
                     SELECT :subject AS role FROM n WHERE i < 0";
    let (lookup, _) = open_query(&query_config(&database, statement, ", timeout_ms: 50")).await;
    let refused = roles(&lookup, "joy").await.unwrap_err();
    assert_eq!(refused, TokenRefusal::RightsUnavailable);
}

#[test]
fn a_setting_that_cannot_be_used_is_named() {
    let query = |more: &str| format!("query: {{ url: \"sqlite:a.db\", {more} }}");
    let good = "statement: \"SELECT role FROM staff WHERE subject = :subject\"";
    for (text, setting) in [
        ("ttl: 60".to_owned(), "table_file"),
        (format!("table_file: a\n{}", query(good)), "table_file"),
        ("{ table_file: a, ttl: 0 }".to_owned(), "ttl"),
        ("{ table_file: a, entries: 0 }".to_owned(), "entries"),
        (query("statement: \"SELECT 1\""), "query.statement"),
        (
            query("statement: \"SELECT :subject AS role, :who AS x\""),
            "query.statement",
        ),
        (query("statement: \"DROP TABLE a\""), "query.statement"),
        (
            query(&format!("{good}, timeout_ms: 900")),
            "query.timeout_ms",
        ),
        (query(&format!("{good}, lists: [role]")), "query.lists"),
        (
            query(&format!("{good}, url: \"oracle:a\"")).replacen("url: \"sqlite:a.db\", ", "", 1),
            "query.url",
        ),
    ] {
        let error = config(&text).validate().unwrap_err();
        let named = match error {
            Error::Setting { setting, .. } => setting,
            Error::Table { .. } => "table",
        };
        assert_eq!(named, setting, "{text}");
    }
    config(&query(good)).validate().unwrap();
}

#[test]
fn the_debug_form_shows_no_password() {
    let text =
        "query: { url: \"postgres://u:secret@h/d\", statement: \"SELECT :subject AS role\" }";
    assert!(!format!("{:?}", config(text)).contains("secret"));
}
