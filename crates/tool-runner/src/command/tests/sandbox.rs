//! A program with a sandbox reaches what the sandbox names, and nothing else.

use std::fs;
use std::net::TcpListener;

use super::Case;
use crate::command::sandbox::{Kernel, Sandbox};

fn sandboxed(network: bool) -> Option<Case> {
    if !Kernel::probe().files {
        eprintln!("skipped: this kernel has no Landlock");
        return None;
    }
    let mut case = Case::of("/bin/bash");
    for name in ["read", "write", "secret"] {
        fs::create_dir(case.path().join(name)).unwrap();
        fs::write(case.path().join(name).join("file"), name).unwrap();
    }
    case.program.sandbox = Some(Sandbox {
        read: vec![case.path().join("read")],
        write: vec![case.path().join("write")],
        network,
        required: true,
    });
    Some(case)
}

#[tokio::test]
async fn reads_and_writes_stay_inside() {
    let Some(case) = sandboxed(false) else { return };
    let script = "
        try() { \"$@\" >/dev/null 2>&1 && echo \"$2 $3: yes\" || echo \"$2 $3: no\"; }
        write() { echo changed > $2; }
        try cat read/file; try cat write/file; try cat secret/file; try cat read/../secret/file
        try ls secret; try cat /etc/passwd; try cat /proc/1/cmdline
        try write to write/new; try write to write/file; try write to read/file; try write to secret/file
        try write to /tmp/wardgate-canary; try ln -s write/link; try rm -f secret/file; try mv write/file read/moved
        cp /bin/true write/program; try write/program run
    ";
    let told = case.script(script).await.unwrap();
    insta::assert_snapshot!(told, @"");
    let secret = fs::read_to_string(case.path().join("secret/file")).unwrap();
    assert_eq!(secret, "secret");
    let read = fs::read_to_string(case.path().join("read/file")).unwrap();
    assert_eq!(read, "read");
}

#[tokio::test]
async fn the_network_is_closed_unless_named() {
    if !Kernel::probe().network {
        eprintln!("skipped: this kernel's Landlock does not confine TCP");
        return;
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let connect = format!("(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || echo closed");
    for (network, told) in [(false, "closed\n"), (true, "open\n")] {
        let Some(case) = sandboxed(network) else {
            return;
        };
        assert_eq!(case.script(&connect).await.unwrap(), told);
    }
}

#[tokio::test]
async fn every_program_is_kept_from_the_secrets_of_other_processes() {
    if !Kernel::probe().files {
        eprintln!("skipped: this kernel has no Landlock");
        return;
    }
    let case = Case::shell();
    let me = std::process::id();
    let peek = format!(
        "cat /proc/{me}/environ /proc/{me}/maps >/dev/null 2>&1 && echo read || echo refused; cat /proc/self/environ >/dev/null && echo own"
    );
    assert_eq!(case.script(&peek).await.unwrap(), "refused\nown\n");
}
