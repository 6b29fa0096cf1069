//! The launcher of programs as a separate program, for unit tests. In `wardgate` it is a subcommand.

use std::process::ExitCode;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words
        .next()
        .is_some_and(|word| word == wardgate_sandbox::LAUNCH)
    {
        return wardgate_sandbox::launch(words);
    }
    eprintln!("only Wardgate's tests start this");
    ExitCode::from(2)
}
