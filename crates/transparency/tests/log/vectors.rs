//! Tests with published vectors: the reference tree of Certificate Transparency, and the tiles and notes of C2SP.

use wardgate_transparency::{
    CompactTree, Error, SignedNote, TileId, VerifierKey, decode_bundle, encode_entry, leaf_hash,
    tiles_of_size,
};

fn hex(bytes: &[u8]) -> String {
    let digits =
        |byte: &u8| [byte >> 4, byte & 15].map(|it| char::from_digit(it.into(), 16).unwrap());
    bytes.iter().flat_map(digits).collect()
}

#[test]
fn the_reference_tree_of_certificate_transparency_has_its_roots() {
    let entries: [&[u8]; 8] = [
        b"",
        b"\0",
        b"\x10",
        b" !",
        b"01",
        b"@ABC",
        b"PQRSTUVW",
        b"`abcdefghijklmno",
    ];
    let roots = [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ];
    let mut tree = CompactTree::default();
    assert_eq!(hex(&tree.head().root), roots[0]);
    for (entry, root) in entries.iter().zip(&roots[1..]) {
        tree.append(leaf_hash(entry), |_, _| ());
        assert_eq!(hex(&tree.head().root), *root, "size {}", tree.size());
    }
}

#[test]
fn tiles_are_where_tlog_tiles_says() {
    let path = |level, index, size| TileId::new(level, index, size).map(|id| id.path());
    assert_eq!(
        path(0, 1_234_067, u64::MAX).as_deref(),
        Some("tile/0/x001/x234/067")
    );
    assert_eq!(path(0, 273, 70_000).as_deref(), Some("tile/0/273.p/112"));
    assert_eq!(path(0, 274, 70_000), None);
    assert_eq!(path(9, 0, u64::MAX), None);
    let bundle = TileId::new(0, 273, 70_000).unwrap().bundle_path();
    assert_eq!(bundle, "tile/entries/273.p/112");
    // This is the example of the specification.
    let tiles: Vec<_> = tiles_of_size(70_000).collect();
    assert_eq!(tiles.len(), 273 + 1 + 1 + 1 + 1);
    let last: Vec<_> = tiles[273..].iter().map(TileId::path).collect();
    assert_eq!(
        last,
        [
            "tile/0/273.p/112",
            "tile/1/000",
            "tile/1/001.p/17",
            "tile/2/000.p/1"
        ]
    );
    let of_256: Vec<_> = tiles_of_size(256).map(|id| id.path()).collect();
    assert_eq!(of_256, ["tile/0/000", "tile/1/000.p/1"]);
    assert_eq!(tiles_of_size(0).count(), 0);
}

#[test]
fn the_note_of_the_reference_implementation_verifies() {
    let key: VerifierKey = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
        .parse()
        .unwrap();
    let text = "If you think cryptography is the answer to your problem,\n\
                then you don't know what your problem is.\n";
    let note = format!(
        "{text}\n— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n"
    );
    let parsed: SignedNote = note.parse().unwrap();
    assert_eq!(parsed.text(), text);
    assert_eq!(parsed.to_string(), note);
    assert_eq!(key.verify(&parsed), Ok(()));
}

#[test]
fn a_bundle_of_entries_is_read_as_it_was_written_and_no_further() {
    let longest = vec![7; 65_535];
    let mut bundle = Vec::new();
    for entry in [b"one".as_slice(), b"", &longest] {
        encode_entry(entry, &mut bundle).unwrap();
    }
    assert_eq!(
        decode_bundle(&bundle).unwrap(),
        [b"one".as_slice(), b"", &longest]
    );
    let too_long = encode_entry(&vec![7; 65_536], &mut Vec::new());
    assert_eq!(too_long, Err(Error::EntryLength(65_536)));
    for length in [1, 4, 6, 8, bundle.len() - 1] {
        assert_eq!(
            decode_bundle(&bundle[..length]),
            Err(Error::Bundle),
            "{length}"
        );
    }
}
