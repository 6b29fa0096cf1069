use super::*;

const DIALECTS: [SqlDialect; 3] = [SqlDialect::Sqlite, SqlDialect::Postgres, SqlDialect::Mysql];

fn row_handling(dialect: SqlDialect, sql: &str) -> RowHandling {
    RowHandling::from_sql(dialect, sql).unwrap()
}

/// Returns the text of the limit of `sql`, and its numbers.
fn limit(sql: &str) -> Option<(&str, Option<RowNumber>, Option<RowNumber>)> {
    let limit = row_handling(SqlDialect::Sqlite, sql).limit?;
    Some((&sql[limit.at..], limit.skip, limit.take))
}

#[test]
fn a_limit_at_the_end_is_found_in_every_form() {
    let literal = |number| Some(RowNumber::Literal(number));
    let param = |name: &str| Some(RowNumber::Param(name.to_owned()));
    for (text, skip, take) in [
        ("LIMIT 5", None, literal(5)),
        ("limit :n", None, param("n")),
        ("LIMIT 5 OFFSET :m", param("m"), literal(5)),
        ("LIMIT :m, 5", param("m"), literal(5)),
        ("LIMIT 2,5", literal(2), literal(5)),
        ("OFFSET 2", literal(2), None),
        ("OFFSET 2 LIMIT :n", literal(2), param("n")),
        ("OFFSET 2 ROWS LIMIT :n", literal(2), param("n")),
        ("FETCH FIRST 5 ROWS ONLY", None, literal(5)),
        ("FETCH NEXT 1 ROW ONLY", None, literal(1)),
        ("OFFSET 2 ROW", literal(2), None),
        (
            "OFFSET :m ROWS FETCH NEXT :n ROWS ONLY",
            param("m"),
            param("n"),
        ),
        ("LIMIT /* at most */ 5 -- rows", None, literal(5)),
        ("LIMIT 5\n;", None, literal(5)),
    ] {
        let sql = format!("SELECT id FROM t WHERE a IN (1, 2) AND :row_rule ORDER BY id {text}");
        assert_eq!(limit(&sql), Some((text, skip, take)), "{sql}");
        for dialect in DIALECTS {
            let handling = row_handling(dialect, &sql);
            assert!(!handling.combines_rows, "{sql}");
            assert!(handling.restricts_every_row, "{sql}");
        }
    }
}

#[test]
fn a_limit_that_is_not_understood_combines_rows() {
    for text in [
        "LIMIT ALL",
        "LIMIT -1",
        "LIMIT -1 OFFSET 3",
        "LIMIT 1 + 1",
        "LIMIT 1.5",
        "LIMIT (5)",
        "LIMIT :n + 1",
        "LIMIT 99999999999999999999",
        "LIMIT 5 OFFSET -1",
        "LIMIT (SELECT n FROM settings)",
        "LIMIT 5 FOR UPDATE",
        "OFFSET (:m)",
        "FETCH FIRST ROW ONLY",
        "FETCH FIRST 5 PERCENT ROWS ONLY",
        "FETCH FIRST 5 ROWS WITH TIES",
        "LIMIT {n}",
    ] {
        let sql = format!("SELECT id FROM t WHERE :row_rule ORDER BY id {text}");
        assert!(
            row_handling(SqlDialect::Postgres, &sql).combines_rows,
            "{sql}"
        );
    }
}

#[test]
fn an_offset_that_is_an_expression_combines_rows() {
    for end in ["", " ROWS FETCH NEXT 10 ROWS ONLY", " LIMIT :n"] {
        let sql =
            format!("SELECT id FROM t WHERE :row_rule ORDER BY id OFFSET coalesce(:m, 0){end}");
        assert!(
            row_handling(SqlDialect::Postgres, &sql).combines_rows,
            "{sql}"
        );
    }
}

