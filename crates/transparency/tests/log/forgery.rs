//! Tests that changed, truncated and forged data is refused.

use wardgate_transparency::{
    Checkpoint, CompactTree, EMPTY_ROOT, Error, SignedNote, TileId, TileSet, TlogProof, TreeHead,
    VerifierKey, verify_consistency, verify_inclusion,
};

use crate::support::{
    ORIGIN, consistency, cosigner, entry, head, inclusion, leaf, proof, signer, tiles, tree, verify,
};

#[test]
fn a_bundle_with_any_byte_changed_or_cut_off_is_refused() {
    let signer = signer();
    let bundle = proof(11, 21, &signer).to_string();
    assert_eq!(verify(&bundle, &signer).unwrap().head, head(21));
    for length in 0..bundle.len() {
        if bundle.is_char_boundary(length) {
            assert!(
                verify(&bundle[..length], &signer).is_err(),
                "cut off at {length}"
            );
        }
    }
    let bytes = bundle.as_bytes();
    for at in 0..bytes.len() {
        for bit in 0..8 {
            let mut changed = bytes.to_vec();
            changed[at] ^= 1 << bit;
            if let Ok(changed) = String::from_utf8(changed) {
                assert!(verify(&changed, &signer).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
}

#[test]
fn a_cosignature_with_any_bit_changed_is_refused() {
    let (signer, cosigner) = (signer(), cosigner());
    let checkpoint = Checkpoint {
        origin: ORIGIN.to_owned(),
        head: head(3),
    };
    let mut note = signer.sign(&checkpoint.to_string()).unwrap();
    let witness = cosigner.verifier_key();
    assert_eq!(
        witness.verify(&note),
        Err(Error::NotSigned("witness.example/w1".to_owned()))
    );
    note.add(cosigner.cosign(&note, 1_679_315_147));
    let text = note.to_string();
    let verify = |text: &str| {
        let note: SignedNote = text.parse()?;
        witness.verify(&note)?;
        Checkpoint::verify(&note, signer.verifier_key())
    };
    assert_eq!(verify(&text), Ok(checkpoint));
    for at in 0..text.len() {
        for bit in 0..8 {
            let mut changed = text.as_bytes().to_vec();
            changed[at] ^= 1 << bit;
            if let Ok(changed) = String::from_utf8(changed) {
                assert!(verify(&changed).is_err(), "bit {bit} of byte {at}");
            }
        }
    }
    // The key of a witness states its type, and is not accepted as the key of a log.
    let key = witness.to_string();
    assert_eq!(key.parse::<VerifierKey>().as_ref(), Ok(witness));
    let as_log = Checkpoint::verify(&note, witness);
    assert!(matches!(as_log, Err(Error::Origin { .. })), "{as_log:?}");
}

#[test]
fn a_path_with_a_hash_changed_added_removed_or_swapped_is_refused() {
    for (index, size) in [
        (0, 1),
        (0, 2),
        (5, 6),
        (6, 7),
        (11, 21),
        (20, 21),
        (300, 600),
    ] {
        let tiles = tiles(size);
        let (head, leaf) = (head(size), leaf(index));
        let path = inclusion(index, size, &tiles);
        verify_inclusion(&leaf, index, &path, &head).unwrap();
        for other in (0..=size).filter(|other| *other != index) {
            assert!(verify_inclusion(&leaf, other, &path, &head).is_err());
        }
        for forged in forgeries(&path) {
            assert!(
                verify_inclusion(&leaf, index, &forged, &head).is_err(),
                "{index} of {size}"
            );
        }
    }
    for (old, new) in [
        (1, 2),
        (2, 3),
        (4, 8),
        (6, 7),
        (7, 21),
        (16, 21),
        (256, 600),
        (300, 600),
    ] {
        let tiles = tiles(new);
        let (old, new) = (head(old), head(new));
        let path = consistency(old.size, new.size, &tiles);
        verify_consistency(&old, &new, &path).unwrap();
        assert!(verify_consistency(&new, &old, &path).is_err());
        assert!(
            verify_consistency(
                &TreeHead {
                    size: old.size,
                    root: new.root
                },
                &new,
                &path
            )
            .is_err()
        );
        for forged in forgeries(&path) {
            assert!(
                verify_consistency(&old, &new, &forged).is_err(),
                "{old:?} {new:?}"
            );
        }
    }
}

fn forgeries(path: &[[u8; 32]]) -> Vec<Vec<[u8; 32]>> {
    let mut forged = Vec::new();
    for at in 0..path.len() {
        let mut removed = path.to_vec();
        removed.remove(at);
        forged.push(removed);
        for byte in 0..32 {
            let mut changed = path.to_vec();
            changed[at][byte] ^= 1;
            forged.push(changed);
        }
        if at > 0 {
            let mut swapped = path.to_vec();
            swapped.swap(at - 1, at);
            forged.push(swapped);
        }
    }
    for at in 0..=path.len() {
        let mut added = path.to_vec();
        added.insert(at, [7; 32]);
        forged.push(added);
    }
    forged
}

#[test]
fn trees_of_one_size_and_the_empty_tree_need_no_path_and_take_none() {
    let empty = TreeHead {
        size: 0,
        root: EMPTY_ROOT,
    };
    let some = head(5);
    let refused = |old, new| Err(Error::Inconsistent { old, new });
    assert_eq!(verify_consistency(&empty, &some, &[]), Ok(()));
    assert_eq!(verify_consistency(&some, &some, &[]), Ok(()));
    assert_eq!(verify_consistency(&empty, &some, &[[0; 32]]), refused(0, 5));
    assert_eq!(verify_consistency(&some, &some, &[[0; 32]]), refused(5, 5));
    assert_eq!(
        verify_consistency(&some, &TreeHead { size: 5, ..empty }, &[]),
        refused(5, 5)
    );
    let not_empty = TreeHead { size: 0, ..some };
    assert_eq!(verify_consistency(&not_empty, &some, &[]), refused(0, 5));
    assert_eq!(verify_consistency(&empty, &not_empty, &[]), refused(0, 0));
    assert!(verify_inclusion(&leaf(0), 0, &[], &empty).is_err());
}

#[test]
fn no_size_and_no_index_ends_the_program() {
    let sizes = [
        0,
        1,
        2,
        3,
        255,
        1 << 32,
        (1 << 63) - 1,
        1 << 63,
        u64::MAX - 1,
        u64::MAX,
    ];
    for size in sizes {
        let tree = TreeHead {
            size,
            root: [1; 32],
        };
        for other in sizes {
            for length in [0, 1, 2, 63, 64, 65, 200] {
                let path = vec![[2; 32]; length];
                assert!(verify_inclusion(&[3; 32], other, &path, &tree).is_err());
                let other = TreeHead {
                    size: other,
                    root: [4; 32],
                };
                assert!(verify_consistency(&other, &tree, &path).is_err());
            }
            assert!(consistency_is_computed(other, size) && inclusion_is_computed(other, size));
        }
    }
}

fn consistency_is_computed(old: u64, new: u64) -> bool {
    let path = wardgate_transparency::consistency_path(old, new, |_| Ok::<_, Error>([0; 32]));
    path.is_ok_and(|path| path.len() <= 65)
}

fn inclusion_is_computed(index: u64, size: u64) -> bool {
    let path = wardgate_transparency::inclusion_path(index, size, |_| Ok::<_, Error>([0; 32]));
    path.is_ok_and(|path| path.len() <= 65)
}

#[test]
fn a_tree_goes_on_from_its_subtrees_and_from_no_others() {
    let mut roots = std::collections::HashMap::new();
    tree(300, |node, hash| {
        roots.insert((node.height, node.index), *hash);
    });
    let at = |node: wardgate_transparency::Node| match node.height {
        0 => leaf(node.index),
        height => roots[&(height, node.index)],
    };
    for size in [0, 1, 2, 3, 255, 256, 257, 299] {
        let subtrees: Vec<_> = CompactTree::nodes(size).map(at).collect();
        let mut resumed = CompactTree::new(size, subtrees.clone()).unwrap();
        assert_eq!(resumed.head(), head(size));
        (size..300).for_each(|index| resumed.append(leaf(index), |_, _| ()));
        assert_eq!(resumed.head(), head(300));
        let more = [subtrees, vec![[0; 32]]].concat();
        assert!(matches!(
            CompactTree::new(size, more),
            Err(Error::Subtrees { .. })
        ));
    }
}

#[test]
fn a_tile_of_another_length_is_refused_and_a_missing_one_is_named() {
    let id = TileId::new(0, 0, 3).unwrap();
    let mut tiles = TileSet::default();
    for length in [0, 32, 95, 97, 128] {
        let inserted = tiles.insert(id, &vec![0; length]);
        assert_eq!(
            inserted,
            Err(Error::Tile("tile/0/000.p/3".to_owned())),
            "{length}"
        );
    }
    tiles.insert(id, &[0; 96]).unwrap();
    for node in wardgate_transparency::CompactTree::nodes(4) {
        assert!(matches!(tiles.node(node), Err(Error::MissingTile(_))));
    }
}

#[test]
fn malformed_notes_checkpoints_proofs_and_keys_are_named() {
    let signer = signer();
    let key = signer.verifier_key().to_string();
    let (name, rest) = key.split_once('+').unwrap();
    for wrong in [
        String::new(),
        name.to_owned(),
        format!("+{rest}"),
        format!("other+{rest}"),
        format!("{key}="),
        key.replace("+A", "+B"),
    ] {
        assert!(
            matches!(wrong.parse::<VerifierKey>(), Err(Error::VerifierKey(_))),
            "{wrong}"
        );
    }
    let root = "CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=";
    for wrong in [
        String::new(),
        "log\n".into(),
        format!("log\n1\n{root}"),
        format!("\n1\n{root}\n"),
        format!("log\n01\n{root}\n"),
        format!("log\n+1\n{root}\n"),
        format!("log\n-1\n{root}\n"),
        format!("log\n18446744073709551616\n{root}\n"),
        "log\n1\nAAAA\n".into(),
        format!("log\n1\n{root}\n\n"),
        format!("log\n1\n {root}\n"),
        format!("log\n1\n{root}\n\nmore\n"),
    ] {
        assert!(
            matches!(wrong.parse::<Checkpoint>(), Err(Error::Checkpoint(_))),
            "{wrong}"
        );
    }
    assert!(
        format!("log\n1\n{root}\nextension\n")
            .parse::<Checkpoint>()
            .is_ok()
    );
    let note = proof(0, 2, &signer).checkpoint.to_string();
    for wrong in [
        note.replace("\n\n", "\n"),
        note.trim_end().to_owned(),
        note.replace('—', "-"),
        note.replace("— ", "—"),
        format!("{note}\n"),
        note.replacen('\n', "\r\n", 1),
        format!("{note}— a AAAA\n"),
        format!("{note}— a+b AAAAAAA=\n"),
        "\n\n".into(),
        "a\n\n\n".into(),
        format!("{}{note}", "a\n".repeat(40_000)),
    ] {
        assert!(
            matches!(wrong.parse::<SignedNote>(), Err(Error::Note(_))),
            "{wrong}"
        );
    }
    let bundle = proof(0, 2, &signer).to_string();
    let line = "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=\n";
    for wrong in [
        bundle.replace("v1", "v2"),
        bundle.replace("index 0", "index 00"),
        bundle.replace("index 0\n", ""),
        bundle.replace("extra ", "extra !"),
        bundle.replace("index 0\n", "index 0\nAA\n"),
        bundle.replace("index 0\n", &format!("index 0\n{}", line.repeat(64))),
        bundle.replace("\n\n", "\n"),
        format!("{bundle}{}", "a".repeat(300_000)),
    ] {
        assert!(
            matches!(wrong.parse::<TlogProof>(), Err(Error::Proof(_))),
            "{wrong}"
        );
    }
    assert_eq!(entry(0), proof(0, 2, &signer).extra.unwrap());
}
