//! `wardgate`: all services and all commands for operators, as subcommands of one binary.
//!
//! ```text
//!  main ─▶ cli ─▶ commands/up ────────▶ compose: policy · tool-runner · audit · memory by local links
//!            │                           └─▶ gateway (─▶ agent) ─▶ console
//!            ├──▶ commands/serve ─────▶ one service behind a socket, or the gateway with its links
//!            ├──▶ commands/{agent, console} ─▶ the agent or the console, with its gateway over HTTP
//!            ├──▶ commands/init ──────▶ a project to begin with
//!            ├──▶ commands/{login, token, stdio, call, bench, audit, tools, policy, certs, config, doctor, migrate, health,
//!            │     shell}
//!            └──▶ launch: becomes a program of a tool, within its limits
//! ```
//!
//! This crate puts the parts together. [`compose`] is the only module that knows whether a service is in this process or
//! behind mTLS.

mod cli;
mod commands;
mod compose;
mod config;
mod data_dir;
mod demo;
mod issuer;
#[cfg(test)]
mod reference_pages;
mod shutdown;

use std::process::ExitCode;

use clap::Parser;

use cli::{Cli, Command, LogVerbosity};

/// The error of a command, whose message is shown to a person and should name a remedy.
type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The allocator. Most memory of a request consists of small blocks that one thread allocates and another frees.
#[cfg(target_os = "linux")]
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> ExitCode {
    let mut words = std::env::args_os().skip(1);
    if words
        .next()
        .is_some_and(|word| word == wardgate_sandbox::LAUNCH)
    {
        // The tool-runner started this process to run a tool's program, so the remaining words are not options of
        // `wardgate`.
        return wardgate_sandbox::launch(words);
    }
    let Cli { verbosity, command } = Cli::parse();
    match run(command, verbosity) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            // A cause may contain text from an upstream or a file.
            let failure = with_causes(failure.as_ref());
            eprintln!("wardgate: {}", wardgate_domain::mark_invisible(&failure));
            ExitCode::FAILURE
        }
    }
}

#[tokio::main]
async fn run(command: Command, verbosity: LogVerbosity) -> Result<(), Failure> {
    match command {
        Command::Init(arguments) => commands::init::run(&arguments).await,
        Command::Up(arguments) => Box::pin(commands::up::run(arguments, verbosity)).await,
        Command::Gateway(arguments) => commands::serve::gateway(&arguments, verbosity).await,
        Command::Policy(arguments) => Box::pin(commands::policy::run(arguments, verbosity)).await,
        Command::ToolRunner(arguments) => commands::serve::tool_runner(&arguments, verbosity).await,
        Command::Audit(arguments) => Box::pin(commands::audit::run(arguments, verbosity)).await,
        Command::Agent(arguments) => commands::agent::run(arguments, verbosity).await,
        Command::Memory(arguments) => commands::serve::memory(&arguments, verbosity).await,
        Command::Console(arguments) => commands::console::run(&arguments, verbosity).await,
        Command::Approvals(arguments) => commands::approvals::run(arguments).await,
        Command::Limits(arguments) => commands::limits::run(arguments).await,
        Command::Revoke(arguments) => commands::revoke::run(arguments).await,
        Command::Conversations(arguments) => {
            commands::conversations::run(arguments, verbosity).await
        }
        Command::Stdio(arguments) => commands::stdio::run(arguments, verbosity).await,
        Command::Login(arguments) => commands::login::login(arguments).await,
        Command::Logout(arguments) => commands::login::logout(arguments),
        Command::Contexts(arguments) => commands::login::contexts(arguments),
        Command::Token(arguments) => commands::token::run(&arguments),
        Command::ApiKey(arguments) => commands::api_key::run(arguments),
        Command::Tools(arguments) => commands::tools::run(arguments).await,
        Command::Certs(arguments) => commands::certs::run(&arguments),
        Command::Config(arguments) => Box::pin(commands::config::run(&arguments)).await,
        Command::Doctor(arguments) => Box::pin(commands::doctor::run(&arguments)).await,
        Command::Migrate(arguments) => commands::migrate::run(&arguments).await,
        Command::Call(arguments) => commands::calls::call(arguments).await,
        Command::Bench(arguments) => commands::calls::bench(arguments).await,
        Command::Health(arguments) => commands::health::run(&arguments).await,
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man { directory } => commands::shell::man(&directory),
    }
}

/// Formats an error and its causes in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(deeper) = cause {
        let told = deeper.to_string();
        if !text.contains(&told) {
            text.push_str(": ");
            text.push_str(&told);
        }
        cause = deeper.source();
    }
    text
}
