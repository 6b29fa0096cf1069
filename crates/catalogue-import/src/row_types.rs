//! `wardgate policy schema`: derives the row types of policies from the results of a `tools.yaml`.
//!
//! A row type has the columns of all tools that return it. The type of a column comes from the database, which prepares the
//! statement; if the database cannot be reached, it is guessed from the class of the column.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::time::Duration;

use sqlx::postgres::PgTypeInfo;
use sqlx::{AssertSqlSafe, Column, Connection, Executor, SqlSafeStr, Statement, TypeInfo};
use tokio::time::timeout;
use wardgate_arguments::{JsonType, Property};
use wardgate_catalogue::plan::{Plan, SqlPlan};
use wardgate_catalogue::{
    BoundValue, Catalogue, Parameter, ParameterType, SourceKind, SqlDialect, SqlSettings, Tool,
};
use wardgate_domain::ColumnClass;
use wardgate_sql::{mysql_reader, postgres_reader, sqlite_reader};

use crate::ImportNote;

/// Maximum time for connecting to a database and preparing one statement.
const LIMIT: Duration = Duration::from_secs(10);

/// The schema with the row types of a catalogue, and notes about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RowTypes {
    /// The text of a `.cedarschema`.
    pub schema: String,
    /// Notes about what was chosen or left out.
    pub notes: Vec<ImportNote>,
}

/// The type of an attribute of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum AttributeType {
    String,
    Long,
    Bool,
    /// The type has no counterpart in policies.
    None,
}

/// The types of the columns of a statement, by name.
type ColumnTypes = BTreeMap<String, AttributeType>;

/// The reason why a database does not provide the columns of a statement.
#[derive(Debug, thiserror::Error)]
enum DescribeError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error("it did not describe the statement within {limit:?}", limit = LIMIT)]
    Timeout,
}

/// Derives the row types of `catalogue`. The databases are queried if they can be reached.
pub async fn row_types(catalogue: &Catalogue) -> RowTypes {
    let mut notes = Vec::new();
    let mut entities: BTreeMap<String, RowType> = BTreeMap::new();
    let mut arguments: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for tool in catalogue.tools() {
        for property in tool.input().properties() {
            let kinds = arguments.entry(property.name.clone()).or_default();
            kinds.insert(argument_type(property).unwrap_or_default());
        }
        let Some(entity) = &tool.result().entity else {
            continue;
        };
        let told = match ask_database(catalogue, tool).await {
            Ok(told) => told,
            Err(error) => {
                notes.push(ImportNote {
                    about: format!("tool `{}`", tool.facts().name),
                    text: format!(
                        "the types of its columns are guessed from their classes, because its database does not provide them: {error}"
                    ),
                });
                ColumnTypes::new()
            }
        };
        let row_type = entities.entry(entity.type_name.to_string()).or_default();
        row_type.tools.insert(tool.facts().name.to_string());
        for column in columns(tool, &told) {
            let class = tool.result().class(&column);
            let of_class = || guess(class);
            let kind = told.get(&column).copied().unwrap_or_else(of_class);
            row_type.columns.entry(column).or_default().insert(kind);
        }
    }
    let schema = print(&entities, &mut notes) + &print_arguments(&arguments);
    RowTypes { schema, notes }
}

/// A row type that is being collected.
#[derive(Default)]
struct RowType {
    tools: BTreeSet<String>,
    /// The types of columns, by column. A column has more than one type if tools differ.
    columns: BTreeMap<String, BTreeSet<AttributeType>>,
}

/// Returns all columns that rows of `tool` are known to have.
fn columns(tool: &Tool, told: &ColumnTypes) -> BTreeSet<String> {
    let result = tool.result();
    let configured = result.column_names().or_else(|| tool.plan().columns());
    let mut columns: BTreeSet<_> = configured.unwrap_or_default().into_iter().collect();
    columns.extend(told.keys().cloned());
    columns.extend(result.classes.keys().cloned());
    columns.extend(result.internal.iter().cloned());
    columns.extend(result.entity.iter().map(|entity| entity.key.clone()));
    columns
}

