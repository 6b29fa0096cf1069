//! Tests that no two modules of a crate import each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use super::{first_name, packages, short};
use crate::REPOSITORY;

#[test]
fn the_modules_of_a_crate_import_each_other_in_no_cycle() {
    for name in packages().iter().map(short) {
        let imports = module_imports(&Path::new(REPOSITORY).join("crates").join(&name));
        let mut modules = imports.keys();
        let in_cycle = modules.find(|module| reaches(&imports, module, module));
        assert_eq!(in_cycle, None, "of {name}");
    }
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