#[test]
fn other_words_are_no_limit() {
    for sql in [
        "SELECT id, 'x LIMIT 5' FROM t WHERE :row_rule -- LIMIT 5",
        "SELECT id FROM t WHERE :row_rule ORDER BY \"limit\"",
        "SELECT t.limit, t.group, t.offset, first FROM t WHERE :row_rule",
        "SELECT id FROM t WHERE :row_rule /* LIMIT 5 */",
        "SELECT id, (SELECT a FROM u LIMIT 1) AS a FROM t WHERE :row_rule",
        "SELECT id FROM t WHERE :row_rule AND id IN (SELECT id FROM u ORDER BY a LIMIT 5)",
    ] {
        for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres] {
            let handling = row_handling(dialect, sql);
            assert_eq!(handling.limit, None, "{sql}");
            assert!(!handling.combines_rows, "{sql}");
        }
    }
    let column = "SELECT offset FROM t WHERE :row_rule ORDER BY offset";
    assert!(!row_handling(SqlDialect::Sqlite, column).combines_rows);
    let quoted = "SELECT `limit`, \"count\" FROM t WHERE :row_rule LIMIT 3";
    let handling = row_handling(SqlDialect::Mysql, quoted);
    assert!(handling.limit.is_some() && !handling.combines_rows);
}

#[test]
fn a_query_that_combines_rows_is_found() {
    for sql in [
        "SELECT a FROM t WHERE :row_rule GROUP BY a",
        "SELECT count(*) FROM t WHERE :row_rule",
        "SELECT Count ( * ) FROM t WHERE :row_rule LIMIT 5",
        "SELECT pg_catalog.sum(a) FROM t WHERE :row_rule",
        "SELECT \"count\"(*) FROM t WHERE :row_rule",
        "SELECT coalesce(round(avg(a)), 0) FROM t WHERE (b AND (:row_rule))",
        "SELECT (max(a)) FROM t WHERE :row_rule",
        "SELECT json_agg(a ORDER BY b), string_agg(a, ',') FROM t WHERE :row_rule",
        "SELECT json_group_array(a) FROM t WHERE :row_rule",
        "SELECT percentile_cont(0.5) WITHIN GROUP (ORDER BY a) FROM t WHERE :row_rule",
        "SELECT a FROM t WHERE :row_rule HAVING max(b) > 1",
        "SELECT DISTINCT ON (a) a, b FROM t WHERE :row_rule",
        "SELECT a, row_number() OVER (ORDER BY a) FROM t WHERE :row_rule",
        "SELECT a, (lag(b) OVER w) FROM t WHERE :row_rule WINDOW w AS (ORDER BY a)",
        "SELECT {f}(a) FROM t WHERE :row_rule",
        // Queries around the one with the marker.
        "SELECT count(*) FROM (SELECT a FROM t WHERE :row_rule) x",
        "SELECT a FROM (SELECT a FROM t WHERE :row_rule LIMIT 5) x LIMIT 3",
        "SELECT a FROM (SELECT b.* FROM (SELECT DISTINCT ON (a) * FROM t WHERE :row_rule) b) c",
        // A query with a name can be read again by any other query.
        "WITH x AS (SELECT a FROM t WHERE :row_rule) SELECT a FROM x",
        "WITH x AS NOT MATERIALIZED (SELECT a FROM t WHERE :row_rule) SELECT a, (SELECT count(*) FROM x) FROM x",
        "WITH RECURSIVE x(a) AS (SELECT a FROM t WHERE :row_rule UNION ALL SELECT a FROM x) SELECT a FROM x",
        // Without a marker.
        "SELECT a FROM t GROUP BY a",
        "SELECT a FROM (SELECT a FROM t LIMIT 5) x",
        "WITH x AS (SELECT a, count(*) FROM t GROUP BY a) SELECT a FROM x",
        // Brackets that do not match.
        "SELECT a FROM t) WHERE :row_rule",
        "SELECT (a FROM t WHERE :row_rule",
    ] {
        assert!(
            row_handling(SqlDialect::Postgres, sql).combines_rows,
            "{sql}"
        );
    }
    for sql in [
        "SELECT GROUP_CONCAT(a) FROM t WHERE :row_rule",
        "SELECT `max`(a) FROM t WHERE :row_rule",
        "SELECT DISTINCTROW a FROM t WHERE :row_rule",
        "SELECT ROWNUM() AS n, a FROM t WHERE :row_rule",
        "SELECT a FROM t WHERE :row_rule PROCEDURE ANALYSE()",
    ] {
        assert!(row_handling(SqlDialect::Mysql, sql).combines_rows, "{sql}");
    }
    for sql in ["SELECT total(a) FROM t", "SELECT [count](*) FROM t"] {
        assert!(row_handling(SqlDialect::Sqlite, sql).combines_rows, "{sql}");
    }
}

