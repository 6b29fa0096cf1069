//! Warnings about a catalogue: settings that are valid but probably not intended.

use wardgate_domain::ColumnClass;

use crate::{Catalogue, Fault, PinMode, Pins, SourceKind, Tool};

impl Catalogue {
    /// Returns warnings about settings that are valid but have no effect that their author can have intended.
    #[must_use]
    pub fn warnings(&self) -> &[Fault] {
        &self.warnings
    }

    /// Returns a warning for each tool with columns that have no class. Nobody receives such columns unless a policy shows
    /// `Class::"unclassified"`. Tools of MCP servers are left out, because their source configures their classes.
    #[must_use]
    pub fn unclassified_columns(&self) -> Vec<Fault> {
        let tools = self.tools().iter();
        tools.filter_map(Tool::unclassified_columns).collect()
    }

    /// Returns a warning for each tool that calls a tool of an MCP server without an entry in the lock file, `pins`. A source
    /// with `pins: first_use` needs no entries until the first one is written.
    #[must_use]
    pub fn unpinned_tools(&self, pins: &Pins) -> Vec<Fault> {
        let tools = self.tools().iter();
        tools
            .filter_map(|tool| self.warn_of_unpinned(tool, pins))
            .collect()
    }

    fn warn_of_unpinned(&self, tool: &Tool, pins: &Pins) -> Option<Fault> {
        let (source, called) = (tool.source()?, tool.plan().upstream_tool()?);
        if pins.approved_definition(source, called).is_some() {
            return None;
        }
        let name = &tool.facts().name;
        let problem = if pins.knows(source) {
            format!(
                "tool `{name}` is not offered, because `tools.lock` has no entry for the tool `{called}` of source `{source}`"
            )
        } else if self.trusts_first_use(source) {
            return None;
        } else {
            format!(
                "tool `{name}` calls the tool `{called}` of source `{source}`, which has no entry in `tools.lock`, so its \
                 definition is not compared with an approved one"
            )
        };
        let fix =
            format!("run `wardgate tools approve --source {source}` to review and approve it");
        tool.warning(problem, fix)
    }

    /// Returns whether the tools of `source` are approved when they are first seen.
    fn trusts_first_use(&self, source: &str) -> bool {
        let mut sources = self.sources().iter();
        sources.any(|it| {
            let kind = &it.kind;
            it.name == source
                && matches!(kind, SourceKind::Mcp(mcp) if mcp.pins == PinMode::FirstUse)
        })
    }
}

impl Tool {
    /// Creates a warning about this tool at its name, or returns `None` if an MCP server defines the tool.
    #[must_use]
    pub fn warning(&self, problem: String, fix: String) -> Option<Fault> {
        Some(self.positions.as_ref()?.name.fault(problem, fix))
    }

    /// Creates a warning about this tool at its column classes, or returns `None` if an MCP server defines the tool.
    #[must_use]
    pub fn class_warning(&self, problem: String, fix: String) -> Option<Fault> {
        Some(self.positions.as_ref()?.classes.fault(problem, fix))
    }

    /// Returns the columns with this class that can be released, in alphabetical order.
    pub fn columns_of(&self, class: &ColumnClass) -> impl Iterator<Item = &str> {
        let classes = self.result.classes.iter();
        let columns = classes.filter(move |(_, it)| *it == class);
        let columns = columns.map(|(column, _)| column.as_str());
        columns.filter(|column| !self.result.internal.contains(*column))
    }

    /// Returns whether the names of the columns are part of the configuration, and never values of a result.
    fn has_configured_columns(&self) -> bool {
        self.result.has_columns()
            || self.plan.columns().is_some()
            || self.plan.statement().is_some()
    }

    fn unclassified_columns(&self) -> Option<Fault> {
        // Kept results are already redacted, by the classes of the tool that returned them.
        if self.plan.reads_kept_results() {
            return None;
        }
        let name = &self.facts.name;
        let known = self.result.column_names().or_else(|| self.plan.columns());
        let Some(known) = known else {
            let has_none = self.result.classes.is_empty();
            return has_none.then(|| {
                self.class_warning(
                    format!(
                        "no column of tool `{name}` has a class, so no part of its result is shown"
                    ),
                    "add `result: { classes: { COLUMN: CLASS } }`, with a class that a policy shows, for example `none`"
                        .to_owned(),
                )
            })?;
        };
        let is_classified = |column: &String| {
            let mut classified = self.result.classes.keys().chain(&self.result.internal);
            classified.any(|it| it.eq_ignore_ascii_case(column))
        };
        let without: Vec<_> = known
            .into_iter()
            .filter(|column| !is_classified(column))
            .collect();
        (!without.is_empty()).then(|| self.without_class(without))?
    }

