//! Tests of the names of types and functions.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use super::{first_name, packages, short};
use crate::REPOSITORY;

/// Participles that are established nouns.
const NOUNS: [&str; 3] = ["Finding", "Redacted", "Ruling"];

/// Participles that end neither in `ed` nor in `ing`.
const IRREGULAR: [&str; 37] = [
    "Begun", "Bound", "Brought", "Built", "Caught", "Chosen", "Done", "Drawn", "Driven", "Found",
    "Given", "Gone", "Grown", "Heard", "Held", "Hidden", "Kept", "Known", "Led", "Left", "Lost",
    "Made", "Meant", "Met", "Paid", "Ran", "Said", "Seen", "Sent", "Shown", "Spent", "Spoken",
    "Taken", "Thrown", "Told", "Withheld", "Written",
];

/// Names that do not say what a function returns or changes.
const VAGUE_FUNCTIONS: [&str; 12] = [
    "ask", "hear", "hold", "keep", "look", "make", "of", "put", "read", "say", "take", "tell",
];

/// Waits for an event, as in Tokio, and names that are no participles.
const OTHER_FUNCTIONS: [&str; 6] = [
    "cancelled",
    "changed",
    "closed",
    "disconnected",
    "embed",
    "unclassified",
];

#[test]
fn every_function_has_a_name_that_says_what_it_returns_or_changes() {
    for path in source_directories().iter().flat_map(|it| rust_files(it)) {
        let source = fs::read_to_string(&path).unwrap();
        for name in source.lines().filter_map(declared_function) {
            assert!(
                !is_vague(&name),
                "name the object of the function {name} in {}",
                path.display()
            );
        }
    }
}

#[test]
fn a_function_is_found_with_its_qualifiers() {
    let names = [
        "    pub(crate) async fn of(it: &str) -> Self {",
        "fn take<T>(it: T) {}",
        "    pub(in crate::names) unsafe extern \"C\" fn read(it: u8);",
    ];
    assert_eq!(
        names.map(declared_function),
        ["of", "take", "read"].map(|it| Some(it.to_owned()))
    );
    assert_eq!(declared_function("    // The fn read is gone"), None);
    assert!(
        ["read", "asked", "kept", "told"]
            .map(is_vague)
            .iter()
            .all(|it| *it)
    );
    assert!(
        !["read_keys", "changed", "heading", "need"]
            .map(is_vague)
            .contains(&true)
    );
}

/// Returns whether a function called `name` has no object. Words that end in `ing` are too often nouns to be found out.
fn is_vague(name: &str) -> bool {
    VAGUE_FUNCTIONS.contains(&name)
        || !name.contains('_') && is_participle(name, &["ed"]) && !OTHER_FUNCTIONS.contains(&name)
}

/// Returns the name of the function whose declaration begins in `line`.
fn declared_function(line: &str) -> Option<String> {
    let (qualifiers, name) = line.split_once("fn ")?;
    let qualifiers = match qualifiers.trim_start().strip_prefix("pub(") {
        Some(rest) => rest.split_once(')')?.1,
        None => qualifiers,
    };
    let known = ["async", "const", "default", "extern", "pub", "unsafe"];
    let is_abi = |word: &str| word.len() > 2 && word.starts_with('"') && word.ends_with('"');
    let is_declaration = qualifiers
        .split_whitespace()
        .all(|word| known.contains(&word) || is_abi(word));
    is_declaration.then(|| first_name(name))
}

#[test]
fn no_type_is_named_by_a_bare_participle() {
    for (file, declared) in source_directories()
        .iter()
        .flat_map(|it| declared_types(it))
    {
        assert!(
            !is_bare_participle(&declared),
            "say what is meant by {declared} in {}",
            file.display()
        );
    }
}

#[test]
fn a_bare_participle_is_told_from_a_noun() {
    for participle in ["Asked", "Following", "Kept", "Ran"] {
        assert!(is_bare_participle(participle), "{participle}");
    }
    for noun in ["Finding", "SuspendedCall", "Settings", "Redacted"] {
        assert!(!is_bare_participle(noun), "{noun}");
    }
}

/// Returns the directories of all Rust sources of the workspace, with their tests.
fn source_directories() -> Vec<PathBuf> {
    let repository = Path::new(REPOSITORY);
    let crates = repository.join("crates");
    let mut directories = vec![repository.join("tests/journeys")];
    for name in packages().iter().map(short) {
        let parts = ["src", "tests", "benches", "examples"];
        directories.extend(parts.map(|part| crates.join(&name).join(part)));
    }
    directories
}

/// Returns whether `name` is a single word that is a participle.
fn is_bare_participle(name: &str) -> bool {
    let is_one_word = !name[1..].contains(|c: char| c.is_ascii_uppercase());
    is_one_word && is_participle(name, &["ed", "ing"]) && !NOUNS.contains(&name)
}

/// Returns whether `word` is an irregular participle, or a stem with one of the endings.
fn is_participle(word: &str, endings: &[&str]) -> bool {
    let mut stems = endings
        .iter()
        .filter_map(|ending| word.strip_suffix(ending));
    stems.any(|stem| stem.len() >= 3) || IRREGULAR.iter().any(|one| one.eq_ignore_ascii_case(word))
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

/// Returns the structs, enums, traits and type aliases that the Rust files below a directory declare, each with its file.
fn declared_types(directory: &Path) -> Vec<(PathBuf, String)> {
    let mut types = Vec::new();
    for path in rust_files(directory) {
        let source = fs::read_to_string(&path).unwrap();
        let declared = source.lines().filter_map(declared_type);
        types.extend(declared.map(|name| (path.clone(), name)));
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
