use proptest::prelude::*;

use wardgate_arguments::JsonType;

use super::*;
use crate::statement::{BoundList, BoundValue, Parameter};

fn render(dialect: SqlDialect, sql: &str) -> (String, Vec<String>) {
    let statement = Statement::parse(dialect, sql).unwrap();
    let (text, _) = statement.with_values(&[], None, &[]);
    (text.to_string(), statement.params)
}

#[test]
fn parameters_become_numbered_placeholders() {
    let sql = "SELECT :b, :a, :b FROM t WHERE :row_rule;";
    let names = vec!["b".to_owned(), "a".to_owned()];
    assert_eq!(
        render(SqlDialect::Postgres, sql),
        (
            "SELECT $1, $2, $1 FROM t WHERE (TRUE)".to_owned(),
            names.clone()
        )
    );
    assert_eq!(
        render(SqlDialect::Sqlite, sql),
        (
            "SELECT ?1, ?2, ?1 FROM t WHERE (TRUE)".to_owned(),
            names.clone()
        )
    );
    assert_eq!(
        render(SqlDialect::Mysql, sql),
        ("SELECT ?, ?, ? FROM t WHERE (TRUE)".to_owned(), names)
    );
}

#[test]
fn values_are_bound_in_the_order_of_their_placeholders() {
    let sql = "SELECT :b, :a, :b FROM t WHERE :row_rule AND c = :c";
    for (dialect, order) in [
        (SqlDialect::Postgres, &["b", "a", "c", "r", "s"][..]),
        (SqlDialect::Sqlite, &["b", "a", "c", "r", "s"]),
        (SqlDialect::Mysql, &["b", "a", "b", "r", "s", "c"]),
    ] {
        let statement = Statement::parse(dialect, sql).unwrap();
        let params: Vec<_> = statement
            .params()
            .iter()
            .map(|it| text_parameter(it))
            .collect();
        let (_, values) = statement.with_values(&[], Some(("", &[text("r"), text("s")])), &params);
        let order: Vec<_> = order.iter().map(|it| text(it)).collect();
        assert_eq!(values, order);
    }
}

fn text(text: &str) -> BoundValue {
    BoundValue::Text(Some(text.to_owned()))
}

fn text_parameter(value: &str) -> Parameter {
    Parameter::One(text(value))
}

fn whole(numbers: impl IntoIterator<Item = i64>) -> Vec<BoundValue> {
    let bound = |number| BoundValue::Integer(Some(number));
    numbers.into_iter().map(bound).collect()
}

#[test]
fn a_list_is_an_array_or_as_many_placeholders() {
    let sql = "SELECT 1 FROM t WHERE a = :a AND id NOT IN ( :ids ) AND id=any(:ids) AND :row_rule";
    let array = BoundValue::List(BoundList::Integers(vec![Some(7), Some(8), Some(9)]));
    let with = |lists: &[&[i64]]| {
        let lists = lists.iter().flat_map(|list| whole(list.iter().copied()));
        lists.collect::<Vec<_>>()
    };
    for (dialect, rendered, values) in [
        (
            SqlDialect::Postgres,
            "SELECT 1 FROM t WHERE a = $1 AND id  <> ALL ($2 ) AND id = ANY ($2) AND ($3)",
            vec![text("x"), array, text("r")],
        ),
        (
            SqlDialect::Sqlite,
            "SELECT 1 FROM t WHERE a = ?1 AND id  NOT IN (?4, ?5, ?6, ?7 ) AND id IN (?8, ?9, ?10, ?11) AND (?3)",
            [
                vec![text("x"), BoundValue::Integer(None), text("r")],
                with(&[&[7, 8, 9, 9], &[7, 8, 9, 9]]),
            ]
            .concat(),
        ),
        (
            SqlDialect::Mysql,
            "SELECT 1 FROM t WHERE a = ? AND id  NOT IN (?, ?, ?, ? ) AND id IN (?, ?, ?, ?) AND (?)",
            [
                vec![text("x")],
                with(&[&[7, 8, 9, 9], &[7, 8, 9, 9]]),
                vec![text("r")],
            ]
            .concat(),
        ),
    ] {
        let mut statement = Statement::parse(dialect, sql).unwrap();
        statement.set_list("ids").unwrap();
        let params = [
            text_parameter("x"),
            Parameter::List(JsonType::Integer, whole([7, 8, 9])),
        ];
        let rule = dialect.placeholder(3);
        let rule_values = [text("r")];
        let found = statement.with_values(&[], Some((&rule, &rule_values)), &params);
        assert_eq!((&*found.0, found.1), (rendered, values));
    }
}

