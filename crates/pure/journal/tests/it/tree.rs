//! The tree, against the vectors of Certificate Transparency and against ct-merkle.

use bursar_journal::hash::{Hash, leaf_hash, sha256};
use bursar_journal::merkle::{
    Edge, EdgeParts, ProveError, VerifyError, prove_consistency, prove_inclusion,
    verify_consistency, verify_inclusion,
};
use bursar_journal::tile::Builder;
use ct_merkle::mem_backed_tree::MemoryBackedTree;
use proptest::prelude::*;
use sha2::Sha256;

use crate::store::{NoTiles, Stored, extend, leaf, ledger, record};

/// The leaves that RFC 6962's implementations share, and the root after each.
const VECTORS: [(&[u8], &str); 8] = [
    (
        b"",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
    ),
    (
        b"\x00",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
    ),
    (
        b"\x10",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
    ),
    (
        b"\x20\x21",
        "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
    ),
    (
        b"\x30\x31",
        "4e3bbb1f7b478dcfe71fb631631519a3bca12c9aefca1612bfce4c13a86264d4",
    ),
    (
        b"@ABC",
        "76e67dadbcdf1e10e1b74ddc608abd2f98dfb16fbce75277b5232a127f2087ef",
    ),
    (
        b"PQRSTUVW",
        "ddb89be403809e325750d3d263cd78929c2942b7942a34b77e122c9594a74c8c",
    ),
    (
        b"`abcdefghijklmno",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ),
];

fn vectors() -> Builder {
    let (mut builder, mut full) = (Builder::new(), Vec::new());
    for (bytes, root) in VECTORS {
        builder.push(leaf_hash(bytes), &mut full);
        assert_eq!(
            builder.root().to_string(),
            root,
            "after {} leaves",
            builder.size()
        );
    }
    builder
}

fn texts(hashes: &[Hash]) -> Vec<String> {
    hashes.iter().map(Hash::to_string).collect()
}

#[test]
fn the_published_trees_have_the_published_roots_and_proofs() {
    let builder = vectors();
    let tiles = builder.over(&NoTiles);
    assert_eq!(
        texts(&prove_inclusion(&tiles, 0, 8).unwrap()),
        [
            "96a296d224f285c67bee93c30f8a309157f0daa35dc5b87e410b78630a09cfc7",
            "5f083f0a1a33ca076a95279832580db3e0ef4584bdff1f54c8a360f50de3031e",
            "6b47aaf29ee3c2af9af889bc1fb9254dabd31177f16232dd6aab035ca39bf6e4",
        ]
    );
    assert_eq!(
        texts(&prove_consistency(&tiles, 6, 8).unwrap()),
        [
            "0ebc5d3437fbe2db158b9f126a1d118e308181031d0a949f8dededebc558ef6a",
            "ca854ea128ed050b41b35ffc1b87b8eb2bde461e9e3b5596ece6b9d5975a0ae0",
            "d37ee418976dd95753c1c73862b9398fa2a2cf9b4ff0fdfe8b30cd95209614b7",
        ]
    );
}

#[test]
fn the_empty_tree_has_the_hash_of_nothing() {
    assert_eq!(Edge::new().root(), sha256(b""));
    assert_eq!(Builder::new().root(), sha256(b""));
}

/// Interesting indexes in `0..size`: both ends, the edges of tiles, and some between.
fn indexes(size: u64) -> Vec<u64> {
    let fixed = [0, 1, 127, 128, 255, 256, 257, 511, 512, size / 3, size / 2];
    let mut places: Vec<u64> = fixed.into_iter().chain([size.saturating_sub(1)]).collect();
    places.retain(|place| *place < size);
    places.sort_unstable();
    places.dedup();
    places
}