#[test]
fn a_query_that_returns_its_rows_one_by_one_does_not_combine_them() {
    for sql in [
        "SELECT a, lower(b), substr(c, 1, 2) FROM t WHERE :row_rule ORDER BY a DESC",
        "SELECT a, count, sum AS total FROM t WHERE :row_rule",
        "SELECT a IS DISTINCT FROM b, a IS NOT DISTINCT FROM b FROM t WHERE :row_rule",
        "SELECT a FROM t JOIN u ON u.id = t.id LEFT JOIN v ON v.id = t.id WHERE :row_rule",
        "SELECT a, (SELECT count(*) FROM u WHERE u.t = t.id) AS n FROM t WHERE :row_rule",
        "SELECT a FROM t WHERE :row_rule AND id IN (SELECT DISTINCT t FROM u GROUP BY t HAVING max(b) > 1)",
        "SELECT a FROM t WHERE :row_rule AND EXISTS (SELECT 1 FROM u UNION SELECT 2 FROM v)",
        "SELECT a FROM (SELECT a, b FROM t WHERE :row_rule) x WHERE b > 2",
        "SELECT a FROM t JOIN (SELECT t, count(*) AS n FROM u GROUP BY t) x ON x.t = t.id WHERE :row_rule",
        "WITH n AS (SELECT u, count(*) FROM u GROUP BY u) SELECT a FROM n JOIN t ON n.u = t.u WHERE :row_rule",
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT a FROM n, t WHERE :row_rule",
        "SELECT a, 'count(*) GROUP BY a' FROM t WHERE :row_rule -- GROUP BY a",
        "SELECT a, (SELECT count(*) FROM u) AS n FROM t",
        "SELECT procedure, minus, distinctrow, rownum FROM t WHERE :row_rule",
        "SELECT staggered(a), aggregate_id(b) FROM t WHERE :row_rule",
    ] {
        for dialect in [SqlDialect::Sqlite, SqlDialect::Postgres] {
            assert!(!row_handling(dialect, sql).combines_rows, "{sql}");
        }
    }
}

#[test]
fn a_marker_among_the_conditions_of_where_restricts_every_row() {
    for sql in [
        "SELECT a FROM t WHERE :row_rule",
        "SELECT a FROM t WHERE a = :a AND :row_rule AND b = 1 ORDER BY a",
        "SELECT a FROM t WHERE (a = :a OR b = 1) AND ((:row_rule) AND c) GROUP BY a",
        "SELECT a FROM t WHERE a IS NOT NULL AND a NOT IN (1, 2) AND :row_rule",
        "SELECT a FROM t WHERE a BETWEEN 1 AND 2 AND :row_rule LIMIT 3",
        "SELECT a FROM t WHERE :row_rule AND a BETWEEN 1 AND 2 OFFSET 3",
        "SELECT a FROM t WHERE b BETWEEN 0 BETWEEN 1 AND 2 AND 1 AND :row_rule",
        "SELECT CASE WHEN a OR b THEN 1 END FROM t WHERE :row_rule GROUP BY a HAVING a OR b",
        "SELECT a FROM t LEFT JOIN u ON u.a = t.a OR u.b WHERE :row_rule",
        "SELECT count(*) FROM (SELECT a FROM t WHERE :row_rule) x GROUP BY a HAVING b OR c",
        "SELECT a FROM u LEFT JOIN (SELECT a FROM t WHERE :row_rule) x ON x.a = u.a",
        "WITH x AS (SELECT a FROM t WHERE :row_rule) SELECT a, count(*) FROM x GROUP BY a",
        "WITH x AS (SELECT 1 UNION SELECT 2) SELECT a FROM t WHERE a IN (SELECT 1 UNION SELECT 2) AND :row_rule",
    ] {
        for dialect in DIALECTS {
            assert!(row_handling(dialect, sql).restricts_every_row, "{sql}");
        }
    }
}

