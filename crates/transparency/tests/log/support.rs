//! A log in memory.

use aws_lc_rs::signature::Ed25519KeyPair;
use wardgate_transparency::{
    Checkpoint, CompactTree, Cosigner, Error, Hash, Node, Signer, TileId, TileSet, TlogProof,
    TreeHead, TrustPolicy, consistency_path, inclusion_path, leaf_hash, tiles_of_size,
};

pub(crate) const ORIGIN: &str = "example.com/log";

pub(crate) fn entry(index: u64) -> Vec<u8> {
    format!("entry {index}").into_bytes()
}

pub(crate) fn leaf(index: u64) -> Hash {
    leaf_hash(&entry(index))
}

pub(crate) fn head(size: u64) -> TreeHead {
    tree(size, |_, _| ()).head()
}

pub(crate) fn tree(size: u64, mut on_node: impl FnMut(Node, &Hash)) -> CompactTree {
    let mut tree = CompactTree::default();
    for index in 0..size {
        tree.append(leaf(index), &mut on_node);
    }
    tree
}

/// Returns the tiles of a tree as a log stores them: leaf hashes, and the roots of full tiles.
pub(crate) fn tiles(size: u64) -> TileSet {
    tiles_with_ids(size, tiles_of_size(size))
}

/// Those of the tiles of a tree that have one of these ids.
pub(crate) fn tiles_with_ids(size: u64, ids: impl IntoIterator<Item = TileId>) -> TileSet {
    let mut levels: Vec<Vec<Hash>> = vec![(0..size).map(leaf).collect()];
    tree(size, |node, hash| {
        if node.height % 8 == 0 {
            let level = usize::from(node.height / 8);
            levels.resize_with(levels.len().max(level + 1), Vec::new);
            assert_eq!(levels[level].len() as u64, node.index);
            levels[level].push(*hash);
        }
    });
    let mut tiles = TileSet::default();
    for id in ids {
        let range =
            usize::try_from(id.range().start).unwrap()..usize::try_from(id.range().end).unwrap();
        tiles
            .insert(id, levels[usize::from(id.level())][range].as_flattened())
            .unwrap();
    }
    tiles
}

pub(crate) fn inclusion(index: u64, size: u64, tiles: &TileSet) -> Vec<Hash> {
    inclusion_path(index, size, |node| tiles.node(node)).unwrap()
}

pub(crate) fn consistency(old: u64, new: u64, tiles: &TileSet) -> Vec<Hash> {
    consistency_path(old, new, |node| tiles.node(node)).unwrap()
}

pub(crate) fn key(seed: u8) -> Vec<u8> {
    let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
    pair.to_pkcs8().unwrap().as_ref().to_vec()
}

pub(crate) fn signer() -> Signer {
    Signer::from_pkcs8(ORIGIN, &key(1)).unwrap()
}

pub(crate) fn cosigner() -> Cosigner {
    Cosigner::from_pkcs8("witness.example/w1", &key(2)).unwrap()
}

pub(crate) fn proof(index: u64, size: u64, signer: &Signer) -> TlogProof {
    let head = head(size);
    let checkpoint = Checkpoint {
        origin: ORIGIN.to_owned(),
        head,
    };
    TlogProof {
        extra: Some(entry(index)),
        index,
        path: inclusion(index, size, &tiles(size)),
        checkpoint: signer.sign(&checkpoint.to_string()).unwrap(),
    }
}

/// Parses a bundle and verifies it with its extra data, as a client of a log does.
pub(crate) fn verify(bundle: &str, signer: &Signer) -> Result<Checkpoint, Error> {
    let proof: TlogProof = bundle.parse()?;
    let leaf = leaf_hash(proof.extra.as_deref().unwrap_or_default());
    proof.verify(&leaf, &TrustPolicy::of_log(signer.verifier_key().clone()))
}
