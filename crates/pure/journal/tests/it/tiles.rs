//! Tiles: storing, rebuilding and naming them.

use bursar_journal::hash::Hash;
use bursar_journal::merkle::{
    Edge, prove_consistency, prove_inclusion, verify_consistency, verify_inclusion,
};
use bursar_journal::tile::{Builder, Path, ResumeError, TileId, Tiles, tile_bytes, tile_hashes};
use proptest::prelude::*;

use crate::store::{extend, leaf, ledger};

#[test]
fn a_full_tile_is_returned_with_its_leaves() {
    let (mut builder, mut full) = (Builder::new(), Vec::new());
    for seq in 0..512 {
        builder.push(leaf(seq), &mut full);
        assert_eq!(full.len(), usize::try_from((seq + 1) / 256).unwrap());
    }
    let expected: Vec<Hash> = (256..512).map(leaf).collect();
    assert_eq!(full[1].id, TileId::full(0, 1).unwrap());
    assert_eq!(full[1].hashes, expected);
    assert_eq!(tile_bytes(&full[1].hashes).len(), 8192);

    // The rest is the beginning of level 1: the roots of those two.
    let level1 = builder
        .partial(TileId::in_tree(1, 0, 512).unwrap())
        .unwrap();
    assert_eq!(level1[1], expected.into_iter().collect::<Edge>().root());
}

/// Method: batches of every length up to 400, which begin and end anywhere in a tile, against one leaf
/// at a time.
#[test]
fn leaves_in_batches_give_the_tree_and_the_tiles_of_single_leaves() {
    let (mut single, mut one_by_one) = (Builder::new(), Vec::new());
    let (mut batched, mut in_batches) = (Builder::new(), Vec::new());
    for length in 0..400 {
        let leaves: Vec<Hash> = (batched.size()..).take(length).map(leaf).collect();
        for leaf in &leaves {
            single.push(*leaf, &mut one_by_one);
        }
        batched.extend(leaves, &mut in_batches);
        assert_eq!(batched, single);
    }
    // Both have lower levels first, within a leaf or a batch.
    in_batches.sort_by_key(|tile| tile.id);
    one_by_one.sort_by_key(|tile| tile.id);
    assert_eq!(in_batches, one_by_one);
}

/// 70,000 leaves reach level 2; everything is rebuilt from the store and a short tail.
#[test]
fn three_levels_are_stored_proven_and_rebuilt() {
    let size = 70_000;
    let (builder, stored) = ledger(size);
    let names = stored.names();
    assert_eq!(names.len(), 273 + 1);
    assert!(names.contains(&(0, 272)) && names.contains(&(1, 0)));

    let leaves: Edge = (0..size).map(leaf).collect();
    assert_eq!(builder.root(), leaves.root());
    let mut again = Builder::resume(&stored, 273).unwrap();
    (273 * 256..size).for_each(|seq| again.push(leaf(seq), &mut Vec::new()));
    assert_eq!(again, builder);

    let tiles = builder.over(&stored);
    for at in [0, 255, 256, 65_535, 65_536, 69_887, 69_888, 69_999] {
        stored.reads.set(0);
        let proof = prove_inclusion(&tiles, at, size).unwrap();
        assert!(
            stored.reads.get() <= 3,
            "{} reads for {at}",
            stored.reads.get()
        );
        verify_inclusion(&leaf(at), at, size, &builder.root(), &proof).unwrap();
    }
    for old in [1, 256, 65_536, 65_537, 69_999] {
        let old_root = (0..old).map(leaf).collect::<Edge>().root();
        let proof = prove_consistency(&tiles, old, size).unwrap();
        verify_consistency(old, &old_root, size, &builder.root(), &proof).unwrap();
    }
}

#[test]
fn a_lost_or_damaged_tile_stops_the_restart() {
    let (_, mut stored) = ledger(600);
    assert!(matches!(
        Builder::resume(&stored, 3),
        Err(ResumeError::Read { .. })
    ));
    stored.damage(0, 1, vec![0; 32]);
    assert!(matches!(
        Builder::resume(&stored, 2),
        Err(ResumeError::Width { held: 1, .. })
    ));
    assert!(matches!(
        Builder::resume(&stored, u64::MAX),
        Err(ResumeError::Count { .. })
    ));
    assert_eq!(
        Builder::resume(&stored, 0).unwrap().root(),
        Builder::new().root()
    );
}

#[test]
fn the_reader_serves_older_and_narrower_tiles_but_no_missing_ones() {
    let (builder, stored) = ledger(300);
    let tiles = builder.over(&stored);
    let first = tiles.tile(TileId::in_tree(0, 0, 17).unwrap()).unwrap();
    assert_eq!(first[..17], (0..17).map(leaf).collect::<Vec<_>>());
    let edge = tiles.tile(TileId::in_tree(0, 1, 260).unwrap()).unwrap();
    assert_eq!(edge[..4], (256..260).map(leaf).collect::<Vec<_>>());
    assert!(tiles.tile(TileId::in_tree(0, 1, 301).unwrap()).is_err());
    assert!(tiles.tile(TileId::full(0, 1).unwrap()).is_err());
    assert!(tiles.tile(TileId::full(2, 0).unwrap()).is_err());
}

