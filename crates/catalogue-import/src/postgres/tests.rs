use super::*;
use crate::tests::render_snapshot;

fn column(name: &str, base: &str) -> Column {
    Column {
        name: name.to_owned(),
        base: base.to_owned(),
        base_schema: "pg_catalog".to_owned(),
        ..Column::default()
    }
}

fn indexed_column(name: &str, base: &str) -> Column {
    Column {
        is_indexed: true,
        ..column(name, base)
    }
}

fn options() -> PostgresOptions {
    PostgresOptions {
        variable: "SHOP_URL".to_owned(),
        schemas: vec!["public".to_owned(), "odd \"schema".to_owned()],
        tables: vec!["patients".to_owned(), "missing".to_owned()],
    }
}

#[test]
fn a_description_becomes_tools_that_a_person_can_review() {
    let patients = Table {
        schema: "public".to_owned(),
        name: "patients".to_owned(),
        is_view: false,
        comment: Some("Everyone who was ever admitted.\nOne row a person. {x} ${HOME}".to_owned()),
        columns: vec![
            Column {
                key_position: Some(1),
                is_key: true,
                ..indexed_column("id", "int8")
            },
            column("full_name", "text"),
            Column {
                comment: Some("As on the passport.".to_owned()),
                ..indexed_column("birth_date", "date")
            },
            indexed_column("email", "citext"),
            Column {
                is_key: true,
                ..column("ward_id", "uuid")
            },
            Column {
                base_schema: "public".to_owned(),
                labels: vec!["in".to_owned(), "out".to_owned()],
                ..indexed_column("status", "patient status")
            },
            indexed_column("balance", "numeric"),
            indexed_column("admitted_at", "timestamptz"),
            indexed_column("address", "jsonb"),
            column("stay", "interval"),
            column("password_hash", "text"),
            indexed_column("limit", "int4"),
        ],
    };
    let odd = Table {
        schema: "odd \"schema".to_owned(),
        name: "räte\n:x {y}".to_owned(),
        is_view: true,
        comment: None,
        columns: vec![
            indexed_column("a:b {c} \"d\"\n", "text"),
            indexed_column("row_rule", "bool"),
        ],
    };
    let secret = Table {
        name: "secrets".to_owned(),
        columns: vec![column("token", "text")],
        comment: None,
        ..odd.clone()
    };
    let imported = write(&[patients, odd, secret], &options()).unwrap();
    insta::assert_snapshot!(render_snapshot(&imported));
}

#[test]
fn a_database_without_a_table_is_nothing_to_import() {
    let error = write(&[], &options()).unwrap_err().to_string();
    assert!(error.contains("no table or view"), "{error}");
}

#[tokio::test]
async fn a_database_that_is_not_there_is_said_without_its_url() {
    for (url, problem) in [
        (
            "postgres://user:canary@127.0.0.1:1/db",
            "it cannot be reached",
        ),
        ("canary", "the URL is not one"),
    ] {
        let error = postgres(url, &options()).await.unwrap_err().to_string();
        assert!(
            error.contains(problem) && !error.contains("canary"),
            "{error}"
        );
    }
}