/// Method: our tree and that of the oracle grow side by side.
#[test]
fn roots_and_proofs_are_those_of_ct_merkle_at_every_size_to_600() {
    let mut oracle = MemoryBackedTree::<Sha256, Vec<u8>>::new();
    let (mut builder, mut stored, mut edge) = (Builder::new(), Stored::default(), Edge::new());
    let mut roots = vec![edge.root()];
    for size in 1..=600_u64 {
        oracle.push(record(size - 1));
        extend(&mut builder, &mut stored, size);
        edge.push(leaf(size - 1));
        let root = builder.root();
        assert_eq!(
            root.0.as_slice(),
            oracle.root().as_bytes().as_slice(),
            "root of {size}"
        );
        assert_eq!(edge, *builder.edge());
        roots.push(root);

        let tiles = builder.over(&stored);
        for place in indexes(size) {
            let proof = prove_inclusion(&tiles, place, size).unwrap();
            let expected = oracle.prove_inclusion(usize::try_from(place).unwrap());
            assert_eq!(flat(&proof), expected.as_bytes(), "leaf {place} of {size}");
            verify_inclusion(&leaf(place), place, size, &root, &proof).unwrap();
        }
        for old in indexes(size).into_iter().skip(1) {
            let proof = prove_consistency(&tiles, old, size).unwrap();
            let expected = oracle.prove_consistency(usize::try_from(size - old).unwrap());
            assert_eq!(flat(&proof), expected.as_bytes(), "{old} to {size}");
            let old_root = roots[usize::try_from(old).unwrap()];
            verify_consistency(old, &old_root, size, &root, &proof).unwrap();
        }
    }
}

#[test]
fn every_pair_of_a_small_tree_is_proven_from_a_larger_one() {
    let (builder, stored) = ledger(300);
    let tiles = builder.over(&stored);
    let roots: Vec<Hash> = (0..=40)
        .map(|size| (0..size).map(leaf).collect::<Edge>().root())
        .collect();
    for (size, root) in (0..).zip(&roots) {
        for place in 0..size {
            let proof = prove_inclusion(&tiles, place, size).unwrap();
            verify_inclusion(&leaf(place), place, size, root, &proof).unwrap();
        }
        for (old, old_root) in (0..=size).zip(&roots) {
            let proof = prove_consistency(&tiles, old, size).unwrap();
            verify_consistency(old, old_root, size, root, &proof).unwrap();
        }
    }
}

#[test]
fn the_empty_tree_and_equal_sizes_accept_only_an_empty_proof() {
    let (builder, _) = ledger(5);
    let (empty, root, stray) = (sha256(b""), builder.root(), [leaf(0)]);
    assert_eq!(verify_consistency(0, &empty, 5, &root, &[]), Ok(()));
    assert_eq!(verify_consistency(5, &root, 5, &root, &[]), Ok(()));
    assert!(verify_consistency(0, &root, 5, &root, &[]).is_err());
    assert!(verify_consistency(5, &empty, 5, &root, &[]).is_err());
    assert!(verify_consistency(0, &empty, 5, &root, &stray).is_err());
    assert!(verify_consistency(5, &root, 5, &root, &stray).is_err());
    assert_eq!(
        verify_consistency(6, &root, 5, &root, &[]),
        Err(VerifyError::Order {
            old_size: 6,
            new_size: 5
        })
    );
}

#[test]
fn a_leaf_outside_of_the_tree_is_refused() {
    let (builder, stored) = ledger(5);
    let tiles = builder.over(&stored);
    assert!(matches!(
        prove_inclusion(&tiles, 5, 5),
        Err(ProveError::Outside { index: 5, size: 5 })
    ));
    assert!(matches!(
        prove_inclusion(&tiles, 0, 0),
        Err(ProveError::Outside { .. })
    ));
    assert!(matches!(
        prove_consistency(&tiles, 5, 4),
        Err(ProveError::Order { .. })
    ));
    // A size that the ledger has not reached is a read error, not a wrong proof.
    assert!(matches!(
        prove_inclusion(&tiles, 1, 6),
        Err(ProveError::Read { .. })
    ));
    assert!(matches!(
        prove_inclusion(&builder.over(&NoTiles), 1, 6),
        Err(ProveError::Short { .. })
    ));
}

