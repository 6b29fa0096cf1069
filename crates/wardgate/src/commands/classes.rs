//! `wardgate policy classes`: what each tier does to each class.

use std::fmt::Write;

use wardgate_redact::{ClassForms, ConfiguredForms, Kind};

/// One line of the table.
struct ClassLine {
    class: String,
    kind: &'static str,
    forms: ClassForms,
    /// A value, with what is left of it.
    example: Option<&'static str>,
}

fn lines(configured: &ConfiguredForms) -> Vec<ClassLine> {
    let own = configured.iter().map(|(class, forms)| ClassLine {
        class: class.to_string(),
        kind: "configured",
        forms: forms.clone(),
        example: None,
    });
    let built_in = Kind::ALL.into_iter().map(|kind| {
        let words: Vec<_> = kind
            .words()
            .iter()
            .map(|word| format!("*.{word}"))
            .collect();
        let class = match kind {
            Kind::Identifier => format!("{}, id.*", words.join(", ")),
            Kind::Opaque => "any other".to_owned(),
            _ => words.join(", "),
        };
        ClassLine {
            class,
            kind: kind.as_str(),
            forms: kind.forms(),
            example: Some(kind.example()),
        }
    });
    own.chain(built_in).collect()
}

/// The table for a terminal.
pub(crate) fn table(configured: &ConfiguredForms) -> String {
    let mut text = String::new();
    for line in lines(configured) {
        // Writing to a `String` does not fail.
        let _ = writeln!(
            text,
            "{} ({})\n  partial      {}\n  generalised  {}",
            line.class, line.kind, line.forms.partial, line.forms.generalised
        );
        if let Some(value) = line.example {
            let [partial, generalised] = line.forms.show(value);
            let _ = writeln!(text, "  example      {value}: {partial}, {generalised}");
        }
    }
    text
}

/// The same as a table of Markdown.
#[cfg(test)]
pub(crate) fn markdown() -> String {
    let mut page = "| kind | last word of the class | partial | generalised | example |\n|---|---|---|---|---|\n".to_owned();
    for line in lines(ConfiguredForms::NONE) {
        let ClassLine {
            class, kind, forms, ..
        } = &line;
        let class = if class.contains('*') {
            format!("`{}`", class.replace(", ", "`, `"))
        } else {
            class.clone()
        };
        let value = line.example.unwrap_or_default();
        let [partial, generalised] = forms.show(value);
        let _ = writeln!(
            page,
            "| {kind} | {class} | {} | {} | `{value}`: `{partial}`, `{generalised}` |",
            forms.partial, forms.generalised
        );
    }
    page
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_of_every_class_is_current() {
        crate::reference_pages::assert_sections_current(
            "classes.md",
            &[("classes".to_owned(), markdown())],
        );
    }

    #[test]
    fn configured_classes_come_first_with_their_forms() {
        let forms = ClassForms {
            partial: wardgate_redact::Form::Masked,
            generalised: wardgate_redact::Form::Decimals(1),
        };
        let class = "contact.latitude".parse().unwrap();
        let shown = table(&ConfiguredForms::new([(class, forms)].into()));
        assert!(
            shown.starts_with("contact.latitude (configured)\n  partial      `•••`\n  generalised  1 digit behind the point\n"),
            "{shown}"
        );
        assert!(
            shown.contains("  example      1961-04-23: 1961-04, 1961\n"),
            "{shown}"
        );
    }
}
