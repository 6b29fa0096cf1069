//! The metrics in `names.rs`. The comment of each of their constants begins with the kind of the metric.

/// A metric.
pub(crate) struct Metric {
    /// The name in Prometheus.
    pub(crate) name: String,
    pub(crate) kind: Kind,
    /// What the metric measures.
    pub(crate) about: String,
    /// The heading of the metric's section.
    pub(crate) section: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Counter,
    Gauge { seconds: bool },
    Histogram { seconds: bool },
}

impl Metric {
    /// Returns the names of the series that Prometheus stores.
    pub(crate) fn series(&self) -> Vec<String> {
        match self.kind {
            Kind::Counter | Kind::Gauge { .. } => vec![self.name.clone()],
            Kind::Histogram { .. } => ["bucket", "sum", "count"]
                .map(|part| format!("{}_{part}", self.name))
                .to_vec(),
        }
    }
}

const NAMES: &str = include_str!("../../src/names.rs");

/// Returns all metrics, in the order of `names.rs`.
pub(crate) fn parse_all() -> Vec<Metric> {
    let mut metrics = Vec::new();
    let (mut section, mut comment) = (String::new(), String::new());
    // A long declaration spans two lines.
    for line in NAMES.replace(" =\n    \"", " = \"").lines() {
        if let Some(heading) = line.strip_prefix("// === ") {
            heading.trim_end_matches(" ===").clone_into(&mut section);
        } else if let Some(text) = line.strip_prefix("/// ") {
            comment.push_str(text);
            comment.push(' ');
        } else {
            let about = std::mem::take(&mut comment);
            let kinds = [
                ("Counter: ", Kind::Counter),
                ("Gauge, seconds: ", Kind::Gauge { seconds: true }),
                ("Gauge: ", Kind::Gauge { seconds: false }),
                ("Histogram, seconds: ", Kind::Histogram { seconds: true }),
                ("Histogram: ", Kind::Histogram { seconds: false }),
            ];
            let mut kinds = kinds.into_iter();
            let of_kind = kinds.find_map(|(word, kind)| Some((about.strip_prefix(word)?, kind)));
            if let (Some((about, kind)), Some((_, value))) = (of_kind, line.split_once(" = \"")) {
                metrics.push(Metric {
                    name: value.trim_end_matches("\";").replace('.', "_"),
                    kind,
                    about: about.trim_end().to_owned(),
                    section: section.clone(),
                });
            }
        }
    }
    metrics
}

/// Returns the page `reference/metrics.md` of the book.
pub(crate) fn page(metrics: &[Metric]) -> String {
    let mut page = String::from(
        "# Metrics\n\nThis page is generated from `crates/telemetry/src/names.rs` by `make dashboards`. Each service serves its \
         metrics at `/metrics`\nof its probes address, in the text format of Prometheus or in that of OpenMetrics.\n",
    );
    let mut section = "";
    for metric in metrics {
        if metric.section != section {
            section = &metric.section;
            let mut letters = section.chars();
            let heading: String = letters
                .next()
                .into_iter()
                .flat_map(char::to_uppercase)
                .chain(letters)
                .collect();
            page += &format!("\n## {heading}\n\n| metric | kind | |\n|---|---|---|\n");
        }
        let kind = match metric.kind {
            Kind::Counter => "counter",
            Kind::Gauge { seconds: true } => "gauge, seconds",
            Kind::Gauge { seconds: false } => "gauge",
            Kind::Histogram { seconds: true } => "histogram, seconds",
            Kind::Histogram { seconds: false } => "histogram",
        };
        page += &format!(
            "| `{}` | {kind} | {} |\n",
            metric.name,
            metric.about.replace('|', "\\|")
        );
    }
    page
}
