//! `wardgate policy classes`: prints what each tier does to the values of each column class.

#[cfg(test)]
use std::fmt::Write;

use serde_json::{Value, json};
use wardgate_redact::{ClassForms, ConfiguredForms, Kind};

use crate::Failure;
use crate::cli::OutputFormat;
use crate::commands::output::RowPrinter;

/// A column class and what each tier does to its values.
struct ClassLine {
    class: String,
    kind: &'static str,
    forms: ClassForms,
    /// An example value, shown with its redacted forms.
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

/// Prints what each tier does to each class, one class per row.
pub(crate) fn print(configured: &ConfiguredForms, format: OutputFormat) -> Result<(), Failure> {
    let mut rows = RowPrinter::stdout(format, None)?;
    for line in lines(configured) {
        rows.print(&line.as_json().to_string(), || line.as_text())?;
    }
    rows.finish()
}

impl ClassLine {
    fn as_text(&self) -> String {
        let mut text = format!(
            "{} ({})\n  partial      {}\n  generalised  {}",
            self.class, self.kind, self.forms.partial, self.forms.generalised
        );
        if let Some(value) = self.example {
            let [partial, generalised] = self.forms.apply(value);
            text += &format!("\n  example      {value}: {partial}, {generalised}");
        }
        text
    }

    fn as_json(&self) -> Value {
        let example = self.example.map(|value| {
            let [partial, generalised] = self.forms.apply(value);
            json!({ "value": value, "partial": partial, "generalised": generalised })
        });
        json!({
            "class": self.class,
            "kind": self.kind,
            "partial": self.forms.partial.to_string(),
            "generalised": self.forms.generalised.to_string(),
            "example": example,
        })
    }
}

/// Returns the same table in Markdown.
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
        let [partial, generalised] = forms.apply(value);
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
        let configured = ConfiguredForms::new([(class, forms)].into());
        let shown: Vec<_> = lines(&configured).iter().map(ClassLine::as_text).collect();
        assert_eq!(
            shown[0],
            "contact.latitude (configured)\n  partial      `•••`\n  generalised  1 digit after the decimal point"
        );
        assert!(
            shown
                .iter()
                .any(|it| it.ends_with("\n  example      1961-04-23: 1961-04, 1961")),
            "{shown:?}"
        );
    }
}