    /// Creates the warning that these columns have no class. Their names are left out if they may be values of a result.
    pub fn without_class(&self, mut columns: Vec<String>) -> Option<Fault> {
        let name = &self.facts.name;
        if !self.has_configured_columns() {
            return self.class_warning(
                format!(
                    "{} columns of a result of tool `{name}` have no class and were not shown",
                    columns.len()
                ),
                "set a class for every member of its result in `result.classes`".to_owned(),
            );
        }
        columns.sort_unstable();
        columns.dedup();
        let example: Vec<_> = columns.iter().map(|it| format!("{it}: none")).collect();
        let (noun, verb) = match columns.len() {
            1 => ("column", "has no class and is"),
            _ => ("columns", "have no class and are"),
        };
        self.class_warning(
            format!("{noun} `{}` of tool `{name}` {verb} never shown", columns.join("`, `")),
            format!(
                "add to `result.classes`: `{}`, each with a class that a policy shows; or add it to `result.internal`",
                example.join(", ")
            ),
        )
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::PathBuf;

    use wardgate_domain::Timestamp;
    use wardgate_mcp_client::CanonicalDefinition;

    use super::*;
    use crate::FileText;

    fn catalogue(execute: &str, result: &str) -> Catalogue {
        let text = format!(
            "sources:\n  main: {{ type: sqlite, url: \"sqlite:x\" }}\n\
             tools:\n\
             \x20 - name: read_rows\n\
             \x20   input_schema: {{ type: object, properties: {{ zone: {{ type: string }} }} }}\n\
             \x20   execute: {execute}\n\
             {result}"
        );
        let file = FileText {
            path: PathBuf::from("tools.yaml"),
            text,
        };
        Catalogue::parse(&[file], &BTreeMap::new()).unwrap()
    }

    fn format_faults(faults: &[Fault]) -> Vec<String> {
        faults.iter().map(ToString::to_string).collect()
    }

    const STATEMENT: &str =
        r#"{ type: sql, source: main, statement: "SELECT id, zone AS Place, owner FROM rows" }"#;

    #[test]
    fn columns_without_a_class_are_named_with_the_line_that_lacks_them() {
        let found =
            |result: &str| format_faults(&catalogue(STATEMENT, result).unclassified_columns());
        assert_eq!(
            found("    result: { classes: { id: none } }\n"),
            [concat!(
                "tools.yaml:7:24: columns `Place`, `owner` of tool `read_rows` have no class and are never shown; ",
                "add to `result.classes`: `Place: none, owner: none`, each with a class that a policy shows; ",
                "or add it to `result.internal`"
            )]
        );
        assert_eq!(found("").len(), 1, "no result at all");
        let classes = "classes: { id: none, place: place.zone }";
        let governed = format!(
            "    annotations: {{ readOnlyHint: true }}\n    result: {{ entity: Row, key: id, {classes}, internal: [owner] }}\n"
        );
        assert_eq!(found(&governed), Vec::<String>::new());
    }

    #[test]
    fn a_tool_whose_columns_only_its_source_knows_is_named_where_it_classifies_none() {
        let all = r#"{ type: sql, source: main, statement: "SELECT * FROM rows" }"#;
        let found = format_faults(&catalogue(all, "").unclassified_columns());
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("no column of tool `read_rows` has a class"));
        let some = catalogue(all, "    result: { classes: { id: none } }\n");
        assert!(some.unclassified_columns().is_empty());
        let writes = r#"{ type: sql, source: main, statement: "DELETE FROM rows" }"#;
        assert!(catalogue(writes, "").unclassified_columns().is_empty());
    }

    #[test]
    fn a_program_has_the_one_column_of_its_output() {
        let found = |output: &str| {
            let execute = format!("{{ type: command, argv: [uptime], output: {output} }}");
            format_faults(&catalogue(&execute, "").unclassified_columns()).concat()
        };
        assert!(
            found("lines").contains("column `line` of tool"),
            "{}",
            found("lines")
        );
        assert!(found("text").contains("column `text` of tool"));
        assert!(found("json").contains("no column of tool"));
    }

