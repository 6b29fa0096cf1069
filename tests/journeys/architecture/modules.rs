//! Tests that no two modules of a directory import each other.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs;
use std::path::Path;

use super::{first_name, packages, short};
use crate::REPOSITORY;

/// The submodules of a module by name, and those that each of them imports.
type ModuleImports = BTreeMap<String, BTreeSet<String>>;

#[test]
fn the_modules_of_a_directory_import_each_other_in_no_cycle() {
    let mut cycles = Vec::new();
    for name in packages().iter().map(short) {
        let source = Path::new(REPOSITORY).join("crates").join(&name).join("src");
        for (parent, imports) in imports(&modules(&source)) {
            let parent = parent.replacen("crate", &name, 1);
            let cycle = imports.keys().find_map(|module| cycle(&imports, module));
            if let Some(cycle) = cycle {
                cycles.push(format!("{parent}: {}", cycle.join(" -> ")));
            }
        }
    }
    assert!(cycles.is_empty(), "modules import each other: {cycles:#?}");
}

/// Returns the path and the code of each module of a crate, except for tests.
fn modules(source: &Path) -> Vec<(String, String)> {
    let mut modules = Vec::new();
    let mut pending = vec![("crate".to_owned(), source.to_owned())];
    while let Some((parent, directory)) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let file = entry.unwrap().path();
            let module = match file.file_stem().unwrap().to_str().unwrap() {
                "tests" | "testing" => continue,
                "lib" | "main" | "mod" => parent.clone(),
                name => format!("{parent}::{name}"),
            };
            if file.is_dir() {
                pending.push((module, file));
            } else if file.extension().is_some_and(|it| it == "rs") {
                let code = code_of(&fs::read_to_string(&file).unwrap());
                modules.push((module, code));
            }
        }
    }
    modules
}

/// Returns the source of a module without its tests and comments.
fn code_of(source: &str) -> String {
    let code = source.split("#[cfg(test)]\nmod tests {").next().unwrap();
    let lines = code.lines().map(|line| line.split("//").next().unwrap());
    lines.collect::<Vec<_>>().join("\n")
}

/// Returns the imports between the submodules of each module. An item that a module imports from another, such as one of
/// its submodules, also belongs to the other.
fn imports(modules: &[(String, String)]) -> BTreeMap<String, ModuleImports> {
    let names: BTreeSet<_> = modules.iter().map(|(module, _)| module.as_str()).collect();
    let reexports: BTreeMap<_, _> = modules.iter().flat_map(reexports).collect();
    let mut imports = BTreeMap::<String, ModuleImports>::new();
    for (module, code) in modules {
        for path in paths(module, code) {
            let mut paths = BTreeSet::new();
            let mut path = Some(path);
            while let Some(found) = path.filter(|it| !paths.contains(it)) {
                path = origin(&found, &names, &reexports);
                paths.insert(found);
            }
            for (parent, own, other) in paths.iter().filter_map(|path| branch(module, path)) {
                if names.contains(format!("{parent}::{other}").as_str()) {
                    let of_parent = imports.entry(parent).or_default();
                    of_parent.entry(own).or_default().insert(other);
                }
            }
        }
    }
    imports
}

/// Returns the module at which two paths part, and their next names.
fn branch(one: &str, two: &str) -> Option<(String, String, String)> {
    let (ones, twos): (Vec<_>, Vec<_>) = (one.split("::").collect(), two.split("::").collect());
    let at = ones.iter().zip(&twos).position(|(one, two)| one != two)?;
    Some((
        ones[..at].join("::"),
        ones[at].to_owned(),
        twos[at].to_owned(),
    ))
}

/// Returns the path from which a module imports an item on `path`.
fn origin(
    path: &str,
    modules: &BTreeSet<&str>,
    reexports: &BTreeMap<String, String>,
) -> Option<String> {
    let ends = path.match_indices("::").map(|(end, _)| end);
    let mut items = ends.chain([path.len()]).map(|end| &path[..end]);
    let item = items.find(|it| !modules.contains(it))?;
    Some(path.replacen(item, reexports.get(item)?, 1))
}