#[test]
fn a_list_stands_where_several_values_may() {
    for sql in [
        "SELECT :ids",
        "SELECT 1 WHERE id = :ids",
        "SELECT 1 WHERE id IN (1, :ids)",
        "SELECT 1 WHERE id IN (:ids, 1)",
        "SELECT 1 FROM a join (:ids) b",
        "SELECT 1 WHERE id > ANY (:ids)",
        "SELECT 1 WHERE id >= ANY (:ids)",
    ] {
        for dialect in [SqlDialect::Sqlite, SqlDialect::Mysql] {
            let mut statement = Statement::parse(dialect, sql).unwrap();
            let bad = statement.set_list("ids").unwrap_err();
            assert_eq!(bad.fix, "write `… IN (:ids)` or `… = ANY (:ids)`", "{sql}");
        }
        let mut statement = Statement::parse(SqlDialect::Postgres, sql).unwrap();
        statement.set_list("ids").unwrap();
        let params = [Parameter::List(JsonType::Integer, Vec::new())];
        let (rendered, _) = statement.with_values(&[], None, &params);
        assert_eq!(
            *rendered,
            sql.replace(":ids", "$1"),
            "an array may stand anywhere"
        );
    }
}

#[test]
fn a_limit_at_the_end_can_be_left_out() {
    let sql = "SELECT id FROM t WHERE a = :a AND :row_rule AND b IN (:ids) ORDER BY id LIMIT :n OFFSET :m -- all\n;";
    let ids = Parameter::List(JsonType::Integer, whole([7]));
    let number = |number| Parameter::One(BoundValue::Integer(Some(number)));
    let params = [text_parameter("x"), ids, number(5), number(3)];
    let array = BoundValue::List(BoundList::Integers(vec![Some(7)]));
    let numbers = whole([5, 3]);
    for (dialect, expected, values) in [
        (
            SqlDialect::Postgres,
            "SELECT id FROM t WHERE a = $1 AND (r = $5) AND b  = ANY ($2) ORDER BY id ",
            [vec![text("x"), array], numbers.clone(), vec![text("r")]].concat(),
        ),
        (
            SqlDialect::Sqlite,
            "SELECT id FROM t WHERE a = ?1 AND (r = ?5) AND b  IN (?6) ORDER BY id ",
            [
                vec![text("x"), BoundValue::Integer(None)],
                numbers,
                vec![text("r")],
                whole([7]),
            ]
            .concat(),
        ),
        (
            SqlDialect::Mysql,
            "SELECT id FROM t WHERE a = ? AND (r = ?) AND b  IN (?) ORDER BY id ",
            [vec![text("x"), text("r")], whole([7])].concat(),
        ),
    ] {
        let mut statement = Statement::parse(dialect, sql).unwrap();
        statement.set_list("ids").unwrap();
        let rule = format!("r = {}", dialect.placeholder(5));
        let rule_values = [text("r")];
        let rule = Some((rule.as_str(), &rule_values[..]));
        let found = statement.without_limit(&[], rule, &params);
        assert_eq!((&*found.0, found.1), (expected, values));
        let (whole_text, _) = statement.with_values(&[], rule, &params);
        assert!(whole_text.starts_with(expected), "{whole_text}");
        assert!(whole_text.contains("LIMIT"), "{whole_text}");
        let range = statement.limited_rows(&params).unwrap().unwrap();
        assert_eq!((range.skip, range.take), (3, Some(5)));
    }
    let endless = Statement::parse(SqlDialect::Sqlite, "SELECT id FROM t").unwrap();
    assert_eq!(endless.limited_rows(&[]), Ok(None));
    let (cut, _) = endless.without_limit(&[], None, &[]);
    assert_eq!(&*cut, "SELECT id FROM t");
}