fn guess(class: &ColumnClass) -> AttributeType {
    match class.as_str().rsplit('.').next() {
        Some("age" | "count") => AttributeType::Long,
        Some("amount") => AttributeType::None,
        _ => AttributeType::String,
    }
}

fn print(entities: &BTreeMap<String, RowType>, notes: &mut Vec<ImportNote>) -> String {
    let mut text = "// The rows of the tools, as `wardgate policy schema` prints them. Attributes are columns; an attribute is absent if \
                    the value\n// is NULL, so policies test it with `has`.\n"
        .to_owned();
    for (name, RowType { tools, columns }) in entities {
        let tools: Vec<_> = tools.iter().map(String::as_str).collect();
        // Writing to a `String` does not fail.
        let _ = writeln!(text, "\n// {}\nentity {name} {{", tools.join(", "));
        for (column, kinds) in columns {
            let quoted = quote_name(column);
            let mut kinds = kinds.iter();
            let _ = match (kinds.next(), kinds.next()) {
                (Some(AttributeType::None) | None, None) => {
                    writeln!(
                        text,
                        "  // {quoted} has a type that policies do not support."
                    )
                }
                (Some(kind), None) => writeln!(text, "  {quoted}?: {kind:?},"),
                _ => {
                    notes.push(ImportNote {
                        about: format!("`{column}` of `{name}`"),
                        text: "is omitted: its type differs between tools; cast it in their statements"
                            .to_owned(),
                    });
                    writeln!(
                        text,
                        "  // {quoted} has different types in different tools."
                    )
                }
            };
        }
        text.push_str("};\n");
    }
    text
}

/// Returns the type of an argument in policies, or `None` if its schema does not determine it.
fn argument_type(property: &Property) -> Option<String> {
    let of = |kind| match kind {
        JsonType::String => Some("String"),
        JsonType::Integer => Some("Long"),
        JsonType::Number => Some("decimal"),
        JsonType::Boolean => Some("Bool"),
        JsonType::Null | JsonType::Array | JsonType::Object => None,
    };
    let scalar = property.scalar().and_then(of).map(str::to_owned);
    let list = || {
        property
            .list_of()
            .and_then(of)
            .map(|element| format!("Set<{element}>"))
    };
    scalar.or_else(list)
}

/// Formats the arguments that have the same type in all tools.
fn print_arguments(arguments: &BTreeMap<String, BTreeSet<String>>) -> String {
    let mut text = String::new();
    for (name, kinds) in arguments {
        let mut kinds = kinds.iter();
        if let (Some(kind), None) = (kinds.next(), kinds.next())
            && !kind.is_empty()
        {
            // Writing to a `String` does not fail.
            let _ = writeln!(text, "  {}?: {kind},", quote_name(name));
        }
    }
    if text.is_empty() {
        return text;
    }
    format!(
        "\n// Arguments that policies compare as numbers or lists. Other arguments are strings, available by `getTag`.\nentity Arguments \
         {{\n{text}}};\n"
    )
}

fn quote_name(name: &str) -> String {
    if is_identifier(name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.escape_default())
    }
}

