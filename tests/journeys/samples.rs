//! Tests that the shipped files are usable as they are, and that the binary has complete help.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use wardgate_testkit::run;

use crate::{REPOSITORY, WARDGATE};

fn is_policy(name: &str) -> bool {
    Path::new(name).extension().is_some_and(|it| it == "cedar")
}

/// Returns every file below `deploy/` for whose name `is` returns true.
pub(super) fn find_shipped_files(is: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut directories = vec![Path::new(REPOSITORY).join("deploy")];
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(&directory).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                directories.push(path);
            } else if path
                .file_name()
                .and_then(|name| name.to_str())
                .is_some_and(&is)
            {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty());
    found
}

/// Runs `wardgate` on a file, with the environment variables that the catalogues require.
pub(super) fn wardgate(arguments: &[&str], on: &Path) -> String {
    let on = on.display().to_string();
    let environment = [
        ("HOSPITAL_DB_URL", "sqlite:hospital.sqlite"),
        ("BANK_DB_URL", "sqlite:bank.sqlite"),
    ];
    run(
        Path::new(WARDGATE),
        &[arguments, &[&on]].concat(),
        &environment,
    )
    .success()
}

#[test]
fn every_shipped_configuration_passes_its_check() {
    for file in find_shipped_files(|name| name == "wardgate.yaml") {
        // The files that compose.yaml mounts, or that `wardgate certs dev` writes, do not exist here.
        let lacks_keys = ["compose/wardgate.yaml", "separate/wardgate.yaml"];
        let check: &[&str] = if lacks_keys.iter().any(|name| file.ends_with(name)) {
            &["config", "check", "--alone", "--config"]
        } else {
            &["config", "check", "--config"]
        };
        assert_eq!(wardgate(check, &file), "ok\n", "{}", file.display());
        let dump = wardgate(&["config", "dump", "--config"], &file);
        assert!(
            serde_json::from_str::<serde_json::Value>(&dump)
                .unwrap()
                .is_object()
        );
    }
}

/// Returns every catalogue that ships, which is a file or a directory of files.
pub(super) fn catalogues() -> Vec<PathBuf> {
    let mut found = find_shipped_files(|name| name == "tools.yaml");
    found.push(Path::new(REPOSITORY).join("deploy/examples/edgelake/tools"));
    found
}

#[test]
fn every_shipped_catalogue_passes_its_check() {
    for file in catalogues() {
        let said = wardgate(&["tools", "check"], &file);
        assert!(said.starts_with("ok: "), "{}: {said}", file.display());
        assert!(!said.contains("warning"), "{}: {said}", file.display());
    }
}

#[test]
fn every_shipped_policy_directory_passes_its_check() {
    let directories: BTreeSet<_> = find_shipped_files(is_policy)
        .iter()
        .filter_map(|file| file.parent().map(Path::to_owned))
        .collect();
    assert!(directories.len() > 5, "{directories:?}");
    for directory in directories {
        let said = wardgate(&["policy", "check"], &directory);
        assert!(
            said.starts_with("ok: policy hash "),
            "{}: {said}",
            directory.display()
        );
    }
}

/// Returns a command and all its subcommands, each with its `--help`.
fn helps(command: &[&str]) -> Vec<(String, String)> {
    let help = run(Path::new(WARDGATE), &[command, &["--help"]].concat(), &[]).success();
    let below: Vec<String> = section(&help, "Commands:")
        .iter()
        .filter_map(|entry| entry.split_whitespace().next())
        .filter(|&name| name != "help")
        .map(str::to_owned)
        .collect();
    let below = below
        .iter()
        .flat_map(|name| helps(&[command, &[name.as_str()]].concat()));
    let below: Vec<_> = below.collect();
    std::iter::once((command.join(" "), help))
        .chain(below)
        .collect()
}

/// Returns the entries of one section of a help text, each joined into one line.
fn section(help: &str, title: &str) -> Vec<String> {
    let lines = help.lines().skip_while(|line| *line != title).skip(1);
    let mut entries: Vec<String> = Vec::new();
    for line in lines.take_while(|line| line.is_empty() || line.starts_with(' ')) {
        let is_entry = line.starts_with("  ") && !line.starts_with("       ");
        match entries.last_mut() {
            Some(entry) if !is_entry => {
                entry.push(' ');
                entry.push_str(line.trim());
            }
            _ => entries.push(line.trim().to_owned()),
        }
    }
    entries
}

/// Returns whether an entry has a description besides its flags, values and defaults.
fn is_explained(entry: &str) -> bool {
    let mut words = entry
        .split_whitespace()
        .skip_while(|word| word.starts_with(['-', '<', '[']));
    words.next().is_some()
}

#[test]
fn the_tests_beside_shipped_policies_pass_and_reach_every_policy() {
    let mut tested = 0;
    let policies = find_shipped_files(is_policy);
    let directories: BTreeSet<_> = policies.iter().filter_map(|file| file.parent()).collect();
    for directory in directories {
        if directory.join("tests").is_dir() {
            let command = ["policy", "test", "--require-coverage"];
            let told = wardgate(&command, directory);
            assert!(told.contains(", 0 failed"), "{told}");
            tested += 1;
        }
    }
    assert!(
        tested >= 10,
        "the tests are where they are looked for: {tested}"
    );
}

#[test]
fn every_command_and_every_option_explains_itself() {
    let helps = helps(&[]);
    let commands: Vec<&str> = helps.iter().map(|(command, _)| command.as_str()).collect();
    for expected in [
        "up",
        "gateway",
        "policy",
        "tool-runner",
        "audit",
        "token",
        "tools list",
        "tools check",
        "policy check",
        "policy test",
        "policy explain",
        "policy diff",
        "policy replay",
        "audit query",
        "config check",
        "config dump",
        "health",
        "certs dev",
    ] {
        assert!(
            commands.contains(&expected),
            "{expected} is not among {commands:?}"
        );
    }
    for (command, help) in &helps {
        let about = help.lines().next().unwrap();
        assert!(
            !about.is_empty() && !about.starts_with("Usage"),
            "`{command}` says not what it is for"
        );
        for title in ["Options:", "Arguments:"] {
            for entry in section(help, title) {
                assert!(is_explained(&entry), "`{command}` does not explain {entry}");
            }
        }
        for entry in section(help, "Commands:") {
            assert!(
                entry.split_whitespace().count() > 2,
                "`{command}` does not explain {entry}"
            );
        }
    }
}
