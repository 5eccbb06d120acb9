//! No input panics. The functions called here are the fuzz targets of the crate.

use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey, VerifierKey};
use bursar_journal::hash::Hash;
use bursar_journal::merkle::{
    inclusion_root, prove_consistency, prove_inclusion, verify_consistency, verify_inclusion,
};
use bursar_journal::proof::Proof;
use bursar_journal::record::blob_refs;
use bursar_journal::tile::{Builder, Path, TileId, tile_hashes};
use proptest::prelude::*;

use crate::store::NoTiles;

/// Sizes at which arithmetic may overflow, and any others.
fn size() -> impl Strategy<Value = u64> {
    prop_oneof![
        0..20_u64,
        (0..64_u32, 0..3_u64).prop_map(|(bit, near)| (1 << bit) + near - 1),
        (u64::MAX - 3)..=u64::MAX,
        any::<u64>(),
    ]
}

fn hash() -> impl Strategy<Value = Hash> {
    any::<[u8; 32]>().prop_map(Hash)
}

/// Valid texts of every kind with a part replaced.
fn mangled() -> impl Strategy<Value = String> {
    let key = SigningKey::from_seed("bursar/x/1".parse().unwrap(), [7; 32]);
    let proof = crate::proofs::proof(&[4, 5]);
    let good = vec![
        proof.to_text().unwrap(),
        proof.checkpoint,
        key.to_private_text(),
        key.verifier().to_string(),
        "tile/0/x001/x234/067.p/17".to_owned(),
    ];
    let piece = prop_oneof![
        any::<String>(),
        prop::sample::select(vec![
            "",
            "+",
            "/",
            "\n\n",
            "— ",
            "x",
            "000",
            "18446744073709551615",
            "\"",
            "[",
            "é"
        ])
        .prop_map(str::to_owned),
    ];
    (
        prop::sample::select(good),
        any::<prop::sample::Index>(),
        0..40_usize,
        piece,
    )
        .prop_map(|(text, at, length, piece)| {
            let start = at.index(text.chars().count() + 1);
            let head: String = text.chars().take(start).collect();
            let tail: String = text.chars().skip(start + length).collect();
            format!("{head}{piece}{tail}")
        })
}

fn read_all(text: &str) {
    drop(blob_refs(text.as_bytes()));
    let key = SigningKey::from_seed("bursar/x/1".parse().unwrap(), [7; 32]).verifier();
    drop(text.parse::<Hash>());
    drop(text.parse::<Name>());
    drop(text.parse::<Path>());
    drop(text.parse::<SigningKey>());
    drop(text.parse::<VerifierKey>());
    drop(Checkpoint::open(text, &key));
    if let Ok(proof) = Proof::parse(text) {
        proof.verify(&key);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_text_is_read_or_refused(text in prop_oneof![any::<String>(), mangled()]) {
        read_all(&text);
    }

    #[test]
    fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..2000)) {
        drop(tile_hashes(&bytes));
    }

    #[test]
    fn any_numbers_are_proven_or_refused(
        (one, two) in (size(), size()),
        level in prop_oneof![0..10_u32, any::<u32>()],
        (left, right) in (hash(), hash()),
        proof in prop::collection::vec(hash(), 0..70),
    ) {
        prop_assert!(verify_inclusion(&left, one, two, &right, &proof).is_err());
        prop_assert!(verify_consistency(one, &left, two, &right, &proof).is_err());
        drop(inclusion_root(&left, one, two, &proof));
        let builder = Builder::new();
        drop(prove_inclusion(&builder.over(&NoTiles), one, two));
        drop(prove_consistency(&builder.over(&NoTiles), one, two));
        if let Some(id) = TileId::in_tree(level, one, two) {
            prop_assert!((1..=256).contains(&id.width()));
        }
    }
}
