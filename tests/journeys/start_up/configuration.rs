//! Configurations, catalogues and policies that cannot be used: the message names the place.

use std::path::Path;

use wardgate_testkit::{ProcessExit, run};

use super::{Example, assert_failed};
use crate::WARDGATE;

/// Returns the position of a text in a file of the example, as `file:line:`.
fn line_of(example: &Example, name: &str, text: &str) -> String {
    let content = std::fs::read_to_string(example.path(name)).unwrap();
    let line = content
        .lines()
        .position(|line| line.contains(text))
        .unwrap()
        + 1;
    format!("{}:{line}:", example.path(name))
}

#[test]
fn a_bad_catalogue_stops_the_start_with_file_and_line() {
    for (from, to) in [
        ("type: sql\n", "type: sqll\n"),
        ("source: hospital\n", "source: hospitl\n"),
        ("input_schema:\n", "input_shema:\n"),
        ("readOnlyHint: true", "readOnlyHint: maybe"),
        ("phi.name", "phi name"),
        ("maximum: 500", "maximum: five"),
    ] {
        let example = Example::copy();
        example.spoil("tools.yaml", from, to);
        let at = line_of(&example, "tools.yaml", to.trim());
        assert_failed(&example.up(), &[&at]);
    }
    let example = Example::copy();
    example.spoil("tools.yaml", "tools:", "tools: [");
    assert_failed(&example.up(), &[&example.path("tools.yaml:"), "not YAML"]);
    std::fs::remove_file(example.path("tools.yaml")).unwrap();
    assert_failed(&example.up(), &[&example.path("tools.yaml")]);
}

#[test]
fn a_catalogue_whose_variable_is_not_set_stops_the_start_with_its_name() {
    let example = Example::copy();
    let (config, data) = (example.path("wardgate.yaml"), example.path("data"));
    let ended = run(
        Path::new(WARDGATE),
        &["up", "--config", &config, "--data-dir", &data],
        &[],
    );
    assert_failed(
        &ended,
        &[
            "`HOSPITAL_DB_URL`",
            &line_of(&example, "tools.yaml", "HOSPITAL_DB_URL"),
        ],
    );
}

#[test]
fn a_bad_policy_stops_the_start_with_file_and_line() {
    for (file, from, to) in [
        ("policies/doctor.cedar", "permit (", "permitt ("),
        (
            "policies/doctor.cedar",
            "== principal.subject",
            "== principal.subjct",
        ),
        ("policies/nurse.cedar", "principal has ward && ", ""),
        ("policies/billing.cedar", "Tool::", "Tol::"),
        (
            "policies/hospital.cedarschema",
            "entity Patient {",
            "entity Patient",
        ),
    ] {
        let example = Example::copy();
        example.spoil(file, from, to);
        assert_failed(&example.up(), &[&(example.path(file) + ":")]);
    }
    let example = Example::copy();
    std::fs::remove_file(example.path("policies/hospital.cedarschema")).unwrap();
    assert_failed(&example.up(), &[&example.path("policies"), "`Patient`"]);
    std::fs::remove_dir_all(example.path("policies")).unwrap();
    assert_failed(&example.up(), &[&example.path("policies")]);
}

#[test]
fn the_checks_fail_as_the_start_does() {
    let example = Example::copy();
    let check = |arguments: &[&str], on: &str| {
        let environment = [("HOSPITAL_DB_URL", "sqlite:none.sqlite")];
        run(
            Path::new(WARDGATE),
            &[arguments, &[&example.path(on)]].concat(),
            &environment,
        )
    };
    example.spoil("tools.yaml", "type: sql\n", "type: sqll\n");
    let at = line_of(&example, "tools.yaml", "sqll");
    assert_failed(&check(&["tools", "check"], "tools.yaml"), &[&at]);
    assert_failed(&check(&["tools", "list"], "tools.yaml"), &[&at]);
    example.spoil("policies/doctor.cedar", "permit (", "permitt (");
    assert_failed(&check(&["policy", "check"], "policies"), &["doctor.cedar:"]);
    example.spoil("wardgate.yaml", "catalogue:", "catalog:");
    assert_failed(
        &check(&["config", "check", "--config"], "wardgate.yaml"),
        &["catalog"],
    );
}

const REST: &str = "policy: { policies: policies }\ntool_runner: { catalogue: tools.yaml }\n";

