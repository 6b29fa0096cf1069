//! Tests of the structure of the crates, such as their dependencies and the names of their types and functions.

mod modules;
mod names;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::REPOSITORY;

/// The dependencies of each crate on other crates of this workspace, except for tests.
const ARROWS: [(&str, &[&str]); 46] = [
    ("json", &[]),
    // It reads the numbers in arguments that are repeated as headers.
    ("mcp", &["json"]),
    ("yaml", &["domain"]),
    ("proto", &[]),
    // It marks the invisible characters of values in logs.
    ("telemetry", &["domain"]),
    ("store", &["resilience", "telemetry"]),
    ("domain", &["json", "proto"]),
    ("arguments", &["json"]),
    ("redact", &["domain", "json"]),
    ("tool-call-parser", &[]),
    ("transparency", &[]),
    ("tls", &["telemetry"]),
    ("resilience", &["domain", "telemetry"]),
    (
        "rpc",
        &[
            "domain",
            "proto",
            "resilience",
            "telemetry",
            "tls",
            "transparency",
        ],
    ),
    ("egress", &["domain", "telemetry"]),
    (
        "mcp-client",
        &["domain", "egress", "json", "mcp", "resilience", "telemetry"],
    ),
    (
        "grpc-json",
        &["domain", "egress", "json", "rpc", "telemetry"],
    ),
    ("sandbox", &[]),
    // It reads `tools.yaml` and `tools.lock` as data: the settings of what other crates open.
    (
        "catalogue",
        &[
            "arguments",
            "domain",
            "egress",
            "grpc-json",
            "json",
            "mcp-client",
            "redact",
            "resilience",
            "sandbox",
            "yaml",
        ],
    ),
    (
        "edge",
        &["domain", "json", "mcp", "proto", "rpc", "telemetry", "tls"],
    ),
    ("mcp-server", &["domain", "json", "mcp", "rpc", "telemetry"]),
    (
        "gateway-record",
        &["domain", "mcp-server", "resilience", "rpc", "telemetry"],
    ),
    (
        "gateway-store",
        &["domain", "resilience", "store", "telemetry"],
    ),
    (
        "connect",
        &["domain", "edge", "egress", "gateway-store", "proto", "rpc"],
    ),
    (
        "authorization-facade",
        &["domain", "edge", "egress", "gateway-store", "telemetry"],
    ),
    (
        "approvals",
        &[
            "domain",
            "gateway-record",
            "gateway-store",
            "mcp",
            "mcp-server",
            "rpc",
        ],
    ),
    (
        "limits",
        &[
            "domain",
            "gateway-record",
            "gateway-store",
            "mcp",
            "mcp-server",
            "resilience",
            "rpc",
        ],
    ),
    (
        "revocations",
        &[
            "domain",
            "edge",
            "gateway-record",
            "gateway-store",
            "mcp",
            "mcp-server",
            "rpc",
        ],
    ),
    (
        "gateway",
        &[
            "approvals",
            "authorization-facade",
            "connect",
            "domain",
            "edge",
            "gateway-record",
            "gateway-store",
            "json",
            "limits",
            "mcp",
            "mcp-server",
            "proto",
            "resilience",
            "revocations",
            "rpc",
            "store",
            "telemetry",
        ],
    ),
    // The connections to foreign databases: those of tools, and those with the roles of callers.
    (
        "sql",
        &["catalogue", "json", "redact", "store", "telemetry"],
    ),
    (
        "caller-lookup",
        &[
            "catalogue",
            "domain",
            "edge",
            "redact",
            "sql",
            "telemetry",
            "yaml",
        ],
    ),
    // It does not know what a policy is.
    ("policy-bundle", &["domain", "egress"]),
    // It verifies the tokens of callers itself, with the same implementation as the edges.
    (
        "policy",
        &[
            "caller-lookup",
            "domain",
            "edge",
            "policy-bundle",
            "proto",
            "rpc",
            "telemetry",
            "yaml",
        ],
    ),
    // It does not depend on stores, because audit passes the records and stores the position.
    (
        "audit-export",
        &["domain", "egress", "resilience", "telemetry"],
    ),
    (
        "audit",
        &[
            "audit-export",
            "domain",
            "egress",
            "proto",
            "rpc",
            "store",
            "telemetry",
            "transparency",
        ],
    ),
    // It does not depend on the record format, because it needs only the key of a log and its checkpoints.
    ("witness", &["domain", "edge", "telemetry", "transparency"]),
    (
        "tool-runner",
        &[
            "arguments",
            "catalogue",
            "domain",
            "egress",
            "grpc-json",
            "json",
            "mcp",
            "mcp-client",
            "proto",
            "redact",
            "resilience",
            "rpc",
            "sandbox",
            "sql",
            "store",
            "telemetry",
        ],
    ),
    (
        "catalogue-import",
        &["arguments", "catalogue", "domain", "sql", "yaml"],
    ),
    ("memory", &["domain", "proto", "rpc", "store", "telemetry"]),
    // It uses tools and conversations as any client of the gateway does. It waits between attempts with the jitter of
    // all retries.
    (
        "agent",
        &[
            "arguments",
            "domain",
            "edge",
            "egress",
            "json",
            "mcp",
            "resilience",
            "telemetry",
            "tool-call-parser",
            "yaml",
        ],
    ),
    // It is a client of the gateway too. It reads the records itself, and asks the policy service who may see them. It
    // keeps the results of calls for its pages, and it is a client of the identity provider.
    (
        "console",
        &[
            "domain",
            "edge",
            "egress",
            "mcp",
            "rpc",
            "store",
            "telemetry",
        ],
    ),
    // A client of the gateway like any other.
    ("stdio", &["json", "mcp"]),
    // A client of the gateway that makes many calls.
    ("bench", &["mcp"]),
    // The only crate in which services are combined.
    (
        "wardgate",
        &[
            "agent",
            "arguments",
            "audit",
            "bench",
            "catalogue",
            "catalogue-import",
            "console",
            "domain",
            "edge",
            "egress",
            "gateway",
            "memory",
            "policy",
            "policy-bundle",
            "redact",
            "resilience",
            "rpc",
            "sandbox",
            "stdio",
            "store",
            "telemetry",
            "tool-call-parser",
            "tool-runner",
            "transparency",
            "witness",
            "yaml",
        ],
    ),
    // Its fakes implement the protocols of the services, but do not depend on the services.
    ("testkit", &["domain", "proto", "rpc"]),
    // A server for tests, which use it only through its URL.
    ("fixture", &[]),
];

