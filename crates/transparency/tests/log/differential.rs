//! Comparison with two other implementations: roots, paths, tiles and notes must be equal.

use ct_merkle::mem_backed_tree::MemoryBackedTree;
use ct_merkle::{ConsistencyProof, InclusionProof, RootHash};
use proptest::prelude::*;
use sha2::Sha256;
use signed_note::{Note, StandardVerifier, VerifierList};
use tlog_tiles::{HashReader, Tile, TileHashReader, TileReader};
use wardgate_transparency::{
    Checkpoint, Hash, TileId, TreeHead, VerifierKey, consistency_ranges, inclusion_ranges,
    tiles_of_ranges, verify_consistency, verify_inclusion,
};

use crate::support::{
    ORIGIN, consistency, cosigner, entry, head, inclusion, leaf, signer, tiles, tiles_with_ids,
};

fn reference(size: u64) -> MemoryBackedTree<Sha256, Vec<u8>> {
    let mut tree = MemoryBackedTree::new();
    (0..size).for_each(|index| tree.push(entry(index)));
    tree
}

fn root_of(head: TreeHead) -> RootHash<Sha256> {
    RootHash::new(head.root.into(), head.size)
}

/// The stored hashes of the Go implementation, computed by its port.
struct StoredHashes(Vec<tlog_tiles::Hash>);

impl StoredHashes {
    fn for_size(size: u64) -> Self {
        let mut stored = Self(Vec::new());
        for index in 0..size {
            let new = tlog_tiles::stored_hashes(index, &entry(index), &stored).unwrap();
            stored.0.extend(new);
        }
        stored
    }
}

impl HashReader for StoredHashes {
    fn read_hashes(&self, indexes: &[u64]) -> Result<Vec<tlog_tiles::Hash>, tlog_tiles::Error> {
        Ok(indexes
            .iter()
            .map(|index| self.0[usize::try_from(*index).unwrap()])
            .collect())
    }
}

fn theirs(path: &[Hash]) -> Vec<tlog_tiles::Hash> {
    path.iter().copied().map(tlog_tiles::Hash).collect()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn roots_and_paths_are_those_of_ct_merkle_and_tlog_tiles(size in 1_u64..700, pick in any::<u64>(), part in any::<u64>()) {
        let (index, old) = (pick % size, 1 + part % size);
        let (ours, tiles) = (head(size), tiles(size));
        let tree = reference(size);
        let root = tree.root();
        prop_assert_eq!(ours.root.as_slice(), root.as_bytes().as_slice());
        let stored = StoredHashes::for_size(size);
        prop_assert_eq!(ours.root, tlog_tiles::tree_hash(size, &stored).unwrap().0);

        let path = inclusion(index, size, &tiles);
        let of_tree = tree.prove_inclusion(usize::try_from(index).unwrap());
        prop_assert_eq!(path.as_flattened(), of_tree.as_bytes());
        prop_assert_eq!(theirs(&path), tlog_tiles::prove_record(size, index, &stored).unwrap());
        prop_assert_eq!(verify_inclusion(&leaf(index), index, &path, &ours), Ok(()));

        let path = consistency(old, size, &tiles);
        let added = usize::try_from(size - old).unwrap();
        let of_tree = tree.prove_consistency(added);
        prop_assert_eq!(path.as_flattened(), of_tree.as_bytes());
        if old < size {
            prop_assert_eq!(theirs(&path), tlog_tiles::prove_tree(size, old, &stored).unwrap());
        }
        prop_assert_eq!(verify_consistency(&head(old), &ours, &path), Ok(()));
    }

    /// Checks that random and nearly valid paths get the same verdict as in both other implementations.
    #[test]
    fn verdicts_are_those_of_ct_merkle_and_tlog_tiles(
        size in 1_u64..80,
        claimed in 1_u64..80,
        index in 0_u64..80,
        entry_at in 0_u64..80,
        old in 1_u64..80,
        cut in 0_usize..3,
        swap in any::<bool>(),
    ) {
        let tiles = tiles(size);
        let mut path = inclusion(entry_at % size, size, &tiles);
        path.truncate(path.len().saturating_sub(cut));
        if swap && path.len() > 1 {
            path.swap(0, 1);
        }
        let tree = TreeHead { size: claimed, ..head(size) };
        let ours = verify_inclusion(&leaf(entry_at % size), index, &path, &tree).is_ok();
        let bytes = path.as_flattened().to_vec();
        let of_ct = InclusionProof::<Sha256>::try_from_bytes(bytes).is_ok_and(|proof| {
            root_of(tree).verify_inclusion(&entry(entry_at % size), index, &proof).is_ok()
        });
        prop_assert_eq!(ours, of_ct);
        let of_tlog = tlog_tiles::check_record(
            &theirs(&path), claimed, tlog_tiles::Hash(tree.root), index, tlog_tiles::Hash(leaf(entry_at % size)));
        prop_assert_eq!(ours, of_tlog.is_ok());

        let old = 1 + old % size;
        let mut path = consistency(old, size, &tiles);
        path.truncate(path.len().saturating_sub(cut));
        if swap && path.len() > 1 {
            path.swap(0, 1);
        }
        let ours = verify_consistency(&head(old), &tree, &path).is_ok();
        if old < claimed {
            let bytes = path.as_flattened().to_vec();
            let of_ct = ConsistencyProof::<Sha256>::try_from_bytes(bytes).is_ok_and(|proof| {
                root_of(tree).verify_consistency(&root_of(head(old)), &proof).is_ok()
            });
            prop_assert_eq!(ours, of_ct);
            let of_tlog = tlog_tiles::check_tree(
                &theirs(&path), claimed, tlog_tiles::Hash(tree.root), old, tlog_tiles::Hash(head(old).root));
            prop_assert_eq!(ours, of_tlog.is_ok());
        }
    }

    #[test]
    fn paths_of_tiles_are_those_of_tlog_tiles(level in 0_u8..5, index in any::<u32>(), size in any::<u64>()) {
        let index = u64::from(index);
        if let Some(id) = TileId::new(level, index, size) {
            let width = u32::try_from(id.range().end - id.range().start).unwrap();
            prop_assert_eq!(format!("tile/8/{}", id.path().strip_prefix("tile/").unwrap()),
                Tile::new(8, level, index, width, false).path());
        }
    }
}

