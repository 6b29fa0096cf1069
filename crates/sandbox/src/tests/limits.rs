//! Tests that the kernel enforces the limits of a program.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nix::unistd::Uid;

use super::{Case, RecordedOutput, RunError, tasks_of_the_user, until};

fn is_failure(ended: &Result<String, RunError>) -> bool {
    matches!(ended, Err(RunError::Failed(_)))
}

#[tokio::test]
async fn cpu_time_ends_a_program() {
    let mut case = Case::shell();
    case.program.limits.cpu = Some(1);
    let ended = case.script("while :; do :; done").await;
    assert!(matches!(ended, Err(RunError::Failed(137))), "{ended:?}");
}

#[tokio::test]
async fn memory_is_refused_above_its_limit() {
    let mut case = Case::shell();
    let hog = "x=$(head -c 40000000 /dev/zero | tr '\\0' x); echo ${#x}";
    case.program.limits.memory = Some(1 << 30);
    assert_eq!(case.script(hog).await.unwrap(), "40000000\n");
    case.program.limits.memory = Some(32 << 20);
    let ended = case.script(hog).await;
    assert!(is_failure(&ended), "{ended:?}");
}

#[tokio::test]
async fn files_are_few_and_small() {
    let mut case = Case::shell();
    let many = "exec 3</dev/null 4</dev/null 5</dev/null; echo open";
    case.program.limits.files = Some(16);
    assert_eq!(case.script(many).await.unwrap(), "open\n");
    case.program.limits.files = Some(5);
    assert!(is_failure(&case.script(many).await));

    let mut case = Case::shell();
    case.program.limits.file_size = Some(1_000);
    let write = "head -c 1000 /dev/zero > full; head -c 1001 /dev/zero > over";
    assert!(is_failure(&case.script(write).await));
    let size = |name| fs::metadata(case.path().join(name)).unwrap().len();
    assert_eq!((size("full"), size("over")), (1_000, 1_000));
}

#[tokio::test]
async fn a_fork_bomb_stays_within_its_processes() {
    const ALLOWED: usize = 20;
    let mut case = Case::shell();
    fs::set_permissions(case.path(), fs::Permissions::from_mode(0o777)).unwrap();
    // A shell that cannot fork exits. The first shell forks before any process has reached the limit.
    let bomb = "bomb() { bomb & bomb & exec tail -f $0/log; }";
    let mut given = case.script_input(&format!(
        "exec 2>$0/told; {bomb}; bomb & exec tail -f $0/log"
    ));
    let mut others = tasks_of_the_user();
    if Uid::effective().is_root() {
        // The kernel does not apply this limit to root, so the bomb runs as another user.
        let user = ["--reuid=65533", "--clear-groups", "--", "/bin/sh"].map(str::to_owned);
        given.words.splice(0..0, user);
        case.program.path = "/usr/bin/setpriv".into();
        others = 0;
    }
    case.program.limits.processes = Some((others + ALLOWED) as u64);

    let mut heard = RecordedOutput::default();
    let mut most = 0;
    {
        let run = case.program.run(given, &mut heard);
        tokio::pin!(run);
        let met = until("the bomb meets its limit", || {
            most = most.max(case.count_processes());
            let told = fs::read_to_string(case.path().join("told"));
            most > ALLOWED / 4 && told.is_ok_and(|told| told.contains("Cannot fork"))
        });
        tokio::select! {
            ended = &mut run => panic!("it ended by itself: {ended:?}"),
            () = met => {}
        }
    }
    until("nothing is left", || case.count_processes() == 0).await;
    // The count does not include the supervisor.
    assert!(most <= ALLOWED + 1, "{most}");
}