#[test]
fn any_other_marker_does_not_restrict_every_row() {
    for sql in [
        "SELECT a FROM t",
        "WITH x AS (SELECT b FROM t WHERE :row_rule) SELECT a FROM t WHERE b IN (SELECT b FROM x)",
        "WITH x AS (SELECT b FROM t WHERE :row_rule), y AS (SELECT b FROM x) SELECT a FROM t WHERE b IN (SELECT b FROM y)",
        "WITH RECURSIVE x AS (SELECT b FROM x WHERE :row_rule) SELECT a FROM t",
        "SELECT a FROM t WHERE :row_rule AND procedure = 1 OR b",
        "SELECT ':row_rule' FROM t WHERE 1 = 1",
        "SELECT :row_rule FROM t",
        "SELECT a FROM t WHERE a = 1 OR :row_rule",
        "SELECT a FROM t WHERE :row_rule AND a = 1 OR b = 1",
        "SELECT a FROM t WHERE a OR b AND :row_rule",
        "SELECT a FROM t WHERE a XOR b AND :row_rule",
        "SELECT a FROM t WHERE (a OR :row_rule) AND b",
        "SELECT a FROM t WHERE a AND (b AND :row_rule OR c)",
        "SELECT a FROM t WHERE a OR (b AND :row_rule)",
        "SELECT a FROM t WHERE NOT :row_rule",
        "SELECT a FROM t WHERE b AND NOT (:row_rule)",
        "SELECT a FROM t WHERE ! (:row_rule)",
        "SELECT a FROM t WHERE :row_rule IS FALSE",
        "SELECT a FROM t WHERE :row_rule = FALSE",
        "SELECT a FROM t WHERE b = (:row_rule)",
        "SELECT a FROM t WHERE coalesce(:row_rule, TRUE)",
        "SELECT a FROM t WHERE a AND (b, :row_rule)",
        "SELECT a FROM t WHERE CASE WHEN b AND :row_rule AND c THEN 1 END = 1",
        "SELECT a FROM t WHERE a BETWEEN 1 AND :row_rule",
        "SELECT a FROM t WHERE a BETWEEN :row_rule AND 1",
        "SELECT a FROM t WHERE a BETWEEN 0 BETWEEN 1 AND 2 AND :row_rule",
        "SELECT a FROM t GROUP BY a HAVING :row_rule",
        "SELECT a FROM t WHERE b GROUP BY a HAVING c AND :row_rule",
        "SELECT a FROM t LEFT JOIN u ON u.a = t.a AND :row_rule",
        "SELECT a FROM t JOIN u ON :row_rule WHERE b",
        "SELECT count(*) FILTER (WHERE :row_rule) FROM t",
        "SELECT a FROM t WHERE b UNION SELECT a FROM t WHERE :row_rule",
        "SELECT a FROM t WHERE :row_rule UNION ALL SELECT a FROM t",
        "SELECT a FROM (SELECT a FROM t WHERE :row_rule UNION SELECT a FROM t) x",
        "SELECT a FROM t WHERE a IN (SELECT a FROM t WHERE :row_rule)",
        "SELECT a FROM t WHERE NOT EXISTS (SELECT a FROM u WHERE :row_rule)",
        "SELECT a, (SELECT count(*) FROM t WHERE :row_rule) FROM u",
        "SELECT a FROM t WHERE :row_rule)",
    ] {
        for dialect in DIALECTS {
            assert!(!row_handling(dialect, sql).restricts_every_row, "{sql}");
        }
    }
}

