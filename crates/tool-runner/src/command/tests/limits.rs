//! The kernel holds a program to its limits.

use super::{Case, RunError};
use crate::command::program::Given;

fn failed(ended: &Result<String, RunError>) -> bool {
    matches!(ended, Err(RunError::Failed(_)))
}

#[tokio::test]
async fn cpu_time() {
    let mut case = Case::shell();
    case.program.limits.cpu = Some(1);
    let ended = case.script("while :; do :; done").await;
    assert!(matches!(ended, Err(RunError::Failed(137))), "{ended:?}");
}

#[tokio::test]
async fn memory() {
    let mut case = Case::shell();
    let hog = "x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ${#x}";
    case.program.limits.memory = Some(1 << 30);
    assert_eq!(case.script(hog).await.unwrap(), "40000000\n");
    case.program.limits.memory = Some(32 << 20);
    let ended = case.script(hog).await;
    assert!(failed(&ended), "{ended:?}");
}

#[tokio::test]
async fn open_files_and_file_sizes() {
    let mut case = Case::shell();
    let many = "exec 3</dev/null 4</dev/null 5</dev/null; echo open";
    case.program.limits.files = Some(16);
    assert_eq!(case.script(many).await.unwrap(), "open\n");
    case.program.limits.files = Some(5);
    assert!(failed(&case.script(many).await));

    let mut case = Case::shell();
    case.program.limits.file_size = Some(1_000);
    let write = "head -c 1000 /dev/zero > full; head -c 1001 /dev/zero > over";
    assert!(failed(&case.script(write).await));
    let size = |name| std::fs::metadata(case.path().join(name)).unwrap().len();
    assert_eq!((size("full"), size("over")), (1_000, 1_000));
}

#[tokio::test]
async fn processes() {
    let bomb = "bomb() { bomb & bomb & wait; }; bomb 2>/dev/null";
    let mut case = Case::shell();
    let mut given = case.given(bomb);
    let others = if nix::unistd::Uid::effective().is_root() {
        // The kernel excepts root from this limit, so the bomb is nobody's.
        given = Given {
            words: ["--reuid=65533", "--clear-groups", "--", "/bin/sh"]
                .map(str::to_owned)
                .into_iter()
                .chain(given.words)
                .collect(),
            ..given
        };
        case.program.path = "/usr/bin/setpriv".into();
        case.program.name = "setpriv".to_owned();
        0
    } else {
        super::tasks_of_the_user()
    };
    const ALLOWED: usize = 20;
    case.program.limits.processes = Some((others + ALLOWED) as u64);

    let mut heard = super::Heard::default();
    let mut most = 0;
    {
        let run = case.program.run(given, &mut heard);
        tokio::pin!(run);
        let watch = super::until("the bomb meets its limit", || {
            most = most.max(case.running());
            most >= ALLOWED
        });
        tokio::select! {
            _ended = &mut run => {}
            () = watch => {}
        }
    }
    super::until("nothing is left", || case.running() == 0).await;
    // The keeper is the one that is not limited.
    assert!((ALLOWED / 2..=ALLOWED + 1).contains(&most), "{most}");
}
