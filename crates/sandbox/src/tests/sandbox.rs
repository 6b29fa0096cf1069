//! Tests that a program with a sandbox can access what the sandbox names, and nothing else.

use std::fs;
use std::net::TcpListener;

use super::Case;
use crate::{KernelSupport, Sandbox};

fn create_sandboxed_case(network: bool) -> Option<Case> {
    if !KernelSupport::probe().files {
        eprintln!("skipped: this kernel has no Landlock");
        return None;
    }
    let mut case = Case::for_program("/bin/bash");
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
    let Some(case) = create_sandboxed_case(false) else {
        return;
    };
    let script = "
        try() { eval \"$1\" >/dev/null 2>&1 && echo \"yes: $1\" || echo \"no:  $1\"; }
        try 'cat read/file'
        try 'cat write/file'
        try 'cat secret/file'
        try 'cat read/../secret/file'
        try 'ls secret'
        try 'cat /etc/passwd'
        try 'cat /proc/1/cmdline'
        try 'echo x > write/new'
        try 'echo x > write/file'
        try 'rm write/new'
        try 'echo x > read/file'
        try 'echo x > secret/file'
        try 'echo x > /tmp/canary-of-a-sandbox'
        try 'rm -f secret/file'
        try 'mv write/file read/moved'
        try 'ln -s ../secret/file write/link && cat write/link'
        cp /bin/true write/program
        try 'write/program'
    ";
    let told = case.script(script).await.unwrap();
    insta::assert_snapshot!(told, @"
    yes: cat read/file
    yes: cat write/file
    no:  cat secret/file
    no:  cat read/../secret/file
    no:  ls secret
    no:  cat /etc/passwd
    no:  cat /proc/1/cmdline
    yes: echo x > write/new
    yes: echo x > write/file
    yes: rm write/new
    no:  echo x > read/file
    no:  echo x > secret/file
    no:  echo x > /tmp/canary-of-a-sandbox
    no:  rm -f secret/file
    no:  mv write/file read/moved
    no:  ln -s ../secret/file write/link && cat write/link
    no:  write/program
    ");
    let secret = fs::read_to_string(case.path().join("secret/file")).unwrap();
    assert_eq!(secret, "secret");
    let read = fs::read_to_string(case.path().join("read/file")).unwrap();
    assert_eq!(read, "read");
}

#[tokio::test]
async fn the_network_is_closed_unless_named() {
    if !KernelSupport::probe().network {
        eprintln!("skipped: this kernel's Landlock does not confine TCP");
        return;
    }
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let connect = format!("(: </dev/tcp/127.0.0.1/{port}) 2>/dev/null && echo open || echo closed");
    for (network, told) in [(false, "closed\n"), (true, "open\n")] {
        let Some(case) = create_sandboxed_case(network) else {
            return;
        };
        assert_eq!(case.script(&connect).await.unwrap(), told);
    }
}

#[tokio::test]
async fn every_program_is_kept_from_the_secrets_of_other_processes() {
    if !KernelSupport::probe().files {
        eprintln!("skipped: this kernel has no Landlock");
        return;
    }
    let case = Case::shell();
    let me = std::process::id();
    let memory = format!("(: </proc/{me}/mem) 2>/dev/null && echo open || echo refused");
    assert_eq!(case.script(&memory).await.unwrap(), "refused\n");
    let own = case.script("(: </proc/self/mem) && echo open").await;
    assert_eq!(own.unwrap(), "open\n");
}