#[test]
fn a_bracketed_query_is_a_table_where_its_rows_are_read_or_returned() {
    for sql in [
        "SELECT s.a FROM s, (SELECT a, count(*) AS n FROM t GROUP BY a) x",
        "SELECT a FROM ((SELECT a, count(*) AS n FROM t GROUP BY a)) x",
        "SELECT a FROM (s JOIN (SELECT a FROM t LIMIT 1) y ON y.a = s.a)",
        "SELECT a FROM a JOIN b ON a.x = b.x, (SELECT count(*) AS n FROM t) q",
        "SELECT a FROM a JOIN b ON a.x = b.x JOIN (SELECT count(*) AS n FROM t) q ON q.n = a.x",
        "SELECT a FROM a JOIN b USING (x), (SELECT count(*) AS n FROM t) q",
        "SELECT a FROM a, LATERAL (SELECT count(*) AS n FROM t) q",
        "SELECT a FROM a STRAIGHT_JOIN (SELECT count(*) AS n FROM t) q",
        "(SELECT a FROM t ORDER BY a LIMIT 5)",
        "((SELECT a FROM t ORDER BY a LIMIT 5))",
        "((SELECT a FROM t) LIMIT 5)",
        "WITH c AS (SELECT a FROM t) (SELECT a, count(*) FROM c GROUP BY a)",
        "WITH c AS ((SELECT a, count(*) FROM t GROUP BY a)) SELECT a FROM c",
        "WITH c (a, n) AS NOT MATERIALIZED (SELECT a, count(*) FROM t GROUP BY a) SELECT a FROM c",
        "(SELECT a FROM t LIMIT 5) UNION ALL (SELECT a FROM t)",
        "(SELECT a FROM t) UNION ALL (SELECT a FROM t LIMIT 5)",
        "SELECT a FROM t WHERE b UNION ALL (SELECT a FROM t LIMIT 5)",
        "SELECT a FROM ((SELECT a FROM t) UNION ALL (SELECT a FROM t LIMIT 5)) x",
        "SELECT a FROM (TABLE t LIMIT 5) x",
        // Names of columns and tables that are also words of clauses.
        "SELECT a FROM t AS offset, (SELECT count(*) AS n FROM u) x",
        "SELECT a FROM a JOIN b ON a.limit = b.where, (SELECT count(*) AS n FROM t) q",
        "SELECT a FROM partition, (SELECT count(*) AS n FROM u) x",
        // The function is an item of the FROM clause.
        "SELECT a FROM unnest((SELECT array_agg(a) FROM t)) x",
    ] {
        for dialect in DIALECTS {
            assert!(row_handling(dialect, sql).combines_rows, "{sql}");
        }
    }
    for sql in [
        "SELECT coalesce((SELECT count(*) FROM v), 0) AS n, a FROM t",
        "SELECT a, ((SELECT count(*) FROM v)) AS n FROM t",
        "SELECT a FROM t WHERE a IN (SELECT max(a) FROM v GROUP BY b LIMIT 3)",
        "SELECT a FROM t WHERE a IN ((SELECT max(a) FROM v) UNION ALL (SELECT max(a) FROM w))",
        "SELECT a FROM t JOIN u ON t.x = (SELECT max(y) FROM v)",
        "SELECT a FROM s, t JOIN u ON t.x = (SELECT max(y) FROM v)",
        "SELECT a FROM t ORDER BY (SELECT max(y) FROM v WHERE v.a = t.a)",
        "SELECT a FROM t WHERE a IS DISTINCT FROM (SELECT max(y) FROM v)",
        "SELECT extract(day FROM (SELECT max(y) FROM v)) AS d, a FROM t",
        "SELECT (SELECT n FROM (SELECT count(*) AS n FROM v) x) AS n, a FROM t",
    ] {
        for dialect in DIALECTS {
            assert!(!row_handling(dialect, sql).combines_rows, "{sql}");
        }
    }
}

#[test]
fn a_marker_in_a_subquery_of_an_expression_does_not_restrict_every_row() {
    for sql in [
        "SELECT coalesce((SELECT a FROM t WHERE :row_rule), 0) FROM t",
        "SELECT count(*) FILTER (WHERE EXISTS (SELECT a FROM t WHERE :row_rule)) FROM t",
        "SELECT a FROM t WHERE a IS DISTINCT FROM (SELECT a FROM t WHERE :row_rule)",
        "SELECT a FROM t WHERE a = extract(day FROM (SELECT a FROM t WHERE :row_rule))",
        "SELECT a FROM t JOIN u ON t.x = (SELECT x FROM v WHERE :row_rule)",
        "SELECT a FROM t WHERE a IN (SELECT a FROM (SELECT a FROM t WHERE :row_rule) x)",
        "SELECT a FROM t OFFSET (SELECT n FROM t WHERE :row_rule)",
    ] {
        for dialect in DIALECTS {
            assert!(!row_handling(dialect, sql).restricts_every_row, "{sql}");
        }
    }
    for sql in [
        "SELECT a FROM ((SELECT a FROM t WHERE :row_rule)) x",
        "SELECT a FROM s, (SELECT a FROM t WHERE :row_rule) x",
        "SELECT a FROM s JOIN u ON s.a = u.a, (SELECT a FROM t WHERE :row_rule) x",
        "WITH x AS ((SELECT a FROM t WHERE :row_rule)) SELECT a FROM x",
        "(SELECT a FROM t WHERE :row_rule)",
    ] {
        for dialect in DIALECTS {
            assert!(row_handling(dialect, sql).restricts_every_row, "{sql}");
        }
    }
}