/// Sections that make a configuration invalid, each with texts of the error.
const BAD_SECTIONS: &[(&str, &[&str])] = &[
    ("gatewy: {}", &["`gatewy`", "known sections are"]),
    ("gateway: { lisen: 127.0.0.1:1 }", &["`gateway`", "lisen"]),
    ("gateway: { limits: { body: 1 } }", &["`gateway`", "body"]),
    (
        "gateway: { listen: nowhere }",
        &["`gateway`", "`listen`", "socket address"],
    ),
    (
        "gateway: { public_url: mcp.example }",
        &["gateway.public_url", "absolute"],
    ),
    (
        "gateway: { public_url: \"https://mcp.example/api\" }",
        &["gateway.public_url", "remove the path"],
    ),
    (
        "gateway: { allowed_origins: [mcp.example] }",
        &["gateway.allowed_origins", "mcp.example"],
    ),
    ("gateway: { auth: { issuers: [] } }", &["auth.issuers"]),
    (
        "gateway: { https: { crt: a.pem, key: a.key } }",
        &["`gateway`", "crt"],
    ),
    (
        "audit: { store: \"mysql://127.0.0.1/x\" }",
        &["store", "sqlite:"],
    ),
    (
        "audit: { store: \"sqlite:a\", stroe: b }",
        &["`audit`", "stroe"],
    ),
    ("telemetry: { log: \"a=b=c\" }", &["telemetry.log"]),
    (
        "telemetry: { log_format: xml }",
        &["`telemetry`", "`log_format`", "xml"],
    ),
];

/// Sections that name a file that cannot be used, each with texts of the error.
const BAD_NAMED_FILES: &[(&str, &[&str])] = &[
    (
        "gateway: { auth: { issuers: [{ issuer: \"https://i.example\", audience: a, jwks: { file: spoilt.json } }] } }",
        &[
            "auth.issuers: the key set",
            "spoilt.json",
            "it is not a JSON Web Key Set",
        ],
    ),
    (
        "gateway: { auth: { issuers: [{ issuer: \"https://i.example\", audience: a, jwks: { file: absent.json } }] } }",
        &[
            "auth.issuers: the key set",
            "absent.json",
            "the file cannot be read",
        ],
    ),
    (
        "gateway: { auth: { api_keys: { file: spoilt.json } } }",
        &[
            "auth.api_keys: the API keys in",
            "spoilt.json",
            "it is not a JSON object with `keys`",
        ],
    ),
    (
        "gateway: { https: { cert: spoilt.json, key: spoilt.json } }",
        &["https: ", "spoilt.json contains no PEM certificate"],
    ),
];

/// Copies the example with this configuration, and with a file that contains neither keys nor a certificate.
fn example_with(text: &str) -> Example {
    let example = Example::with_config(text);
    std::fs::write(example.path("spoilt.json"), "spoilt").unwrap();
    example
}

/// Runs the check of the configuration of an example, with further options.
fn check(example: &Example, options: &[&str]) -> ProcessExit {
    let config = example.path("wardgate.yaml");
    let arguments = [&["config", "check", "--config", &config][..], options].concat();
    let environment = [("HOSPITAL_DB_URL", "sqlite:none.sqlite")];
    run(Path::new(WARDGATE), &arguments, &environment)
}

/// Configurations that are invalid as a whole.
const BAD_FILES: &[(&str, &[&str])] = &[
    (
        "policy: { policies: policies, permit_tll: 3 }\n",
        &["`policy`", "permit_tll"],
    ),
    (
        "policy: { policies: policies, permit_ttl: 0 }\n",
        &["permit_ttl"],
    ),
    (
        "policy: { policies: policies, time_zone: Europe/Wien }\n",
        &["time_zone", "Europe/Wien"],
    ),
    ("policy: {}\n", &["policy.policies", "policy.bundle"]),
    (
        "policy: { policies: policies }\ntool_runner: { catalog: tools.yaml }\n",
        &["`tool_runner`", "catalog"],
    ),
    ("gateway: [\n", &["wardgate.yaml", "line"]),
    ("- a list\n", &["wardgate.yaml"]),
];

#[test]
fn a_configuration_that_cannot_be_used_is_refused_by_section_and_key() {
    for (section, says) in BAD_SECTIONS.iter().chain(BAD_NAMED_FILES) {
        assert_failed(&example_with(&format!("{section}\n{REST}")).up(), says);
    }
    for (text, says) in BAD_FILES {
        assert_failed(&Example::with_config(text).up(), says);
    }
    let example = Example::copy();
    std::fs::remove_file(example.path("wardgate.yaml")).unwrap();
    assert_failed(&example.up(), &["wardgate.yaml", "No such file"]);
}