#[test]
fn the_numbers_of_a_limit_mean_what_they_mean_to_the_database() {
    let sql = "SELECT id FROM t ORDER BY id LIMIT :n OFFSET :m";
    let found = |dialect, take, skip| {
        let statement = Statement::parse(dialect, sql).unwrap();
        let params = [take, skip].map(|number| Parameter::One(BoundValue::Integer(number)));
        let range = statement.limited_rows(&params);
        range.map(|range| range.map(|range| (range.skip, range.take)))
    };
    let [sqlite, postgres, mysql] = [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql];
    for dialect in [sqlite, postgres, mysql] {
        assert_eq!(found(dialect, Some(0), Some(0)), Ok(Some((0, Some(0)))));
        assert_eq!(found(dialect, Some(5), Some(3)), Ok(Some((3, Some(5)))));
    }
    assert_eq!(found(sqlite, Some(-1), Some(-2)), Ok(Some((0, None))));
    assert_eq!(found(postgres, None, None), Ok(Some((0, None))));
    for (dialect, take, skip) in [
        (postgres, Some(-1), Some(0)),
        (mysql, Some(5), Some(-1)),
        (sqlite, None, Some(0)),
        (mysql, None, Some(0)),
    ] {
        assert!(found(dialect, take, skip).is_err(), "{dialect:?}");
    }
    let statement = Statement::parse(sqlite, sql).unwrap();
    let decimal = |text: &str| Parameter::One(BoundValue::Decimal(Some(text.parse().unwrap())));
    for (take, expected) in [("5", Some(5)), ("5.0", Some(5)), ("-1.0", None)] {
        let range = statement.limited_rows(&[decimal(take), decimal("0.0")]);
        assert_eq!(range.unwrap().unwrap().take, expected, "{take}");
    }
    let big = Parameter::One(BoundValue::BigInteger(1.into()));
    let list = Parameter::List(JsonType::Integer, Vec::new());
    let zero = Parameter::One(BoundValue::Integer(Some(0)));
    for take in [
        text_parameter("5"),
        big,
        list,
        decimal("5.5"),
        decimal("1e30"),
    ] {
        let unfit = statement.limited_rows(&[take, zero.clone()]).unwrap_err();
        assert!(unfit.to_string().starts_with("`n` is not a number of rows"));
    }
}

#[test]
fn quotes_comments_and_casts_hold_no_parameters() {
    for (dialect, sql) in [
        (
            SqlDialect::Postgres,
            "SELECT ':x', \"a:x\", 'it''s :x', a::text -- :x\n, b /* :x /* :y */ :z */ FROM t",
        ),
        (
            SqlDialect::Postgres,
            "SELECT E'\\':x', $$ :x ; $$, $t$ :x $$ $t$, '{\"a\":1}'::jsonb ? 'a', x[1:2] FROM t",
        ),
        (
            SqlDialect::Sqlite,
            "SELECT [a:x], `b:x`, ':x;' /* :x /* */ FROM t",
        ),
        (
            SqlDialect::Mysql,
            "SELECT `a``:x`, \"b:x\", '\\', ':x' # it's :x\n, - 1, _utf8mb4':x' -- :x\n /* :x /* */ FROM t",
        ),
    ] {
        assert_eq!(render(dialect, sql), (sql.to_owned(), vec![]), "{sql}");
    }
}

#[test]
fn only_one_statement_is_accepted() {
    for sql in [
        "SELECT 1;",
        "SELECT 1 ; -- done\n",
        "SELECT 1;\n/* done */",
        "SELECT ';'",
    ] {
        assert!(Statement::parse(SqlDialect::Sqlite, sql).is_ok(), "{sql}");
    }
    for (sql, problem) in [
        ("SELECT 1; DROP TABLE t", "there is text after the `;`"),
        ("SELECT 1;;", "there is text after the `;`"),
        (
            "SELECT 1;\n:x",
            "there is text after the `;` (line 2 of the text)",
        ),
        (
            "",
            "the statement does not begin with a keyword that reads or writes rows",
        ),
        (
            "-- nothing",
            "the statement does not begin with a keyword that reads or writes rows",
        ),
        (
            "COMMIT",
            "the statement does not begin with a keyword that reads or writes rows",
        ),
        ("SELECT 'a", "a quoted text or comment is not closed"),
        ("SELECT /* a", "a quoted text or comment is not closed"),
        (
            "SELECT ?",
            "the statement contains a placeholder in the database's own syntax",
        ),
        (
            "SELECT $1",
            "the statement contains a placeholder in the database's own syntax",
        ),
        (
            "SELECT :row_rule, :row_rule",
            "`:row_rule` occurs more than once",
        ),
        ("SELECT '\0'", "a quoted text contains a NUL character"),
    ] {
        let bad = Statement::parse(SqlDialect::Sqlite, sql).unwrap_err();
        assert_eq!(bad.problem, problem, "{sql}");
    }
    let unclosed = Statement::parse(SqlDialect::Postgres, "SELECT $a$ x $b$").unwrap_err();
    assert_eq!(unclosed.fix, "close it with $a$");
}