/// The additional dependencies of the tests of each crate.
const TEST_ARROWS: [(&str, &[&str]); 24] = [
    ("agent", &["testkit"]),
    ("approvals", &["testkit"]),
    ("audit", &["testkit", "witness"]),
    ("authorization-facade", &["store", "testkit"]),
    ("bench", &["testkit"]),
    ("caller-lookup", &["testkit"]),
    ("catalogue", &["testkit"]),
    ("console", &["testkit"]),
    ("edge", &["testkit"]),
    ("egress", &["testkit"]),
    ("gateway", &["testkit"]),
    ("gateway-record", &["testkit"]),
    ("gateway-store", &["testkit"]),
    ("grpc-json", &["testkit"]),
    ("mcp-client", &["testkit"]),
    ("memory", &["testkit"]),
    ("policy", &["testkit"]),
    ("policy-bundle", &["testkit"]),
    ("resilience", &["testkit"]),
    ("rpc", &["testkit"]),
    ("store", &["testkit"]),
    ("telemetry", &["testkit"]),
    // The servers for its tests.
    (
        "tool-runner",
        &[
            "catalogue-import",
            "grpc-json",
            "mcp-client",
            "sandbox",
            "testkit",
        ],
    ),
    // The codes and messages that the reference documentation lists.
    ("wardgate", &["mcp", "proto", "testkit"]),
];

type Arrows = BTreeMap<String, Vec<String>>;

fn packages() -> Vec<Value> {
    let manifest = format!("{REPOSITORY}/Cargo.toml");
    let metadata = Command::new(env!("CARGO"))
        .args([
            "metadata",
            "--no-deps",
            "--offline",
            "--format-version=1",
            "--manifest-path",
            &manifest,
        ])
        .output()
        .unwrap();
    assert!(
        metadata.status.success(),
        "{}",
        String::from_utf8_lossy(&metadata.stderr)
    );
    let metadata: Value = serde_json::from_slice(&metadata.stdout).unwrap();
    metadata["packages"].as_array().unwrap().clone()
}

fn short(package: &Value) -> String {
    let name = package["name"].as_str().unwrap();
    name.strip_prefix("wardgate-").unwrap_or(name).to_owned()
}

/// Returns the dependencies of each crate on others of the workspace, of the kinds for which `keep` is true.
fn arrows(packages: &[Value], keep: impl Fn(&Value) -> bool) -> Arrows {
    let crates: Vec<String> = packages.iter().map(short).collect();
    let of = |package: &Value| {
        let dependencies = package["dependencies"].as_array().unwrap().iter();
        let mut names: Vec<String> = dependencies
            .filter(|&it| keep(&it["kind"]))
            .map(short)
            .filter(|it| crates.contains(it))
            .collect();
        names.sort();
        names
    };
    packages
        .iter()
        .map(|package| (short(package), of(package)))
        .collect()
}

fn table(rows: &[(&str, &[&str])]) -> Arrows {
    let own = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    rows.iter()
        .map(|(name, on)| ((*name).to_owned(), own(on)))
        .collect()
}

#[test]
fn every_crate_depends_on_what_the_design_says_and_on_nothing_else() {
    let shipped = arrows(&packages(), |kind| kind != "dev");
    assert_eq!(shipped, table(&ARROWS));
    let mut tests = arrows(&packages(), |kind| kind == "dev");
    tests.retain(|_, on| !on.is_empty());
    assert_eq!(tests, table(&TEST_ARROWS));
}

