//! `wardgate policy`: the service, and checks of policies.

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
        (None, Some(config)) => serve::policy(&config).await,
        (None, None) => Err("name a configuration file with --config".into()),
    }
}