#[test]
fn a_name_is_an_identifier_whatever_it_holds() {
    let sql = "SELECT '{a}', {b} /* {c} */ FROM {a} WHERE {b} = :b";
    for (dialect, rendered) in [
        (
            SqlDialect::Postgres,
            r#"SELECT '{a}', "x" /* {c} */ FROM "a""`b" WHERE "x" = $1"#,
        ),
        (
            SqlDialect::Sqlite,
            r#"SELECT '{a}', `x` /* {c} */ FROM `a"``b` WHERE `x` = ?1"#,
        ),
        (
            SqlDialect::Mysql,
            r#"SELECT '{a}', `x` /* {c} */ FROM `a"``b` WHERE `x` = ?"#,
        ),
    ] {
        let statement = Statement::parse(dialect, sql).unwrap();
        assert_eq!(statement.names(), ["b", "a"]);
        let identifiers = ["x", "a\"`b"].map(|name| dialect.identifier(name));
        let identifiers = [identifiers[0].as_str(), identifiers[1].as_str()];
        assert_eq!(&*statement.with_values(&identifiers, None, &[]).0, rendered);
    }
    for sql in [
        "SELECT {}",
        "SELECT {a b}",
        "SELECT {a",
        "SELECT a}",
        "SELECT {a:sql}",
    ] {
        let bad = Statement::parse(SqlDialect::Postgres, sql).unwrap_err();
        assert!(bad.problem.starts_with("a brace outside quotes"), "{sql}");
    }
}

#[test]
fn placeholders_of_the_database_get_names() {
    let name = |position: usize| ["a", "b"].get(position).copied();
    for (dialect, sql, named) in [
        (
            SqlDialect::Postgres,
            "SELECT '$1', $2::int, x[1:$1] -- $1\nWHERE a = $1AND j ? 'x'",
            "SELECT '$1', :b::int, x[1: :a] -- $1\nWHERE a = :a AND j ? 'x'",
        ),
        (SqlDialect::Mysql, "SELECT ?, '?', ?", "SELECT :a, '?', :b"),
        (SqlDialect::Sqlite, "SELECT ?2, ?, $1", "SELECT :b, :a, :a"),
    ] {
        let converted = name_placeholders(dialect, sql, name).unwrap();
        assert_eq!(converted, named);
        assert!(Statement::parse(dialect, &converted).is_ok());
    }
    for sql in [
        "SELECT $3",
        "SELECT $0",
        "SELECT $1, :c",
        "SELECT $99999999999999999999",
    ] {
        assert!(
            name_placeholders(SqlDialect::Postgres, sql, name).is_err(),
            "{sql}"
        );
    }
}

#[test]
fn what_mysql_reads_in_two_ways_is_refused() {
    for (sql, problem) in [
        (
            "SELECT 1 /*! , 2 */",
            "a comment that the database server would execute",
        ),
        (
            "SELECT 1 /*!50110 , 2 */",
            "a comment that the database server would execute",
        ),
        (
            "SELECT 1 /*M! , 2 */",
            "a comment that the database server would execute",
        ),
        ("SELECT 1--1", "a `--` is not followed by a space"),
        ("SELECT @a", "a `$` or `@` outside quotes"),
        ("SELECT @@sql_mode", "a `$` or `@` outside quotes"),
        ("SELECT $$ ' $$", "a `$` or `@` outside quotes"),
        ("SELECT a$b", "a `$` or `@` outside quotes"),
        ("SELECT ?", "a placeholder in the database's own syntax"),
        (
            "SELECT 1 INTO OUTFILE '/tmp/x'",
            "writes a file on the database server",
        ),
        (
            "SELECT 1 INTO dumpfile '/tmp/x'",
            "writes a file on the database server",
        ),
    ] {
        let bad = Statement::parse(SqlDialect::Mysql, sql).unwrap_err();
        assert!(bad.problem.contains(problem), "{sql}: {}", bad.problem);
    }
}

#[test]
fn a_rule_expression_cannot_leave_its_place() {
    for sql in [
        "m.doctor",
        "lower(\"a b\")",
        "(a || b)",
        "CASE WHEN a THEN 'x' END",
    ] {
        assert_eq!(check_expression(SqlDialect::Postgres, sql), Ok(()), "{sql}");
    }
    for sql in [
        "a) OR (1=1",
        "a; DROP",
        ":p",
        "a -- b",
        "(a",
        "a /* b */",
        "'a",
    ] {
        assert!(
            check_expression(SqlDialect::Postgres, sql).is_err(),
            "{sql}"
        );
    }
}

proptest! {
    #[test]
    fn any_text_is_scanned_without_a_panic(sql in "[ -~\u{0}\u{e9}\n]{0,60}") {
        for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql] {
            let _ = Statement::parse(dialect, &sql);
            let _ = check_expression(dialect, &sql);
        }
    }

    #[test]
    fn what_is_not_a_parameter_is_kept_to_the_letter(text in "[a-z '\"()/*-]{0,40}") {
        let sql = format!("SELECT {text}");
        if let Ok(statement) = Statement::parse(SqlDialect::Postgres, &sql) {
            prop_assert_eq!(statement.with_values(&[], None, &[]).0.to_string(), sql);
        }
    }
}
