//! `wardgate completions` and `wardgate man`: generate shell completions and manual pages from the description that
//! `--help` uses.

use std::io::Write;
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::Failure;
use crate::cli::Cli;

/// Prints the script that completes commands and options.
pub(crate) fn completions(shell: Shell) -> Result<(), Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "wardgate", &mut script);
    std::io::stdout().write_all(&script)?;
    Ok(())
}

/// Writes a manual page for `wardgate` and for each of its commands, in section 1.
pub(crate) fn man(directory: &Path) -> Result<(), Failure> {
    std::fs::create_dir_all(directory)?;
    clap_mangen::generate_to(Cli::command(), directory)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_has_a_manual_page() {
        let dir = tempfile::tempdir().unwrap();
        man(dir.path()).unwrap();
        let read = |name: &str| std::fs::read_to_string(dir.path().join(name)).unwrap();
        assert!(read("wardgate.1").contains("wardgate"));
        assert!(
            read("wardgate-audit-verify.1").contains("vkey")
                || read("wardgate-audit-verify.1").contains("VKEY")
        );
        let visible = |command: &&clap::Command| !command.is_hide_set();
        for command in Cli::command().get_subcommands().filter(visible) {
            read(&format!("wardgate-{}.1", command.get_name()));
        }
    }
}