/// Computes each path from the tiles that are named for it alone: at most five, in trees of one and of several tiles.
#[test]
fn a_path_is_computed_of_the_tiles_that_are_named_for_it() {
    for size in [1_u64, 255, 256, 257, 511, 66_000] {
        for index in [0, size / 2, size - 1] {
            let named = tiles_of_ranges(inclusion_ranges(index, size), size);
            assert!(named.len() <= 5, "{named:?}");
            let path = inclusion(index, size, &tiles_with_ids(size, named));
            assert_eq!(
                verify_inclusion(&leaf(index), index, &path, &head(size)),
                Ok(())
            );
            let named = tiles_of_ranges(consistency_ranges(index, size), size);
            assert!(named.len() <= 5, "{named:?}");
            let path = consistency(index, size, &tiles_with_ids(size, named));
            assert_eq!(verify_consistency(&head(index), &head(size), &path), Ok(()));
        }
    }
}

struct OurTiles(u64);

impl TileReader for OurTiles {
    fn height(&self) -> u8 {
        8
    }

    fn read_tiles(&self, wanted: &[Tile]) -> Result<Vec<Vec<u8>>, tlog_tiles::Error> {
        let stored = StoredHashes::for_size(self.0);
        wanted.iter().map(|tile| tile.read_data(&stored)).collect()
    }

    fn save_tiles(&self, _: &[Tile], _: &[Vec<u8>]) {}
}

/// The reader of `tlog_tiles` authenticates tiles against the root of this crate before it proves anything with them.
#[test]
fn tiles_hash_to_our_root_by_tlog_tiles() {
    let tiles = OurTiles(600);
    let reader = TileHashReader::new(600, tlog_tiles::Hash(head(600).root), &tiles);
    let path = tlog_tiles::prove_record(600, 77, &reader).unwrap();
    assert_eq!(
        path,
        theirs(&inclusion(77, 600, &crate::support::tiles(600)))
    );
}

#[test]
fn a_signed_checkpoint_verifies_by_signed_note_and_its_key_reads_alike() {
    let signer = signer();
    let checkpoint = Checkpoint {
        origin: ORIGIN.to_owned(),
        head: head(10),
    };
    let mut note = signer.sign(&checkpoint.to_string()).unwrap();
    note.add(cosigner().cosign(&note, 1_679_315_147));
    let key = signer.verifier_key().to_string();
    let verifier = StandardVerifier::new(&key).unwrap();
    let theirs = Note::from_bytes(note.to_string().as_bytes()).unwrap();
    let (verified, _) = theirs
        .verify(&VerifierList::new(vec![Box::new(verifier)]))
        .unwrap();
    assert_eq!(verified.len(), 1);
    let parsed = tlog_tiles::Checkpoint::from_bytes(theirs.text()).unwrap();
    assert_eq!(
        (parsed.origin(), parsed.size(), parsed.hash().0),
        (ORIGIN, 10, head(10).root)
    );
    assert_eq!(key.parse::<VerifierKey>().unwrap(), *signer.verifier_key());
}
