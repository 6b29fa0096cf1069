//! `wardgate init`: creates a small working project as a starting point.

use std::path::Path;

use crate::Failure;
use crate::cli::InitArgs;
use crate::commands::program;
use crate::demo;

/// Embeds one file of the project.
macro_rules! file {
    ($path:literal) => {
        ($path, include_str!(concat!("../../project/", $path)))
    };
}

const FILES: [(&str, &str); 6] = [
    file!("wardgate.yaml"),
    file!("tools.yaml"),
    file!("shop.sql"),
    file!("policies/shop.cedar"),
    file!("policies/tests/shop.yaml"),
    (
        "policies/read-only.cedar",
        include_str!("../../../../deploy/policies/read-only/read-only.cedar"),
    ),
];

/// Text that describes the next steps. `{wardgate}` and `{directory}` are replaced by this program and the project
/// directory.
const NEXT_STEPS: &str = include_str!("../../project/next-steps.txt");

/// Creates the files and the database of the project, and prints the next steps. Existing files are not overwritten.
pub(crate) async fn run(arguments: &InitArgs) -> Result<(), Failure> {
    let directory = &arguments.directory;
    check_is_empty(directory)?;
    for (name, content) in FILES {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap_or(directory))
            .and_then(|()| std::fs::write(&path, content))
            .map_err(|error| format!("cannot write {}: {error}", path.display()))?;
    }
    let database = directory.join("shop.sqlite");
    demo::fill(&database, &[directory.join("shop.sql")]).await?;
    let names: Vec<_> = FILES.iter().map(|(name, _)| *name).collect();
    let shown = program::quote_path(directory);
    println!("created {shown}: {}, shop.sqlite", names.join(", "));
    let next = NEXT_STEPS.replace("{wardgate}", &program::name());
    print!("{}", next.replace("{directory}", &shown));
    Ok(())
}

fn check_is_empty(directory: &Path) -> Result<(), Failure> {
    let shown = directory.display();
    match std::fs::read_dir(directory).map(|mut entries| entries.next().is_none()) {
        Ok(true) => Ok(()),
        Ok(false) => Err(format!(
            "{shown} is not empty, and its files are not overwritten; specify an empty or new directory"
        )
        .into()),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(format!("cannot read the directory {shown}: {error}").into()),
    }
}
