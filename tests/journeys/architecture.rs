//! Tests of the structure of the crates, such as their dependencies and the names of their types.

use std::collections::{BTreeMap, BTreeSet};
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
    ("telemetry", &[]),
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
    // It uses tools and conversations as any client of the gateway does.
    (
        "agent",
        &[
            "arguments",
            "domain",
            "edge",
            "egress",
            "json",
            "mcp",
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
const TEST_ARROWS: [(&str, &[&str]); 25] = [
    ("agent", &["testkit"]),
    ("approvals", &["testkit"]),
    ("audit", &["testkit", "witness"]),
    ("authorization-facade", &["store", "testkit"]),
    ("bench", &["testkit"]),
    ("caller-lookup", &["testkit"]),
    ("catalogue", &["testkit"]),
    // Its tests state how far the policy permits a person to read the record.
    ("console", &["proto", "testkit"]),
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
    ("witness", &["testkit"]),
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

#[test]
fn the_modules_of_a_crate_import_each_other_in_no_cycle() {
    for name in packages().iter().map(short) {
        let imports = module_imports(&Path::new(REPOSITORY).join("crates").join(&name));
        let mut modules = imports.keys();
        let in_cycle = modules.find(|module| reaches(&imports, module, module));
        assert_eq!(in_cycle, None, "of {name}");
    }
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

/// Participles that are established nouns.
const NOUNS: [&str; 3] = ["Finding", "Redacted", "Ruling"];

/// Participles that end neither in `ed` nor in `ing`.
const IRREGULAR: [&str; 20] = [
    "Begun", "Bound", "Built", "Chosen", "Done", "Drawn", "Found", "Given", "Gone", "Held", "Kept",
    "Known", "Lost", "Made", "Said", "Seen", "Shown", "Spoken", "Taken", "Told",
];

#[test]
fn no_type_is_named_by_a_bare_participle() {
    for name in packages().iter().map(short) {
        for (file, declared) in declared_types(&Path::new(REPOSITORY).join("crates").join(&name)) {
            assert!(
                !is_bare_participle(&declared),
                "say what is meant by {declared} in {}",
                file.display()
            );
        }
    }
}

#[test]
fn a_bare_participle_is_told_from_a_noun() {
    for participle in ["Asked", "Following", "Kept"] {
        assert!(is_bare_participle(participle), "{participle}");
    }
    for noun in ["Finding", "SuspendedCall", "Settings", "Redacted"] {
        assert!(!is_bare_participle(noun), "{noun}");
    }
}

/// Returns whether `name` is a single word that is a participle.
fn is_bare_participle(name: &str) -> bool {
    let is_one_word = !name[1..].contains(|c: char| c.is_ascii_uppercase());
    let has_stem = |ending: &str| {
        name.strip_suffix(ending)
            .is_some_and(|stem| stem.len() >= 3)
    };
    let is_participle = has_stem("ed") || has_stem("ing") || IRREGULAR.contains(&name);
    is_one_word && is_participle && !NOUNS.contains(&name)
}

/// Names that a type of any crate may have.
const COMMON_NAMES: [&str; 4] = ["Config", "Error", "Result", "Settings"];

/// Maximum number of modules that may declare types of the same name.
const MOST_MODULES: usize = 3;

#[test]
fn no_type_name_occurs_in_more_than_three_modules() {
    let crates = Path::new(REPOSITORY).join("crates");
    let mut modules = BTreeMap::<String, BTreeSet<PathBuf>>::new();
    for name in packages().iter().map(short) {
        for path in rust_files(&crates.join(name).join("src")) {
            let module = path.strip_prefix(&crates).unwrap();
            if is_of_tests(module) {
                continue;
            }
            for declared in types_of_module(&fs::read_to_string(&path).unwrap()) {
                let named_so = modules.entry(declared).or_default();
                named_so.insert(module.to_owned());
            }
        }
    }
    modules.retain(|name, of| of.len() > MOST_MODULES && !COMMON_NAMES.contains(&name.as_str()));
    assert!(
        modules.is_empty(),
        "say what is meant by these types: {modules:#?}"
    );
}

#[test]
fn the_types_of_a_module_are_those_that_it_declares_outside_of_impls_and_tests() {
    let module = "pub(crate) struct One<'a>(&'a str);\n\
        impl Two for One<'_> {\n    type Three = u8;\n}\n\
        fn four() {\n    enum Five {}\n}\n\
        pub type Six = u8;\n\
        #[cfg(test)]\nmod tests {\n    struct Seven;\n}\n";
    let types: Vec<_> = types_of_module(module).collect();
    assert_eq!(types, ["One", "Five", "Six"]);
    assert!(is_of_tests(Path::new("rpc/src/link/tests/world.rs")));
    assert!(is_of_tests(Path::new("audit/src/tests.rs")));
    assert!(!is_of_tests(Path::new("grpc-json/src/testing/mod.rs")));
}

/// Returns whether a module belongs to the unit tests of its crate.
fn is_of_tests(module: &Path) -> bool {
    let mut parts = module.iter().map(|part| part.to_str().unwrap());
    parts.any(|part| part == "tests" || part == "tests.rs" || part.ends_with("_tests.rs"))
}

/// Returns the types that the source of a module declares, except those of its tests and the associated types of `impl`
/// blocks, whose names are those of a trait.
fn types_of_module(source: &str) -> impl Iterator<Item = String> {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code
        .lines()
        .filter(|line| !line.starts_with(' ') || !line.trim_start().starts_with("type "));
    lines.filter_map(declared_type)
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

/// Returns the structs, enums, traits and type aliases that the sources and tests of a crate declare, each with its file.
fn declared_types(krate: &Path) -> Vec<(PathBuf, String)> {
    let mut types = Vec::new();
    for path in [krate.join("src"), krate.join("tests")] {
        for path in rust_files(&path) {
            let source = fs::read_to_string(&path).unwrap();
            let declared = source.lines().filter_map(declared_type);
            types.extend(declared.map(|name| (path.clone(), name)));
        }
    }
    types
}

/// Returns the name of the type whose declaration begins in `line`.
fn declared_type(line: &str) -> Option<String> {
    let declaration = line.trim_start();
    let declaration = match declaration.strip_prefix("pub") {
        Some(rest) => rest.trim_start_matches(|c: char| c != ' ').trim_start(),
        None => declaration,
    };
    let kinds = ["struct ", "enum ", "trait ", "type "];
    let name = kinds.iter().find_map(|kind| declaration.strip_prefix(kind));
    name.map(first_name).filter(|name| !name.is_empty())
}

/// Returns the Rust files below a directory, or nothing if it does not exist.
fn rust_files(directory: &Path) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(path) = pending.pop() {
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
        } else if path.extension().is_some_and(|it| it == "rs") {
            files.push(path);
        }
    }
    files
}

/// Returns the modules at the root of a crate, and the modules that each imports, except in tests.
fn module_imports(krate: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut imports = BTreeMap::<_, BTreeSet<_>>::new();
    let root = krate.join("src");
    let reexports = reexports(&root);
    let mut pending = vec![root.clone()];
    while let Some(path) = pending.pop() {
        let name = path.file_stem().unwrap().to_str().unwrap();
        if name == "tests" || name == "testing" {
            continue;
        }
        if path.is_dir() {
            pending.extend(fs::read_dir(&path).unwrap().map(|it| it.unwrap().path()));
            continue;
        }
        let own = path.strip_prefix(&root).unwrap();
        let own = own.components().next().unwrap().as_os_str();
        let own = own.to_str().unwrap().trim_end_matches(".rs").to_owned();
        if path.extension().is_some_and(|it| it == "rs") && own != "lib" && own != "main" {
            let source = fs::read_to_string(&path).unwrap();
            let is_root_module = path.parent() == Some(&root)
                || path.parent() == Some(&root.join(&own)) && name == "mod";
            let source = if is_root_module {
                source.replace("super::", "crate::")
            } else {
                source
            };
            let imported = imported_modules(&source, &reexports);
            let others = imported.into_iter().filter(|it| *it != own);
            imports.entry(own.clone()).or_default().extend(others);
        }
    }
    imports
}

/// Returns the modules in paths that begin with `crate::`. An item of the root belongs to the module from which the
/// root imports it, as `reexports` says.
fn imported_modules(source: &str, reexports: &BTreeMap<String, String>) -> BTreeSet<String> {
    let code = code_of(source);
    let mut names = BTreeSet::new();
    for path in code.split("crate::").skip(1) {
        match path.strip_prefix('{') {
            None => {
                names.insert(first_name(path));
            }
            Some(group) => names.extend(members(group).into_iter().map(first_name)),
        }
    }
    let module = |name: String| match reexports.get(&name) {
        Some(module) => module.clone(),
        None => name,
    };
    let mut modules: BTreeSet<_> = names.into_iter().map(module).collect();
    modules.retain(|name| name.starts_with(|c: char| c.is_ascii_lowercase()));
    modules
}

/// Returns the source of a module without its tests and comments.
fn code_of(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the items that the root of a crate imports from its modules, each with its module.
fn reexports(root: &Path) -> BTreeMap<String, String> {
    let mut items = BTreeMap::new();
    for name in ["lib.rs", "main.rs"] {
        let Ok(source) = fs::read_to_string(root.join(name)) else {
            continue;
        };
        for import in code_of(&source).split("use ").skip(1) {
            let import = import.split(';').next().unwrap();
            items.extend(imported_items("", import));
        }
    }
    items.retain(|_, module: &mut String| {
        root.join(module.as_str()).is_dir() || root.join(format!("{module}.rs")).is_file()
    });
    items
}

/// Returns the items that `use {prefix}{path}` imports, each with the first module on its path.
fn imported_items(prefix: &str, path: &str) -> Vec<(String, String)> {
    if let Some((outer, group)) = path.split_once('{') {
        let prefix = format!("{prefix}{}", outer.trim());
        let members = members(group).into_iter();
        return members
            .flat_map(|member| imported_items(&prefix, member))
            .collect();
    }
    let path = format!("{prefix}{}", path.trim());
    let path = ["crate::", "self::"]
        .iter()
        .fold(path.as_str(), |path, own| path.trim_start_matches(own));
    let (item, module) = (path.rsplit([':', ' ']).next().unwrap(), first_name(path));
    let is_item = !item.is_empty() && item != module;
    is_item
        .then(|| (item.to_owned(), module))
        .into_iter()
        .collect()
}

#[test]
fn an_item_of_the_root_is_one_of_the_module_that_it_is_imported_from() {
    let import = "self::one::{Two, three::{Four, five as six}}";
    let items: BTreeMap<_, _> = imported_items("", import).into_iter().collect();
    let names: Vec<_> = items.keys().map(String::as_str).collect();
    assert_eq!(names, ["Four", "Two", "six"]);
    let source = "use crate::{Two, seven};\nfn f(_: crate::Four) {}\n// crate::eight";
    let modules = imported_modules(source, &items);
    assert_eq!(modules, BTreeSet::from(["one", "seven"].map(str::to_owned)));
}

/// Returns the members of a group of imports. `group` is the text after its opening brace.
fn members(group: &str) -> Vec<&str> {
    let (mut members, mut depth, mut start) = (Vec::new(), 0, 0);
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                members.push(&group[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    members
}

fn first_name(path: &str) -> String {
    let is_in_name = |c: &char| c.is_ascii_alphanumeric() || *c == '_';
    path.trim_start().chars().take_while(is_in_name).collect()
}

fn reaches(imports: &BTreeMap<String, BTreeSet<String>>, from: &str, to: &str) -> bool {
    let mut seen = BTreeSet::new();
    let mut pending = vec![from];
    while let Some(module) = pending.pop() {
        for next in imports.get(module).into_iter().flatten() {
            if next == to {
                return true;
            }
            if seen.insert(next.as_str()) {
                pending.push(next);
            }
        }
    }
    false
}
