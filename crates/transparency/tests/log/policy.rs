//! Tests of trust policies: the syntax of tlog-policy, and quorums of every shape.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use wardgate_transparency::{
    Checkpoint, CheckpointSubmission, Cosigner, Error, SignedNote, TrustPolicy,
};

use crate::support::{ORIGIN, consistency, head, key, signer, tiles};

fn witness(number: u8) -> Cosigner {
    Cosigner::from_pkcs8(&format!("witness.example/w{number}"), &key(10 + number)).unwrap()
}

/// Returns a checkpoint with the cosignatures of some witnesses.
fn cosigned_checkpoint(by: &[u8]) -> SignedNote {
    let checkpoint = Checkpoint {
        origin: ORIGIN.to_owned(),
        head: head(7),
    };
    let mut note = signer().sign(&checkpoint.to_string()).unwrap();
    for number in by {
        note.add(witness(*number).cosign(&note, 1_679_315_147));
    }
    note
}

/// Returns the policy with the log, six witnesses and the additional `lines`.
fn policy(lines: &str) -> Result<TrustPolicy, Error> {
    let mut witnesses = String::new();
    for number in 1..=6 {
        let key = witness(number).verifier_key().to_string();
        witnesses += &format!("\twitness w{number}  {key} \n");
    }
    format!(
        "# a policy\n\nlog {} https://log.example/\n{witnesses}{lines}",
        signer().verifier_key()
    )
    .parse()
}

#[test]
fn a_quorum_is_reached_by_as_many_members_as_it_wants() {
    let example = "group x 2 w1 w2 w3\ngroup y any w4 w5 w6\ngroup both all x y\nquorum both\n";
    for (lines, enough, too_few) in [
        ("quorum none\n", vec![&[][..], &[1]], vec![]),
        (
            "quorum w2\n",
            vec![&[2], &[1, 2, 3]],
            vec![&[][..], &[1, 3]],
        ),
        (
            example,
            vec![&[1, 2, 4], &[2, 3, 6], &[1, 2, 3, 4, 5, 6]],
            vec![&[][..], &[1, 4], &[1, 2, 3], &[4, 5, 6], &[1, 4, 5, 6]],
        ),
    ] {
        let policy = policy(lines).unwrap();
        for by in enough {
            let checkpoint = policy.verify(&cosigned_checkpoint(by)).unwrap();
            assert_eq!(checkpoint.head, head(7), "{lines} {by:?}");
        }
        for by in too_few {
            let refused = policy.verify(&cosigned_checkpoint(by)).unwrap_err();
            assert!(
                matches!(refused, Error::Quorum(_)),
                "{lines} {by:?}: {refused}"
            );
        }
    }
}

#[test]
fn a_cosignature_by_another_key_counts_for_nothing_and_a_wrong_one_is_refused() {
    let policy = policy("quorum w1\n").unwrap();
    // The cosigner has the name of the witness and another key.
    let impostor = Cosigner::from_pkcs8("witness.example/w1", &key(99)).unwrap();
    let mut note = cosigned_checkpoint(&[]);
    note.add(impostor.cosign(&note, 1));
    assert_eq!(policy.verify(&note), Err(Error::Quorum("w1".to_owned())));
    // The cosignature is of another checkpoint.
    let other = Checkpoint {
        origin: ORIGIN.to_owned(),
        head: head(6),
    };
    let other = signer().sign(&other.to_string()).unwrap();
    let mut note = cosigned_checkpoint(&[]);
    note.add(witness(1).cosign(&other, 1));
    let wrong = Err(Error::Signature("witness.example/w1".to_owned()));
    assert_eq!(policy.verify(&note), wrong);
    // Without the signature of the log, a quorum is not sufficient.
    let text = cosigned_checkpoint(&[1]).to_string();
    let lines: Vec<_> = text
        .lines()
        .filter(|line| !line.starts_with("\u{2014} example.com"))
        .collect();
    let unsigned: SignedNote = format!("{}\n", lines.join("\n")).parse().unwrap();
    assert_eq!(
        policy.verify(&unsigned),
        Err(Error::NotSigned(ORIGIN.to_owned()))
    );
}

#[test]
fn a_witness_with_a_key_of_an_unknown_type_counts_for_nothing_and_leaves_the_others() {
    // The key has the length of an ML-DSA-44 key (tlog-cosignature): the type and 1,312 bytes.
    let unknown = |byte: u8| {
        let key = [&[6][..], &[byte; 1_312]].concat();
        format!("witness.example/new+0123abcd+{}", STANDARD.encode(key))
    };
    let witness_line = format!("witness new {} https://w.example/\n", unknown(1));
    let policy_of = |lines: &str| policy(&format!("{witness_line}{lines}"));
    let either = policy_of("group either any w1 new\nquorum either\n").unwrap();
    assert_eq!(either.unknown_witnesses().collect::<Vec<_>>(), ["new"]);
    assert_eq!(either.witnesses().count(), 6);
    either.verify(&cosigned_checkpoint(&[1])).unwrap();
    // A signature line in the name of this witness is ignored.
    let text = format!(
        "{}\u{2014} witness.example/new ASOrzQA=\n",
        cosigned_checkpoint(&[])
    );
    let note: SignedNote = text.parse().unwrap();
    for lines in ["quorum new\n", "group both all w1 new\nquorum both\n"] {
        let wanted = policy_of(lines).unwrap();
        for note in [&note, &cosigned_checkpoint(&[1])] {
            let refused = wanted.verify(note).unwrap_err();
            assert!(matches!(refused, Error::Quorum(_)), "{lines}: {refused}");
        }
    }
    for (lines, problem) in [
        (
            format!("witness other {}\nquorum none\n", unknown(1)),
            "another witness has this key",
        ),
        (
            format!("witness new {}\nquorum none\n", unknown(2)),
            "its name is already used",
        ),
        (
            "witness other a+0123abcd+Bg==\nquorum none\n".to_owned(),
            "not `witness NAME",
        ),
        (
            "witness other a+0123+BgA=\nquorum none\n".to_owned(),
            "not `witness NAME",
        ),
        (
            format!("log {}\nquorum none\n", unknown(1)),
            "not `log VKEY",
        ),
    ] {
        let refused = policy_of(&lines).unwrap_err().to_string();
        assert!(refused.contains(problem), "{lines:.80}: {refused}");
    }
}