#[test]
fn there_is_one_binary_besides_the_server_for_tests() {
    let packages = packages();
    let binaries = packages
        .iter()
        .flat_map(|package| package["targets"].as_array().unwrap());
    let binaries = binaries.filter(|target| target["kind"][0] == "bin");
    assert_eq!(
        binaries.map(|target| &target["name"]).collect::<Vec<_>>(),
        ["wardgate-fixture", "wardgate"]
    );
}

/// The file in which routers are built from their tables. The reference documentation lists the routes in the tables.
const ROUTE_TABLES: &str = "crates/rpc/src/routes.rs";

/// Crates whose routes Wardgate does not serve: servers of tests, and a client.
const NOT_SERVED: [&str; 3] = ["bench", "fixture", "testkit"];

#[test]
fn every_http_route_is_in_a_table_of_the_reference() {
    for name in packages().iter().map(short) {
        if NOT_SERVED.contains(&name.as_str()) {
            continue;
        }
        for (file, source) in shipped_sources(&Path::new(REPOSITORY).join("crates").join(&name)) {
            if file.ends_with(ROUTE_TABLES) {
                continue;
            }
            for call in [".route(", ".route_service(", ".nest(", ".nest_service("] {
                assert!(
                    !source.contains(call),
                    "{} has {call}: add a `Route` to the table of its service",
                    file.display()
                );
            }
        }
    }
}

/// Returns the path and the text of each Rust file of a crate, except its tests.
fn shipped_sources(krate: &Path) -> Vec<(PathBuf, String)> {
    let mut sources = Vec::new();
    let mut pending = vec![krate.join("src")];
    while let Some(path) = pending.pop() {
        let name = path.file_stem().unwrap();
        if name == "tests" || name == "testing" {
            continue;
        }
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let shipped = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            sources.push((path, shipped.to_owned()));
        }
    }
    sources
}

/// Maximum number of lines of source of a crate.
const MOST_LINES: usize = 15_000;

#[test]
fn no_crate_is_too_large_to_read() {
    for name in packages().iter().map(short) {
        let lines = lines_of_source(&Path::new(REPOSITORY).join("crates").join(&name).join("src"));
        assert!(lines <= MOST_LINES, "{name} has {lines} lines");
    }
}

/// Returns the number of lines in the Rust files below `directory`, except tests.
fn lines_of_source(directory: &Path) -> usize {
    let paths = fs::read_dir(directory).unwrap();
    let paths = paths.map(|it| it.unwrap().path());
    let shipped = paths.filter(|path| {
        let name = path.file_stem().unwrap();
        name != "tests" && name != "testing"
    });
    shipped
        .map(|path| {
            if path.is_dir() {
                lines_of_source(&path)
            } else if path.extension().is_some_and(|it| it == "rs") {
                fs::read_to_string(&path).unwrap().lines().count()
            } else {
                0
            }
        })
        .sum()
}

#[test]
fn an_operation_provides_three_methods_to_the_pipeline_and_no_more() {
    let path = Path::new(REPOSITORY).join("crates/gateway/src/governed_call/operation.rs");
    let source = fs::read_to_string(path).unwrap();
    let (_, operation) = source.split_once("pub(crate) trait Operation: ").unwrap();
    let (operation, _) = operation.split_once("\n}\n").unwrap();
    let methods = operation.lines().filter_map(|line| {
        let (name, _) = line.strip_prefix("    fn ")?.split_once('(')?;
        Some(name)
    });
    assert_eq!(methods.collect::<Vec<_>>(), ["describe", "run", "render"]);
    let constants = operation
        .lines()
        .filter(|line| line.starts_with("    const "));
    assert_eq!(
        constants.count(),
        0,
        "an operation describes itself by its description"
    );
}

/// Crates that contain the Protobuf types, transport them, or replace a service in tests.
const CRATES_OF_PROTOBUF: [&str; 5] = ["bench", "fixture", "proto", "rpc", "testkit"];

/// Types that other modules may also use: the reason of a status, which is an enum without data, and the descriptors,
/// from which the reference documentation of the services is generated.
const OUTSIDE_MESSAGES: [&str; 2] = [
    "wardgate_proto::common::v1::ErrorReason",
    "wardgate_proto::DESCRIPTORS",
];

#[test]
fn protobuf_types_stay_in_services_and_conversion_modules() {
    let crates = Path::new(REPOSITORY).join("crates");
    let names = packages().iter().map(short).collect::<Vec<_>>();
    let mut pending = names
        .iter()
        .filter(|name| !CRATES_OF_PROTOBUF.contains(&name.as_str()))
        .map(|name| crates.join(name).join("src"))
        .collect::<Vec<_>>();
    while let Some(path) = pending.pop() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if ["service", "wire", "tests", "testing"].contains(&name) {
            continue;
        }
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == "rs") {
            let source = fs::read_to_string(&path).unwrap();
            let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
            let code = OUTSIDE_MESSAGES
                .iter()
                .fold(code.to_owned(), |code, allowed| code.replace(allowed, ""));
            assert!(
                !code.contains("wardgate_proto"),
                "{} uses Protobuf types: convert them in a `service` or `wire` module",
                path.display()
            );
        }
    }
}

fn first_name(path: &str) -> String {
    let is_in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    path.trim_start().chars().take_while(is_in_name).collect()
}
