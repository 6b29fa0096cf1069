//! Tests that no process of a program outlives its call.

use super::{Case, until};

/// Script that leaves a background process, a process in its own session, and a process whose ancestors have all ended.
const FAMILY: &str = "
    tail -f $0/log &
    setsid tail -f $0/log </dev/null >/dev/null 2>&1 &
    (setsid sh -c '(tail -f $0/log </dev/null >/dev/null 2>&1 &)' $0 &)
";

#[tokio::test]
async fn a_dropped_call_takes_the_whole_tree_along() {
    let case = Case::shell();
    let script = format!("{FAMILY} trap '' TERM INT HUP; exec tail -f $0/log");
    let given = case.script_input(&script);
    let mut heard = super::RecordedOutput::default();
    {
        let run = case.program.run(given, &mut heard);
        tokio::pin!(run);
        let tails = || tails(&case) == 4;
        tokio::select! {
            ended = &mut run => panic!("it ended by itself: {ended:?}"),
            () = until("all of it runs", tails) => {}
        }
    }
    until("nothing is left", || case.count_processes() == 0).await;
}

#[tokio::test]
async fn what_a_program_leaves_behind_is_gone_with_its_result() {
    let case = Case::shell();
    let script =
        format!("{FAMILY} until [ $(pgrep -fc \"^tail -f $0/log\") = 3 ]; do :; done; echo done");
    assert_eq!(case.script(&script).await.unwrap(), "done\n");
    assert_eq!(case.count_processes(), 0);
}

#[tokio::test]
async fn a_program_cannot_kill_its_supervisor() {
    if !crate::KernelSupport::probe().signals {
        eprintln!("skipped: this kernel's Landlock does not confine signals");
        return;
    }
    let case = Case::shell();
    let told = case.script("kill -9 $PPID 2>/dev/null || echo refused");
    assert_eq!(told.await.unwrap(), "refused\n");
}

fn tails(case: &Case) -> usize {
    let path = case.path().to_str().unwrap();
    let lines = std::fs::read_dir("/proc").unwrap();
    lines
        .filter_map(|process| std::fs::read(process.ok()?.path().join("cmdline")).ok())
        .filter(|line| line.starts_with(format!("tail\0-f\0{path}").as_bytes()))
        .count()
}