#[test]
fn a_query_in_with_is_shared_also_in_redundant_brackets() {
    let sql = "WITH x AS ((SELECT a FROM t WHERE :row_rule)) SELECT a FROM x";
    assert!(row_handling(SqlDialect::Postgres, sql).combines_rows);
}

#[test]
fn a_marker_that_comes_after_the_rows_were_combined_does_not_restrict_every_row() {
    for sql in [
        "WITH x AS (SELECT r.*, row_number() OVER (ORDER BY a) AS n FROM t r) SELECT a FROM x WHERE :row_rule AND n <= 3",
        "SELECT a FROM (SELECT * FROM t ORDER BY a LIMIT 20) x WHERE :row_rule",
        "SELECT a FROM ((SELECT * FROM t) LIMIT 20) x WHERE :row_rule",
        "SELECT a FROM (SELECT a FROM (SELECT * FROM t LIMIT 20) y) x WHERE :row_rule",
        "SELECT a FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x CROSS JOIN (SELECT 1) y WHERE :row_rule",
        "WITH x (a, n) AS (SELECT a, count(*) FROM t GROUP BY a), y AS (SELECT 1) SELECT a FROM y, \"X\" z WHERE :row_rule",
        "WITH x AS (SELECT a FROM t LIMIT 5), y AS (SELECT a FROM x WHERE :row_rule) SELECT a FROM y",
        "SELECT a FROM (SELECT a FROM t LIMIT 5) AS x (a, b) WHERE :row_rule",
        "SELECT a FROM (SELECT a FROM t LIMIT 5) x, generate_series(1, 2) y WHERE :row_rule",
        "WITH x AS (SELECT a FROM t LIMIT 5) SELECT a FROM {source} WHERE :row_rule",
        "SELECT x.a FROM (SELECT * FROM t ORDER BY d LIMIT 5) x WHERE EXISTS (SELECT 1 FROM u WHERE u.a = x.a AND :row_rule)",
        "SELECT a FROM (SELECT a, count(*) AS n FROM t GROUP BY a) x WHERE a IN (SELECT a FROM t WHERE :row_rule)",
        "WITH x AS (SELECT a FROM t LIMIT 5), y AS (SELECT 1) SELECT a FROM x JOIN y ON x.a && ARRAY[1, 2] WHERE :row_rule",
        "WITH RECURSIVE y AS (SELECT a FROM x WHERE :row_rule), x AS (SELECT a FROM t LIMIT 5) SELECT a FROM y",
        "SELECT a FROM (TABLE t LIMIT 5) x WHERE :row_rule",
    ] {
        for dialect in DIALECTS {
            let handling = row_handling(dialect, sql);
            assert!(handling.combines_rows, "{sql}");
            assert!(!handling.restricts_every_row, "{sql}");
        }
    }
    for (sql, combines_rows) in [
        (
            "SELECT a FROM (SELECT a FROM t UNION ALL SELECT a FROM u) x WHERE :row_rule",
            false,
        ),
        (
            "SELECT a FROM ((SELECT a FROM t) UNION ALL (SELECT a FROM u)) x WHERE :row_rule LIMIT 5",
            false,
        ),
        (
            "SELECT a, count(*) FROM (SELECT a FROM t UNION ALL SELECT a FROM u) x WHERE :row_rule GROUP BY a",
            true,
        ),
        (
            "WITH x AS (SELECT a FROM t) SELECT a, count(*) FROM x WHERE :row_rule GROUP BY a",
            true,
        ),
        (
            "SELECT r.a FROM t r JOIN (SELECT a, max(d) AS d FROM t GROUP BY a) n ON n.d = r.d WHERE :row_rule",
            false,
        ),
        (
            "SELECT r.a FROM (SELECT a FROM t LIMIT 1) n, public.t r WHERE :row_rule",
            false,
        ),
        (
            "SELECT r.a FROM ((SELECT a FROM t LIMIT 1) n JOIN t r ON n.a = r.a) WHERE :row_rule",
            false,
        ),
        (
            "SELECT r.a FROM (t r JOIN (SELECT a FROM t LIMIT 1) n ON n.a = r.a) WHERE :row_rule",
            false,
        ),
        (
            "WITH x AS (SELECT a FROM t LIMIT 1) SELECT r.a FROM x JOIN other.x AS r ON r.a = x.a WHERE :row_rule",
            false,
        ),
        (
            "WITH x AS (SELECT * FROM t), y AS (SELECT a FROM x WHERE :row_rule), z AS (SELECT a, count(*) FROM y GROUP BY a) SELECT a FROM z",
            true,
        ),
        ("SELECT count(*) FROM {source} WHERE :row_rule", true),
        (
            "SELECT count(*) FROM visible_rows(:a) r WHERE :row_rule",
            true,
        ),
    ] {
        for dialect in DIALECTS {
            let handling = row_handling(dialect, sql);
            assert!(handling.restricts_every_row, "{sql}");
            assert_eq!(handling.combines_rows, combines_rows, "{sql}");
        }
    }
}