#[test]
fn the_bytes_of_a_tile_are_whole_hashes() {
    let hashes: Vec<Hash> = (0..256).map(leaf).collect();
    assert_eq!(tile_hashes(&tile_bytes(&hashes)).unwrap(), hashes);
    for size in [0, 1, 31, 33, 257 * 32] {
        assert!(tile_hashes(&vec![0; size]).is_err(), "{size} bytes");
    }
}

#[test]
fn a_tile_has_the_name_that_tlog_tiles_gives_it() {
    let check = |level, index, size, expected: &str| {
        let id = TileId::in_tree(level, index, size).unwrap();
        assert_eq!(id.to_string(), expected);
        assert_eq!(expected.parse(), Ok(Path::Tile(id)));
    };
    check(0, 0, 256, "tile/0/000");
    check(0, 0, 1, "tile/0/000.p/1");
    check(0, 1_234_067, 1 << 40, "tile/0/x001/x234/067");
    check(0, 1_234, 1 << 40, "tile/0/x001/234");
    check(0, 999, 1 << 40, "tile/0/999");
    check(0, 1_000, 1 << 40, "tile/0/x001/000");
    check(1, 0, 17 * 256, "tile/1/000.p/17");
    check(5, 0, 255 << 40, "tile/5/000.p/255");

    let entries = Path::Entries(TileId::in_tree(0, 1_234, 1_234 * 256 + 5).unwrap());
    assert_eq!(entries.to_string(), "tile/entries/x001/234.p/5");
    assert_eq!("tile/entries/x001/234.p/5".parse(), Ok(entries));
}

#[test]
fn every_other_spelling_is_refused() {
    let wrong = [
        "",
        "tile",
        "tile/0",
        "tile/0/",
        "tile/0/0",
        "tile/0/00",
        "tile/0/0000",
        "tile/0/x000/001",
        "tile/0/x001",
        "tile/0/001/234",
        "tile/0/x001x234",
        "tile/0/1234",
        "tile/00/000",
        "tile/+0/000",
        "tile/6/000",
        "tile/-1/000",
        "tile/0/000.p/0",
        "tile/0/000.p/256",
        "tile/0/000.p/007",
        "tile/0/000.p/",
        "tile/0/000.p/1/",
        "tile/0/000.p/1.p/1",
        "/tile/0/000",
        "tile/0/000/",
        "tile/0/../../etc/passwd",
        "tile/0/x018/x446/x744/x073/x709/x551/616",
        "tile/entries/0",
        "tile/8/000",
    ];
    for text in wrong {
        assert!(text.parse::<Path>().is_err(), "{text}");
    }
}

#[test]
fn a_tile_that_no_tree_has_cannot_be_named() {
    assert_eq!(TileId::in_tree(0, 0, 0), None);
    assert_eq!(TileId::in_tree(0, 1, 256), None);
    assert_eq!(TileId::in_tree(1, 0, 255), None);
    assert_eq!(TileId::in_tree(8, 0, u64::MAX), None);
    assert_eq!(TileId::in_tree(u32::MAX, u64::MAX, u64::MAX), None);
    assert_eq!(TileId::full(0, u64::MAX), None);
    assert_eq!(TileId::full(u32::MAX, 0), None);
    assert_eq!(TileId::in_tree(0, 1, 300).unwrap().width(), 44);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// With any number of crashes, tiles and tree are those of an uninterrupted run.
    #[test]
    fn a_builder_resumed_at_any_point_equals_an_uninterrupted_one(
        cuts in prop::collection::vec(0..1500_u64, 0..4),
        size in prop_oneof![1 => Just(0), 9 => 0..1500_u64],
    ) {
        let (straight, straight_stored) = ledger(size);
        let (mut builder, mut stored) = ledger(0);
        let mut cuts: Vec<u64> = cuts.into_iter().filter(|cut| *cut < size).chain([size]).collect();
        cuts.sort_unstable();
        for cut in cuts {
            builder = Builder::resume(&stored, builder.size() / 256).unwrap();
            // The leaves after the full tiles are pushed again, and fill no tile twice.
            extend(&mut builder, &mut stored, cut);
        }
        prop_assert_eq!(builder.root(), straight.root());
        prop_assert_eq!(builder, straight);
        prop_assert_eq!(stored.names(), straight_stored.names());
    }

    #[test]
    fn paths_survive_the_round_trip(level in 0..=5_u32, index in any::<u64>(), size in any::<u64>()) {
        let index = index >> (8 * (level + 1)) >> (index % 40);
        for id in [TileId::full(level, index), TileId::in_tree(level, index, size)].into_iter().flatten() {
            prop_assert_eq!(id.to_string().parse(), Ok(Path::Tile(id)));
        }
        let entries = Path::Entries(TileId::full(0, index).unwrap());
        prop_assert_eq!(entries.to_string().parse(), Ok(entries));
    }
}