/// Returns the items that a module imports, each with the path from which it does.
fn reexports((module, code): &(String, String)) -> Vec<(String, String)> {
    let declarations = code.split("use ").skip(1);
    let imports = declarations.flat_map(|declaration| expand("", declaration));
    let item = |(path, alias): (String, _)| {
        let origin = absolute(module, &path);
        (format!("{module}::{alias}"), origin)
    };
    imports.map(item).collect()
}

/// Returns the paths within its crate that a module names.
fn paths(module: &str, code: &str) -> BTreeSet<String> {
    let starts = ["crate::", "self::", "super::"].map(|root| code.match_indices(root));
    let starts = starts.into_iter().flatten().map(|(start, _)| start);
    let starts = starts.filter(|start| !code[..*start].ends_with(is_in_path));
    let imports = starts.flat_map(|start| expand("", &code[start..]));
    imports.map(|(path, _)| absolute(module, &path)).collect()
}

/// Returns the path from the root of the crate of what `path` means in a module.
fn absolute(module: &str, path: &str) -> String {
    let parent = module.rsplit_once("::").map_or("", |(parent, _)| parent);
    match path.split_once("::") {
        Some(("crate", _)) => path.to_owned(),
        Some(("self", rest)) => absolute(module, rest),
        Some(("super", rest)) => absolute(parent, rest),
        _ => format!("{module}::{path}"),
    }
}

/// Returns the paths of the items that `{prefix}{tree}` imports, each with the name that the item gets.
fn expand(prefix: &str, tree: &str) -> Vec<(String, String)> {
    let end = tree.find(|c| !is_in_path(c)).unwrap_or(tree.len());
    let path = format!("{prefix}{}", &tree[..end]);
    let group = tree[end..].strip_prefix('{');
    if let Some(group) = group.filter(|_| path.is_empty() || path.ends_with("::")) {
        let members = members(group).into_iter();
        return members
            .flat_map(|member| expand(&path, member.trim()))
            .collect();
    }
    let path = path.trim_end_matches("::self").trim_end_matches(':');
    let alias = match tree[end..].strip_prefix(" as ") {
        Some(alias) => first_name(alias),
        None => path.rsplit(':').next().unwrap().to_owned(),
    };
    vec![(path.to_owned(), alias)]
}

fn is_in_path(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '_' || c == ':'
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

/// Returns the shortest way from a module back to itself.
fn cycle<'a>(imports: &'a ModuleImports, module: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut pending = VecDeque::from([vec![module]]);
    while let Some(way) = pending.pop_front() {
        for next in imports.get(*way.last().unwrap()).into_iter().flatten() {
            let longer = [&way[..], &[next]].concat();
            if next == module {
                return Some(longer);
            }
            if seen.insert(next) {
                pending.push_back(longer);
            }
        }
    }
    None
}

#[test]
fn an_item_also_belongs_to_the_module_that_another_imports_it_from() {
    let modules = [
        (
            "crate",
            "pub use self::one::{Two, three::{Four, five as six}};",
        ),
        (
            "crate::one",
            "mod three;\npub(crate) use three::{self as seven, Four as Eight};",
        ),
        ("crate::one::three", "use super::{Nine, ten::Ten};"),
        (
            "crate::one::ten",
            "fn f(_: super::seven::A, _: super::Eight) {}",
        ),
        (
            "crate::eleven",
            "use crate::{Two, fmt};\nfn f(_: crate::six) {}",
        ),
        ("crate::fmt", "use std::one;"),
    ];
    let modules = modules.map(|(module, code)| (module.to_owned(), code.to_owned()));
    let imports = imports(&modules);
    let of_root = &imports["crate"]["eleven"];
    assert_eq!(*of_root, BTreeSet::from(["fmt", "one"].map(str::to_owned)));
    assert_eq!(imports["crate"].len(), 1);
    let way = cycle(&imports["crate::one"], "ten");
    assert_eq!(way, Some(vec!["ten", "three", "ten"]));
}