fn is_identifier(name: &str) -> bool {
    let mut bytes = name.bytes();
    bytes
        .next()
        .is_some_and(|first| first.is_ascii_alphabetic() || first == b'_')
        && bytes.all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

/// Reads the columns of the tool's statement from its database. The result is empty for a tool without a statement.
async fn ask_database(catalogue: &Catalogue, tool: &Tool) -> Result<ColumnTypes, DescribeError> {
    let Plan::Sql(plan) = tool.plan() else {
        return Ok(ColumnTypes::new());
    };
    let source = catalogue
        .sources()
        .iter()
        .find(|source| source.name == plan.source.name);
    match source.map(|source| &source.kind) {
        Some(SourceKind::Sql(settings)) => match timeout(LIMIT, describe(settings, plan)).await {
            Ok(described) => Ok(described?),
            Err(_elapsed) => Err(DescribeError::Timeout),
        },
        _ => Ok(ColumnTypes::new()),
    }
}

/// Prepares the statement without running it, and returns its columns.
async fn describe(settings: &SqlSettings, plan: &SqlPlan) -> Result<ColumnTypes, sqlx::Error> {
    let params: Vec<_> = plan
        .params
        .iter()
        .map(|(_, kind)| placeholder(*kind))
        .collect();
    let (sql, values) = plan
        .statement
        .with_values(&plan.some_identifiers(), None, &params);
    let sql = AssertSqlSafe(sql.to_string()).into_sql_str();
    match settings.dialect {
        SqlDialect::Sqlite => {
            let mut connection = sqlite_reader(&settings.url).await?;
            let prepared = connection.prepare(sql).await?;
            // An expression has no declared type, so its type is guessed from its class.
            let declared = prepared
                .columns()
                .iter()
                .filter(|column| !column.type_info().is_null());
            let found = types(declared, |name| match name {
                "INTEGER" | "INT" | "INT4" | "INT8" | "BIGINT" => AttributeType::Long,
                "BOOLEAN" => AttributeType::Bool,
                "TEXT" | "DATE" | "TIME" | "DATETIME" => AttributeType::String,
                _ => AttributeType::None,
            });
            connection.close().await?;
            Ok(found)
        }
        SqlDialect::Postgres => {
            let bound: Vec<_> = values.iter().map(postgres_type).collect();
            let mut connection = postgres_reader(&settings.url, LIMIT).await?;
            let prepared = connection.prepare_with(sql, &bound).await?;
            let found = types(prepared.columns(), |name| match name {
                "INT2" | "INT4" | "INT8" => AttributeType::Long,
                "BOOL" => AttributeType::Bool,
                "TEXT" | "VARCHAR" | "CHAR" | "NAME" | "UUID" | "DATE" | "TIME" | "TIMESTAMP"
                | "TIMESTAMPTZ" | "CITEXT" => AttributeType::String,
                _ => AttributeType::None,
            });
            connection.close().await?;
            Ok(found)
        }
        SqlDialect::Mysql => {
            let mut connection = mysql_reader(&settings.url, LIMIT).await?;
            let prepared = connection.prepare(sql).await?;
            let found = types(prepared.columns(), |name| match name {
                "TINYINT" | "SMALLINT" | "MEDIUMINT" | "INT" | "BIGINT" => AttributeType::Long,
                "BOOLEAN" => AttributeType::Bool,
                "VARCHAR" | "CHAR" | "TINYTEXT" | "TEXT" | "MEDIUMTEXT" | "LONGTEXT" | "ENUM"
                | "DATE" | "TIME" | "DATETIME" | "TIMESTAMP" => AttributeType::String,
                _ => AttributeType::None,
            });
            connection.close().await?;
            Ok(found)
        }
    }
}

fn types<'c, C: Column>(
    columns: impl IntoIterator<Item = &'c C>,
    kind: impl Fn(&str) -> AttributeType,
) -> ColumnTypes {
    let of_column = |column: &C| (column.name().to_owned(), kind(column.type_info().name()));
    columns.into_iter().map(of_column).collect()
}

/// Returns a placeholder value for a parameter, because nothing is run.
fn placeholder(kind: ParameterType) -> Parameter {
    match kind {
        ParameterType::One(kind) => Parameter::One(BoundValue::null(kind)),
        ParameterType::List(kind) => Parameter::List(kind, Vec::new()),
    }
}