/// Tests that equal rows may be merged where only rows with the same texts are equal.
#[test]
fn distinct_and_set_operations_combine_rows_if_a_collation_decides_which_are_equal() {
    for sql in [
        "SELECT DISTINCT a FROM t",
        "SELECT DISTINCT a FROM t WHERE :row_rule LIMIT 3",
        "SELECT a FROM (SELECT DISTINCT a FROM t) x",
        "SELECT a FROM t UNION SELECT a FROM u",
        "SELECT a FROM t UNION DISTINCT SELECT a FROM u",
        "SELECT a FROM t INTERSECT ALL SELECT a FROM u",
        "SELECT a FROM t WHERE :row_rule EXCEPT SELECT a FROM u",
        "(SELECT a FROM t WHERE :row_rule) UNION (SELECT a FROM u) LIMIT 5",
        "SELECT a FROM (SELECT a FROM t UNION SELECT a FROM u) x WHERE :row_rule",
    ] {
        assert!(
            !row_handling(SqlDialect::Postgres, sql).combines_rows,
            "{sql}"
        );
        for dialect in [SqlDialect::Sqlite, SqlDialect::Mysql] {
            assert!(row_handling(dialect, sql).combines_rows, "{sql}");
        }
    }
    for dialect in DIALECTS {
        let sql = "SELECT a FROM t WHERE :row_rule UNION ALL SELECT a FROM u ORDER BY a LIMIT 5";
        let union = row_handling(dialect, sql);
        assert!(!union.combines_rows && !union.restricts_every_row);
        assert!(union.limit.is_some());
    }
    for sql in [
        "SELECT DISTINCT ON (a) a, b FROM t",
        "SELECT count(DISTINCT a) FROM t",
        // The marker does not cover the other branch.
        "SELECT a FROM t WHERE :row_rule UNION ALL SELECT a FROM (SELECT a FROM t LIMIT 5) x",
        "(SELECT a FROM t WHERE :row_rule) UNION ALL (SELECT a FROM t ORDER BY a LIMIT 5)",
        "SELECT a FROM t WHERE :row_rule UNION ALL SELECT count(*) FROM t",
    ] {
        for dialect in DIALECTS {
            let handling = row_handling(dialect, sql);
            assert!(handling.combines_rows, "{sql}");
            assert!(!handling.restricts_every_row, "{sql}");
        }
    }
}

#[test]
fn min_and_max_of_several_values_combine_no_rows_in_sqlite() {
    let sql = "SELECT min(a, b), max(round(a, 1), b) FROM t";
    assert!(!row_handling(SqlDialect::Sqlite, sql).combines_rows);
    assert!(row_handling(SqlDialect::Postgres, sql).combines_rows);
    for sql in ["SELECT min(a) FROM t", "SELECT max(round(a, 1)) FROM t"] {
        assert!(row_handling(SqlDialect::Sqlite, sql).combines_rows, "{sql}");
    }
}

#[test]
fn an_aggregate_in_a_subquery_without_a_table_combines_the_rows_of_the_query_around_it() {
    for sql in [
        "SELECT (SELECT count(r.id)) AS n, id FROM t r",
        "SELECT ((SELECT (SELECT count(r.id)))) AS n, id FROM t r WHERE :row_rule",
    ] {
        for dialect in DIALECTS {
            assert!(row_handling(dialect, sql).combines_rows, "{sql}");
        }
    }
    let of_others = "SELECT (SELECT (SELECT count(v.id)) FROM v) AS n, id FROM t r";
    assert!(!row_handling(SqlDialect::Postgres, of_others).combines_rows);
}