#[test]
fn an_edge_is_stored_as_size_and_hashes_and_refused_when_they_disagree() {
    let edge: Edge = (0..13).map(leaf).collect();
    assert_eq!(edge.hashes().len(), 3, "13 leaves are 8 + 4 + 1");
    let text = serde_json::to_string(&edge).unwrap();
    let mut again: Edge = serde_json::from_str(&text).unwrap();
    assert_eq!(again, edge);
    again.push(leaf(13));
    assert_eq!(again, (0..14).map(leaf).collect());

    let parts = EdgeParts::from(edge);
    for size in [12, 15, 0] {
        assert!(
            Edge::try_from(EdgeParts {
                size,
                ..parts.clone()
            })
            .is_err(),
            "{size}"
        );
    }
    let huge = EdgeParts {
        size: u64::MAX,
        hashes: vec![leaf(0); 64],
    };
    assert!(Edge::try_from(huge).is_err());
}

fn flat(hashes: &[Hash]) -> Vec<u8> {
    hashes.iter().flat_map(|hash| hash.0).collect()
}

/// Flips one bit of a list of hashes.
fn flipped(hashes: &[Hash], bit: usize) -> Vec<Hash> {
    let mut flipped = hashes.to_vec();
    flipped[bit / 256].0[bit % 256 / 8] ^= 1 << (bit % 8);
    flipped
}

#[test]
fn every_flipped_bit_of_a_proof_is_rejected() {
    let (builder, stored) = ledger(300);
    let tiles = builder.over(&stored);
    let root = builder.root();
    let old_root = (0..77).map(leaf).collect::<Edge>().root();

    let inclusion = prove_inclusion(&tiles, 77, 300).unwrap();
    for bit in 0..inclusion.len() * 256 {
        let changed = flipped(&inclusion, bit);
        assert!(
            verify_inclusion(&leaf(77), 77, 300, &root, &changed).is_err(),
            "bit {bit}"
        );
    }
    let consistency = prove_consistency(&tiles, 77, 300).unwrap();
    for bit in 0..consistency.len() * 256 {
        let changed = flipped(&consistency, bit);
        assert!(
            verify_consistency(77, &old_root, 300, &root, &changed).is_err(),
            "bit {bit}"
        );
    }
    for bit in 0..256 {
        let [leaf, root, old] = [leaf(77), root, old_root].map(|hash| flipped(&[hash], bit)[0]);
        assert!(verify_inclusion(&leaf, 77, 300, &builder.root(), &inclusion).is_err());
        assert!(verify_inclusion(&crate::store::leaf(77), 77, 300, &root, &inclusion).is_err());
        assert!(verify_consistency(77, &old, 300, &builder.root(), &consistency).is_err());
        assert!(verify_consistency(77, &old_root, 300, &root, &consistency).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// A proof for one index or pair of sizes does not hold for another, nor when cut or extended.
    #[test]
    fn a_proof_proves_its_own_statement_only(size in 2..600_u64, at in 0..600_u64, other in 0..600_u64) {
        let (at, other) = (at % size, other % size);
        let (builder, stored) = ledger(size);
        let (tiles, root) = (builder.over(&stored), builder.root());
        let proof = prove_inclusion(&tiles, at, size).unwrap();
        let longer = [proof.as_slice(), &[leaf(0)]].concat();
        let shorter = &proof[..proof.len() - 1];
        prop_assert!(verify_inclusion(&leaf(at), at, size, &root, &longer).is_err());
        prop_assert!(verify_inclusion(&leaf(at), at, size, &root, shorter).is_err());
        if other != at {
            prop_assert!(verify_inclusion(&leaf(other), at, size, &root, &proof).is_err());
            prop_assert!(verify_inclusion(&leaf(at), other, size, &root, &proof).is_err());
        }
        prop_assume!(at != 0);
        let old_root = (0..at).map(leaf).collect::<Edge>().root();
        let proof = prove_consistency(&tiles, at, size).unwrap();
        prop_assert_eq!(verify_consistency(at, &old_root, size, &root, &proof), Ok(()));
        let longer = [proof.as_slice(), &[leaf(0)]].concat();
        let shorter = &proof[..proof.len() - 1];
        prop_assert!(verify_consistency(at, &old_root, size, &root, &longer).is_err());
        prop_assert!(verify_consistency(at, &old_root, size, &root, shorter).is_err());
        if other != at && other != 0 {
            let other_root = (0..other).map(leaf).collect::<Edge>().root();
            prop_assert!(verify_consistency(at, &other_root, size, &root, &proof).is_err());
        }
    }
}