/// Returns the type as which the tool-runner binds the value.
fn postgres_type(value: &BoundValue) -> PgTypeInfo {
    PgTypeInfo::with_name(match value {
        BoundValue::Text(_) => "text",
        BoundValue::Integer(_) => "int8",
        BoundValue::BigInteger(_) | BoundValue::Decimal(_) => "numeric",
        BoundValue::Boolean(_) => "bool",
        BoundValue::List(list) => match list {
            wardgate_catalogue::BoundList::Texts(_) => "text[]",
            wardgate_catalogue::BoundList::Integers(_) => "int8[]",
            wardgate_catalogue::BoundList::BigIntegers(_)
            | wardgate_catalogue::BoundList::Decimals(_) => "numeric[]",
            wardgate_catalogue::BoundList::Booleans(_) => "bool[]",
        },
    })
}

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions;
    use sqlx::sqlite::SqliteConnectOptions;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;
    use wardgate_catalogue::FileText;

    use super::*;

    /// The first packet of a MySQL server that does not offer TLS: version, connection id, nonce, capabilities,
    /// collation, status and the authentication method.
    const MYSQL_WITHOUT_TLS: &[u8] =
        b"\x4a\0\0\0\x0a8.0.36\0\x01\0\0\0abcdefgh\0\x01\x82\x2d\x02\0\x08\0\x15\
        \0\0\0\0\0\0\0\0\0\0ijklmnopqrst\0mysql_native_password\0";

    /// Returns the schema and the notes for tools of one source, whose results are of the type `Row`.
    async fn describe_tools(url: &str, tools: &[(&str, &str, &str)]) -> (String, Vec<String>) {
        let mut text = format!("sources:\n  main: {url}\ntools:\n");
        for (name, execute, result) in tools {
            let _ = write!(
                text,
                "  - name: {name}\n    annotations: {{ readOnlyHint: true }}\n    input_schema: {{ type: object, properties: {{ n: {{ type: integer }} }} }}\n    \
                 execute: {execute}\n    result: {result}\n"
            );
        }
        let path = "tools.yaml".into();
        let catalogue = Catalogue::parse(&[FileText { path, text }], &BTreeMap::new()).unwrap();
        let RowTypes { schema, notes } = row_types(&catalogue).await;
        (schema, notes.iter().map(ToString::to_string).collect())
    }

    /// Returns the lines of the row type `Row`.
    fn lines(schema: &str) -> Vec<&str> {
        let lines = schema
            .lines()
            .skip_while(|line| !line.starts_with("entity Row"));
        let lines = lines.take_while(|line| !line.is_empty());
        lines.map(str::trim).collect()
    }

    #[tokio::test]
    async fn sqlite_tells_the_types_of_the_columns() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d.sqlite");
        let options = SqliteConnectOptions::new()
            .filename(&file)
            .create_if_missing(true);
        let mut connection = options.connect().await.unwrap();
        let table = "CREATE TABLE t (id TEXT, n INTEGER, sealed BOOLEAN, day DATE, price REAL)";
        sqlx::raw_sql(table).execute(&mut connection).await.unwrap();
        connection.close().await.unwrap();
        let source = format!("{{ type: sqlite, url: \"sqlite:{}\" }}", file.display());
        let statement = "{ type: sql, source: main, statement: \"SELECT id, n, sealed, day, price FROM t WHERE n > :n\" }";
        let (schema, notes) = describe_tools(
            &source,
            &[(
                "a",
                statement,
                "{ entity: Row, key: id, classes: { id: none } }",
            )],
        )
        .await;
        let expected = [
            "entity Row {",
            "day?: String,",
            "id?: String,",
            "n?: Long,",
            "// price has a type that policies do not support.",
            "sealed?: Bool,",
            "};",
        ];
        assert_eq!(lines(&schema), expected);
        assert_eq!(notes, Vec::<String>::new());
    }

    #[tokio::test]
    async fn a_database_out_of_reach_leaves_the_classes_to_guess_from_and_says_so() {
        let source = "{ type: sqlite, url: \"sqlite:/nowhere/at/all.sqlite\" }";
        let statement = "{ type: sql, source: main, statement: \"SELECT id, years FROM t\" }";
        let result = "{ entity: Row, key: id, classes: { id: none, years: phi.age } }";
        let (schema, notes) = describe_tools(source, &[("a", statement, result)]).await;
        assert_eq!(
            lines(&schema),
            ["entity Row {", "id?: String,", "years?: Long,", "};"]
        );
        assert!(
            notes[0].starts_with("tool `a`: the types of its columns are guessed"),
            "{notes:?}"
        );
    }

    #[tokio::test]
    async fn a_missing_sqlite_file_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("d.sqlite");
        let source = format!(
            "{{ type: sqlite, url: \"sqlite:{}?mode=rwc\" }}",
            file.display()
        );
        let statement = "{ type: sql, source: main, statement: \"SELECT 1 AS id\" }";
        let result = "{ entity: Row, key: id, classes: { id: none } }";
        let (_, notes) = describe_tools(&source, &[("a", statement, result)]).await;
        assert!(!file.exists());
        assert!(
            notes[0].contains("its database does not provide them"),
            "{notes:?}"
        );
    }

    /// The time is paused, so it passes as soon as nothing but a timeout is awaited.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_does_not_answer_is_given_up() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let statement = "{ type: sql, source: main, statement: \"SELECT id FROM t\" }";
        let result = "{ entity: Row, key: id, classes: { id: none } }";
        for kind in ["postgres", "mysql"] {
            let source = format!("{{ type: {kind}, url: \"{kind}://ada@127.0.0.1:{port}/d\" }}");
            let tools = [("a", statement, result)];
            let asked = timeout(2 * LIMIT, describe_tools(&source, &tools)).await;
            let (schema, notes) = asked.unwrap();
            assert_eq!(lines(&schema), ["entity Row {", "id?: String,", "};"]);
            assert!(
                notes[0].ends_with("it did not describe the statement within 10s"),
                "{notes:?}"
            );
        }
    }

    #[tokio::test]
    async fn a_mysql_server_that_is_not_this_machine_learns_nothing_without_tls() {
        // The wildcard address leads to this machine, but it is not one of the names that exempt a server from TLS.
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let server = async {
            let (mut client, _) = listener.accept().await.unwrap();
            client.write_all(MYSQL_WITHOUT_TLS).await.unwrap();
            client.read(&mut [0; 512]).await.unwrap()
        };
        let source = format!("{{ type: mysql, url: \"mysql://ada@0.0.0.0:{port}/d\" }}");
        let statement = "{ type: sql, source: main, statement: \"SELECT id FROM t\" }";
        let tools = [(
            "a",
            statement,
            "{ entity: Row, key: id, classes: { id: none } }",
        )];
        let both = async { tokio::join!(server, describe_tools(&source, &tools)) };
        let (received, (_, notes)) = timeout(2 * LIMIT, both).await.unwrap();
        assert_eq!(received, 0, "the client answered in plain text: {notes:?}");
        assert!(
            notes[0].contains("server does not support TLS"),
            "{notes:?}"
        );
    }

    #[tokio::test]
    async fn a_row_type_has_the_columns_of_all_its_tools_and_none_whose_types_differ() {
        let source = "{ type: http, base_url: \"https://rows.example\" }";
        let execute = "{ type: http, source: main, method: GET, path: /x }";
        let (schema, notes) = describe_tools(
            source,
            &[
                ("a", execute, "{ entity: Row, key: id, internal: [owner], classes: { id: none, x: phi.age } }"),
                ("b", execute, "{ entity: Row, key: id, classes: { \"a b\": none, x: none } }"),
            ],
        )
        .await;
        let expected = [
            "entity Row {",
            "\"a b\"?: String,",
            "id?: String,",
            "owner?: String,",
            "// x has different types in different tools.",
            "};",
        ];
        assert_eq!(lines(&schema), expected);
        assert!(schema.contains("// a, b\nentity Row"), "{schema}");
        assert!(notes[0].contains("`x` of `Row`"), "{notes:?}");
    }

    #[tokio::test]
    async fn arguments_have_the_type_that_they_have_in_every_tool() {
        let tool = |name: &str, properties: &str| {
            format!(
                "  - name: {name}\n    input_schema: {{ type: object, properties: {{ {properties} }} }}\n    \
                 execute: {{ type: http, source: main, method: GET, path: /x }}\n"
            )
        };
        let text = format!(
            "sources:\n  main: {{ type: http, base_url: \"https://rows.example\" }}\ntools:\n{}{}",
            tool(
                "a",
                "limit: { type: integer }, q: { type: string }, any: {}, of: { type: array, items: { type: number } }"
            ),
            tool(
                "b",
                "limit: { type: [integer, 'null'] }, q: { type: boolean }, \"a-b\": { type: number }"
            ),
        );
        let path = "tools.yaml".into();
        let catalogue = Catalogue::parse(&[FileText { path, text }], &BTreeMap::new()).unwrap();
        let schema = row_types(&catalogue).await.schema;
        let (_, arguments) = schema.split_once("entity Arguments {\n").unwrap();
        assert_eq!(
            arguments,
            "  \"a-b\"?: decimal,\n  limit?: Long,\n  of?: Set<decimal>,\n};\n"
        );
    }
}