    #[test]
    fn a_statement_that_combines_rows_before_the_row_rule_is_named() {
        let found = |statement: &str, row_rule: &str| {
            let execute = format!("{{ type: sql, source: main, statement: \"{statement}\" }}");
            let result = format!(
                "    annotations: {{ readOnlyHint: true }}\n    result: {{ entity: Row, key: id, {row_rule} classes: {{ id: none }} }}\n"
            );
            format_faults(catalogue(&execute, &result).warnings())
        };
        let marked = "row_rule: { zone: zone },";
        assert_eq!(
            found("SELECT id, count(*) AS n FROM rows GROUP BY id", ""),
            [concat!(
                "tools.yaml:6:14: the statement combines rows before the row rule can be applied, ",
                "so the tool is refused to callers with a row rule; write `:row_rule` as a condition of the WHERE clause ",
                "of the query that reads the governed rows"
            )]
        );
        for statement in [
            "SELECT id FROM rows GROUP BY id HAVING :row_rule",
            "SELECT id FROM (SELECT id, zone FROM rows LIMIT 5) x WHERE :row_rule",
        ] {
            assert_eq!(found(statement, marked).len(), 1, "{statement}");
        }
        for (statement, row_rule) in [
            ("SELECT id FROM rows LIMIT 5", ""),
            ("SELECT id FROM rows WHERE :row_rule GROUP BY id", marked),
            ("SELECT id FROM rows WHERE zone = '' OR :row_rule", marked),
        ] {
            assert_eq!(
                found(statement, row_rule),
                Vec::<String>::new(),
                "{statement}"
            );
        }
        let ungoverned =
            r#"{ type: sql, source: main, statement: "SELECT count(*) AS id FROM rows" }"#;
        assert!(catalogue(ungoverned, "").warnings().is_empty());
    }

    #[test]
    fn a_quoted_placeholder_is_a_fault_where_nothing_else_takes_the_argument_and_else_a_warning() {
        let statement = |condition: &str| {
            format!(
                "{{ type: sql, source: main, statement: \"SELECT id FROM rows WHERE {condition}\" }}"
            )
        };
        let classes = "    result: { classes: { id: none } }\n";
        for quoted in ["zone LIKE '%{zone}%'", "zone = ':zone'"] {
            let text = format!(
                "sources:\n  main: {{ type: sqlite, url: \"sqlite:x\" }}\ntools:\n  - name: a\n    input_schema: {{ type: object, properties: {{ zone: {{ type: string }} }} }}\n    execute: {}\n",
                statement(quoted)
            );
            let path = PathBuf::from("tools.yaml");
            let faults =
                Catalogue::parse(&[FileText { path, text }], &BTreeMap::new()).unwrap_err();
            let told = format_faults(&faults).concat();
            assert!(told.contains("tools.yaml:6:"), "{told}");
            assert!(told.contains("is inside quotes"), "{told}");
        }
        let both = statement("zone = :zone AND label <> '{zone}'");
        assert_eq!(catalogue(&both, classes).warnings().len(), 1);
        let other = statement("zone = :zone AND label <> '{other}:x'");
        assert!(catalogue(&other, classes).warnings().is_empty());
    }

    #[test]
    fn p9_a_tool_whose_call_is_not_compared_with_the_lock_file_is_named_with_the_command() {
        let text = "sources:\n  up: { type: mcp, command: [none] }\ntools:\n\
            \x20 - { name: own, input_schema: {}, execute: { type: mcp, source: up, tool: read } }\n\
            \x20 - { name: page, input_schema: {}, execute: { type: mcp, source: up, resource: 'file:///a' } }\n";
        let found = |text: &str, pins: &Pins| {
            let file = FileText {
                path: PathBuf::from("tools.yaml"),
                text: text.to_owned(),
            };
            let catalogue = Catalogue::parse(&[file], &BTreeMap::new()).unwrap();
            format_faults(&catalogue.unpinned_tools(pins))
        };
        let fix = "run `wardgate tools approve --source up` to review and approve it";
        assert_eq!(
            found(text, &Pins::default()),
            [format!(
                "tools.yaml:4:13: tool `own` calls the tool `read` of source `up`, which has no entry in `tools.lock`, \
                 so its definition is not compared with an approved one; {fix}"
            )]
        );
        let mut pins = Pins::default();
        let mut approve = |name: &str| {
            let definition = format!(r#"{{"name":"{name}","inputSchema":{{"type":"object"}}}}"#);
            let definition = CanonicalDefinition::parse_tool(&definition).unwrap();
            pins.approve("up", definition, "alice", Timestamp::from_seconds(0));
            pins.clone()
        };
        let other = approve("list");
        let both = approve("read");
        assert_eq!(
            found(text, &other),
            [format!(
                "tools.yaml:4:13: tool `own` is not offered, because `tools.lock` has no entry for the tool `read` of \
                 source `up`; {fix}"
            )]
        );
        assert_eq!(found(text, &both), Vec::<String>::new());
        let trusting = text.replace("[none]", "[none], pins: first_use");
        assert_eq!(found(&trusting, &Pins::default()), Vec::<String>::new());
        assert_eq!(found(&trusting, &other).len(), 1);
    }
}