#[test]
fn a_policy_that_is_not_one_is_refused_with_its_line() {
    let log = signer().verifier_key().to_string();
    let witness_key = witness(7).verifier_key().to_string();
    for (lines, problem) in [
        (String::new(), "has no `quorum` line"),
        (
            "quorum w7\n".to_owned(),
            "line 10: it uses a name that no earlier line defines",
        ),
        ("quorum w1\nquorum w1\n".to_owned(), "second `quorum` line"),
        ("quorum w1 w2\n".to_owned(), "not `quorum NAME`"),
        (
            "group none any w1\nquorum none\n".to_owned(),
            "its name is already used",
        ),
        (
            "group w1 any w2\nquorum none\n".to_owned(),
            "its name is already used",
        ),
        (
            "group g 0 w1\nquorum g\n".to_owned(),
            "its threshold is zero",
        ),
        (
            "group g 3 w1 w2\nquorum g\n".to_owned(),
            "larger than the number of its members",
        ),
        (
            "group g all\nquorum g\n".to_owned(),
            "its threshold is zero",
        ),
        ("group g 01 w1\nquorum g\n".to_owned(), "not `group NAME"),
        (
            "group g any w1 w1\nquorum g\n".to_owned(),
            "twice as a member",
        ),
        (
            "group g any w1\ngroup h any w1\nquorum g\n".to_owned(),
            "twice as a member",
        ),
        (
            "group g any none\nquorum g\n".to_owned(),
            "no earlier line defines",
        ),
        (
            format!("log {log}\nquorum none\n"),
            "another log has this key",
        ),
        (
            format!("log {witness_key}\nquorum none\n"),
            "that of a witness",
        ),
        (
            format!("witness w7 {log}\nquorum none\n"),
            "not that of a witness",
        ),
        (
            format!("witness w7 {}\nquorum none\n", witness(1).verifier_key()),
            "another witness has this key",
        ),
        (
            format!("witness w7 {witness_key} a b\nquorum none\n"),
            "not `witness NAME",
        ),
        ("witness w7\nquorum none\n".to_owned(), "not `witness NAME"),
        ("mirror w7\nquorum none\n".to_owned(), "does not begin with"),
        ("quorum none\r\n# \u{7}\n".to_owned(), "control character"),
        (
            format!("#{}\nquorum none\n", "x".repeat(70_000)),
            "more than 65536 bytes",
        ),
    ] {
        let refused = policy(&lines).unwrap_err().to_string();
        assert!(refused.contains(problem), "{lines:.80}: {refused}");
    }
}

#[test]
fn a_policy_is_for_the_logs_that_it_names_or_for_the_one_of_its_reader() {
    let log = signer().verifier_key().clone();
    let any: TrustPolicy = "quorum none\n".parse().unwrap();
    assert!(any.logs().is_empty() && any.verify(&cosigned_checkpoint(&[])).is_err());
    let of_log = any.for_log(log.clone()).unwrap();
    assert_eq!(
        of_log.verify(&cosigned_checkpoint(&[])).unwrap().head,
        head(7)
    );
    let policy = policy("quorum w1\n").unwrap();
    assert_eq!(policy.clone().for_log(log).unwrap(), policy);
    let other = witness(1).verifier_key().clone();
    let refused = policy.clone().for_log(other).unwrap_err();
    assert!(matches!(refused, Error::OtherLog(_)), "{refused}");
    let urls: Vec<_> = policy
        .witnesses()
        .map(|witness| witness.url.clone())
        .collect();
    assert_eq!(urls, [const { None }; 6]);
}

#[test]
fn a_submission_is_read_as_it_was_written_and_no_part_can_be_cut_off() {
    let submission = CheckpointSubmission {
        old_size: 3,
        path: consistency(3, 7, &tiles(7)),
        checkpoint: cosigned_checkpoint(&[]),
    };
    let text = submission.to_string();
    assert_eq!(text.parse(), Ok(submission));
    for length in (0..text.len()).filter(|length| text.is_char_boundary(*length)) {
        assert!(
            text[..length].parse::<CheckpointSubmission>().is_err(),
            "{length}"
        );
    }
    for wrong in ["old 03\n\n", "old -3\n\n", "old 3\nAA==\n\n", "size 3\n\n"] {
        let wrong = format!("{wrong}{}", cosigned_checkpoint(&[]));
        assert!(wrong.parse::<CheckpointSubmission>().is_err(), "{wrong}");
    }
}
