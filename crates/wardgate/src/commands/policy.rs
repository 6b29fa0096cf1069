//! `wardgate policy`: the service, and checks of policies.

use wardgate_catalogue_import::RowTypes;

use crate::Failure;
use crate::cli::{PolicyArgs, PolicyCommand};
use crate::commands::serve;

pub(crate) async fn run(arguments: PolicyArgs) -> Result<(), Failure> {
    match (arguments.command, arguments.config) {
        (Some(PolicyCommand::Check { directory }), _) => {
            let set = wardgate_policy::PolicySet::load(&directory)?;
            println!("ok: policy hash {}", set.hash());
            Ok(())
        }
        (Some(PolicyCommand::Schema { tools }), _) => {
            let catalogue = super::tools::load(&tools)?;
            let RowTypes { schema, notes } = wardgate_catalogue_import::row_types(&catalogue).await;
            for note in notes {
                eprintln!("note: {note}");
            }
            print!("{schema}");
            Ok(())
        }
        (None, Some(config)) => serve::policy(&config).await,
        (None, None) => Err("name a configuration file with --config".into()),
    }
}