#[test]
fn the_check_refuses_what_the_start_refuses_and_names_line_and_column() {
    let sections = BAD_SECTIONS.iter().chain(BAD_NAMED_FILES);
    let sections = sections.map(|(section, says)| (format!("{section}\n{REST}"), *says));
    let files = BAD_FILES.iter();
    let files = files.map(|(text, says)| ((*text).to_owned(), *says));
    for (text, says) in sections.chain(files) {
        let example = example_with(&text);
        let ended = check(&example, &[]);
        assert_failed(&ended, says);
        let place = format!("{}:", example.path("wardgate.yaml"));
        let place = ended.stderr.split_once(&place).map(|(_, rest)| rest);
        let mut numbers = place.unwrap_or_default().split(':');
        let is_number = |it: Option<&str>| it.is_some_and(|it| it.parse::<u32>().is_ok());
        assert!(
            is_number(numbers.next()) && is_number(numbers.next()),
            "{text}: {}",
            ended.stderr
        );
    }
    // Errors in the files that the configuration names are found too.
    for (file, from, to, says) in [
        ("tools.yaml", "type: sql\n", "type: sqll\n", "tools.yaml:"),
        (
            "policies/doctor.cedar",
            "permit (",
            "permitt (",
            "doctor.cedar:",
        ),
        (
            "assistants.yaml",
            "provider: llm\n",
            "provider: lm\n",
            "assistants.yaml",
        ),
    ] {
        let example = Example::copy();
        example.spoil(file, from, to);
        assert_failed(&check(&example, &[]), &[says]);
        assert_eq!(check(&example, &["--alone"]).success(), "ok\n");
    }
    let example = Example::copy();
    std::fs::write(example.path("tools.lock"), "version: [").unwrap();
    assert_failed(&check(&example, &[]), &["tools.lock"]);
    std::fs::remove_dir_all(example.path("policies")).unwrap();
    assert_failed(&check(&example, &[]), &[&example.path("policies")]);
}

#[test]
fn the_check_reads_every_named_file_of_an_edge_unless_it_is_alone() {
    let issuer = "issuer: \"https://i.example\"";
    let auth = format!(
        "auth: {{ issuers: [{{ {issuer}, audience: a, jwks: {{ url: \"https://i.example/keys\" }} }}] }}"
    );
    let client = format!("{{ {issuer}, client_id: c, client_secret_file: absent }}");
    let up = [
        (
            format!("gateway: {{ {auth}, sign_in: {client} }}\n"),
            "gateway.sign_in.client_secret_file: ",
        ),
        (
            format!("gateway: {{ {auth}, authorization: {client} }}\n"),
            "gateway.authorization.client_secret_file: ",
        ),
        (
            "gateway: { advertise_ca_file: absent }\n".to_owned(),
            "gateway.advertise_ca_file: ",
        ),
        (
            format!("console: {{ sign_in: {client} }}\n"),
            "console.sign_in.client_secret_file: ",
        ),
        (
            "telemetry: { otlp_endpoint: \"https://c.example\", otlp_ca_file: absent }\n"
                .to_owned(),
            "telemetry.otlp_ca_file: ",
        ),
    ];
    let up = up.map(|(section, says)| (section + REST, says));
    // Separate services.
    let bad = "auth: { api_keys: { file: spoilt.json } }";
    let here = "\"http://127.0.0.1:1\"";
    let gateway_links = format!("links: {{ policy: {here}, tool_runner: {here}, audit: {here} }}");
    let edge_links = format!("links: {{ gateway: {here} }}");
    let keys = "auth.api_keys: the API keys in";
    let certificate = "https: { cert: spoilt.json, key: spoilt.json }";
    let separate = [
        (format!("gateway: {{ {bad}, {gateway_links} }}\n"), keys),
        (format!("agent: {{ {bad}, {edge_links} }}\n"), keys),
        (format!("console: {{ {bad}, {edge_links} }}\n"), keys),
        (
            format!("policy: {{ policies: policies, listen: \"127.0.0.1:0\", {bad} }}\n"),
            keys,
        ),
        (
            format!("agent: {{ {auth}, {certificate}, {edge_links} }}\n"),
            "https: ",
        ),
    ];
    for (text, says) in up.into_iter().chain(separate) {
        let example = example_with(&text);
        assert_failed(&check(&example, &[]), &[says]);
        assert_eq!(check(&example, &["--alone"]).success(), "ok\n", "{text}");
    }
}

#[test]
fn a_value_of_the_environment_is_named_by_its_variable() {
    let example = Example::copy();
    let ended = run(
        Path::new(WARDGATE),
        &[
            "config",
            "check",
            "--alone",
            "--config",
            &example.path("wardgate.yaml"),
        ],
        &[("WARDGATE_POLICY__PERMIT_TTL", "soon")],
    );
    assert_failed(
        &ended,
        &[
            "environment variable WARDGATE_POLICY__PERMIT_TTL",
            "permit_ttl",
        ],
    );
}
