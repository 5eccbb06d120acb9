//! The contract of a store, written once and run against every kind of store.

use bursar_engine::codec::{Blob, Encoded};
use bursar_journal::hash::{Hash, leaf_hash, sha256};
use bursar_journal::record::RECORD_BYTES_MAX;
use bursar_journal::tile::{Builder, FullTile, TileId};
use bursar_ledger::store::memory::MemoryStore;
use bursar_ledger::store::sqlite::SqliteStore;
use bursar_ledger::store::{
    Append, Appended, CHECKPOINT_SPAN, CHECKPOINTS_WHOLE, Error, Store, Term,
};
use tempfile::TempDir;

/// A store that is opened as often as asked.
trait Open {
    type Store: Store;

    fn open(&self) -> Result<Self::Store, Error>;
}

impl Open for MemoryStore {
    type Store = Self;

    fn open(&self) -> Result<Self, Error> {
        Ok(self.clone())
    }
}

/// The directory of a SQLite file, which lives as long as its test.
impl Open for TempDir {
    type Store = SqliteStore;

    fn open(&self) -> Result<SqliteStore, Error> {
        SqliteStore::open(&self.path().join("ledger.db"))
    }
}

macro_rules! contract {
    ($($promise:ident),+ $(,)?) => {
        mod memory {
            $(#[test] fn $promise() { super::$promise(&super::MemoryStore::new()); })+
        }
        mod sqlite {
            $(#[test] fn $promise() { super::$promise(&tempfile::tempdir().unwrap()); })+
        }
    };
}

contract!(
    what_was_appended_is_there_after_a_crash,
    terms_begin_at_the_head_and_rise_by_one,
    two_leaders_in_any_interleaving_give_one_gapless_sequence,
    a_refused_append_writes_nothing,
    records_that_do_not_follow_one_another_are_not_taken,
    an_append_of_nothing_still_checks_who_leads,
    reopening_says_what_is_there_and_goes_on,
    readers_see_commits_as_they_happen_and_page_through_them,
    the_largest_record_and_its_blobs_come_back,
    a_tile_comes_back_when_full_and_its_leaves_before,
    the_newest_checkpoint_that_fits_is_found,
    old_checkpoints_are_thinned_and_new_ones_are_all_kept,
    the_newest_anchor_that_fits_is_found_whole,
    pruning_blanks_what_tiles_cover_and_keeps_the_rest,
    a_blob_outlives_all_but_the_last_record_that_names_it,
    exported_only_rises,
);

fn what_was_appended_is_there_after_a_crash(place: &impl Open) {
    let mut store = place.open().unwrap();
    let term = store.lead().unwrap();
    assert_eq!(store.append(term, &plain(0..3)).unwrap(), Appended::Done);
    drop(store);
    let store = place.open().unwrap();
    assert_eq!(texts(&store), ["record 0", "record 1", "record 2"]);
}

fn terms_begin_at_the_head_and_rise_by_one(place: &impl Open) {
    let mut store = place.open().unwrap();
    let first = store.lead().unwrap();
    assert_eq!(first.head, 0);
    store.append(first, &plain(0..5)).unwrap();
    let second = store.lead().unwrap();
    assert_eq!(
        second,
        Term {
            epoch: first.epoch + 1,
            head: 5
        }
    );
    drop(store);
    let third = place.open().unwrap().lead().unwrap();
    assert_eq!(
        third,
        Term {
            epoch: first.epoch + 2,
            head: 5
        }
    );
}

/// Every sequence of four steps of two leaders, one after the other on the same store, against a
/// model that is a list.
fn two_leaders_in_any_interleaving_give_one_gapless_sequence(place: &impl Open) {
    let mut stores = [place.open().unwrap(), place.open().unwrap()];
    let mut terms = [Term { epoch: 0, head: 0 }; 2];
    let (mut model, mut epoch) = (Vec::new(), 0);
    for steps in 0..256_u32 {
        for step in (0..4).map(|place| steps >> (2 * place) & 3) {
            let who = usize::from(step & 1 != 0);
            if step & 2 == 0 {
                terms[who] = stores[who].lead().unwrap();
                epoch += 1;
                assert_eq!(
                    terms[who],
                    Term {
                        epoch,
                        head: model.len() as u64
                    }
                );
                continue;
            }
            let text = format!("{who} under {}", terms[who].epoch);
            let head = terms[who].head;
            let append = Append {
                records: vec![record(head, text.as_bytes())],
                tiles: vec![],
            };
            let leads = terms[who].epoch == epoch && epoch != 0;
            match stores[who].append(terms[who], &append).unwrap() {
                Appended::Done => {
                    assert!(leads, "only the last to lead appends");
                    model.push(text);
                    terms[who].head += 1;
                }
                Appended::Refused => assert!(!leads, "the last to lead is not refused"),
            }
        }
    }
    assert!(100 < model.len());
    assert_eq!(texts(&stores[0]), model);
    assert_eq!(texts(&stores[1]), model);
}

fn a_refused_append_writes_nothing(place: &impl Open) {
    let mut store = place.open().unwrap();
    let old = store.lead().unwrap();
    let new = store.lead().unwrap();
    let mut append = plain(0..1);
    append.records[0].blobs.push(blob(b"a part"));
    append.tiles.push(tile(0, 0));
    let wrong_head = Term { head: 1, ..new };
    let mut ahead = append.clone();
    ahead.records[0].seq = 1;
    for (term, append) in [(old, &append), (wrong_head, &ahead)] {
        assert_eq!(store.append(term, append).unwrap(), Appended::Refused);
        let reader = store.reader().unwrap();
        assert_eq!(reader.head().unwrap(), 0);
        assert!(reader.records(0, 10).unwrap().is_empty());
        assert_eq!(reader.blob(&sha256(b"a part")).unwrap(), None);
        assert_eq!(reader.full_tile(TileId::full(0, 0).unwrap()).unwrap(), None);
    }
    assert_eq!(store.append(new, &append).unwrap(), Appended::Done);
}

fn records_that_do_not_follow_one_another_are_not_taken(place: &impl Open) {
    let mut store = place.open().unwrap();
    let term = store.lead().unwrap();
    for records in [vec![1], vec![0, 2], vec![0, 0]] {
        let records = records.into_iter().map(|seq| record(seq, b"x")).collect();
        let append = Append {
            records,
            tiles: vec![],
        };
        let error = store.append(term, &append).unwrap_err();
        assert!(matches!(error, Error::OutOfOrder { .. }), "{error}");
        assert_eq!(store.reader().unwrap().head().unwrap(), 0);
    }
}

fn an_append_of_nothing_still_checks_who_leads(place: &impl Open) {
    let mut store = place.open().unwrap();
    let old = store.lead().unwrap();
    assert_eq!(
        store.append(old, &Append::default()).unwrap(),
        Appended::Done
    );
    let new = store.lead().unwrap();
    assert_eq!(
        store.append(old, &Append::default()).unwrap(),
        Appended::Refused
    );
    assert_eq!(
        store.append(new, &Append::default()).unwrap(),
        Appended::Done
    );
    assert_eq!(store.reopen().unwrap(), 0);
}

fn reopening_says_what_is_there_and_goes_on(place: &impl Open) {
    let mut store = place.open().unwrap();
    let term = store.lead().unwrap();
    assert_eq!(store.reopen().unwrap(), 0);
    store.append(term, &plain(0..2)).unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(store.reopen().unwrap(), 2);
    let term = Term { head: 2, ..term };
    assert_eq!(
        store.append(term, &plain(2..4)).unwrap(),
        Appended::Done,
        "the term goes on"
    );
    assert_eq!(
        reader.head().unwrap(),
        4,
        "a reader from before still reads"
    );
    assert_eq!(store.reopen().unwrap(), 4);
}

fn readers_see_commits_as_they_happen_and_page_through_them(place: &impl Open) {
    let mut store = place.open().unwrap();
    let reader = store.reader().unwrap();
    let mut term = store.lead().unwrap();
    assert_eq!(reader.head().unwrap(), 0);
    for head in [1, 4, 9] {
        store.append(term, &plain(term.head..head)).unwrap();
        term.head = head;
        assert_eq!(reader.head().unwrap(), head);
        assert_eq!(texts(&store).len() as u64, head);
    }
    let seqs = |from, max| -> Vec<u64> {
        reader
            .records(from, max)
            .unwrap()
            .iter()
            .map(|kept| kept.seq)
            .collect()
    };
    assert_eq!(seqs(0, 3), [0, 1, 2]);
    assert_eq!(seqs(7, 100), [7, 8]);
    assert!(seqs(9, 100).is_empty() && seqs(0, 0).is_empty());
}

fn the_largest_record_and_its_blobs_come_back(place: &impl Open) {
    let mut store = place.open().unwrap();
    let term = store.lead().unwrap();
    let large = vec![b'x'; RECORD_BYTES_MAX];
    let (one, other) = (vec![7; 3 << 20], vec![]);
    let mut append = Append {
        records: vec![record(0, &large)],
        tiles: vec![],
    };
    append.records[0].blobs = vec![blob(&one), blob(&other)];
    store.append(term, &append).unwrap();
    drop(store);
    let reader = place.open().unwrap().reader().unwrap();
    assert_eq!(
        reader.records(0, 1).unwrap()[0].bytes.as_ref().unwrap(),
        &large
    );
    assert_eq!(reader.blob(&sha256(&one)).unwrap().unwrap(), one);
    assert_eq!(reader.blob(&sha256(&other)).unwrap().unwrap(), other);
    assert_eq!(reader.blob(&sha256(b"never")).unwrap(), None);
}

fn a_tile_comes_back_when_full_and_its_leaves_before(place: &impl Open) {
    let mut store = place.open().unwrap();
    let mut ledger = Growing::new(&mut store);
    let leaves: Vec<Hash> = (0..600)
        .map(|seq| leaf_hash(text(seq).as_bytes()))
        .collect();
    let id = |index| TileId::full(0, index).unwrap();
    ledger.grow(&mut store, 100);
    store.put_checkpoint(100, "note").unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.full_tile(id(0)).unwrap(), None);
    assert_eq!(reader.leaves(0).unwrap(), leaves[..100]);
    ledger.grow(&mut store, 600);
    assert_eq!(reader.full_tile(id(0)).unwrap().unwrap(), leaves[..256]);
    assert_eq!(reader.full_tile(id(1)).unwrap().unwrap(), leaves[256..512]);
    assert_eq!(reader.leaves(1).unwrap(), leaves[256..512]);
    assert!(
        reader.leaves(2).unwrap().is_empty(),
        "no checkpoint covers any of them"
    );
    store.put_checkpoint(600, "note").unwrap();
    assert_eq!(reader.leaves(2).unwrap(), leaves[512..]);
    assert_eq!(
        reader.leaves(0).unwrap(),
        leaves[..256],
        "a full tile never changes"
    );
    assert_eq!(reader.full_tile(id(2)).unwrap(), None);
}

fn the_newest_checkpoint_that_fits_is_found(place: &impl Open) {
    let mut store = place.open().unwrap();
    Growing::new(&mut store).grow(&mut store, 20);
    for (size, note) in [
        (3, "three"),
        (20, "twenty"),
        (7, "seven"),
        (7, "seven again"),
    ] {
        store.put_checkpoint(size, note).unwrap();
    }
    let reader = store.reader().unwrap();
    let newest = |size| reader.checkpoint(size).unwrap();
    assert_eq!(newest(2), None);
    assert_eq!(newest(3).unwrap(), "three");
    assert_eq!(newest(19).unwrap(), "seven again");
    assert_eq!(newest(u64::MAX >> 1).unwrap(), "twenty");
    let all = reader.checkpoints().unwrap();
    let expected = [(3, "three"), (7, "seven again"), (20, "twenty")];
    assert_eq!(all, expected.map(|(size, note)| (size, note.to_owned())));
}

/// Method: against the rule itself, said over all sizes at once.
fn old_checkpoints_are_thinned_and_new_ones_are_all_kept(place: &impl Open) {
    let mut store = place.open().unwrap();
    let whole = u64::from(CHECKPOINTS_WHOLE);
    let sizes: Vec<u64> = (1..=whole + 30).map(|number| number * 1_000).collect();
    for size in &sizes {
        store.put_checkpoint(*size, "note").unwrap();
    }
    let is_last = |size: u64| (size + 1_000) / CHECKPOINT_SPAN != size / CHECKPOINT_SPAN;
    let expected: Vec<u64> = sizes
        .into_iter()
        .filter(|size| 30_000 < *size || is_last(*size))
        .collect();
    let kept = store.reader().unwrap().checkpoints().unwrap();
    let kept: Vec<u64> = kept.into_iter().map(|(size, _)| size).collect();
    assert_eq!(kept, expected);
    assert!(kept.len() < usize::from(CHECKPOINTS_WHOLE) + 10);
}

fn the_newest_anchor_that_fits_is_found_whole(place: &impl Open) {
    let mut store = place.open().unwrap();
    // Longer than a part, and with characters that a part must not be cut inside.
    let long: String = "größe\n".repeat(400_000);
    store.put_anchor(10, "ten\n").unwrap();
    store.put_anchor(30, "gone\n").unwrap();
    store.put_anchor(30, &long).unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.anchor(9).unwrap(), None);
    assert_eq!(reader.anchor(29).unwrap(), Some((10, "ten\n".to_owned())));
    assert!(reader.anchor(30).unwrap() == Some((30, long)));
    assert_eq!(reader.anchors().unwrap(), [10, 30]);
}

fn pruning_blanks_what_tiles_cover_and_keeps_the_rest(place: &impl Open) {
    let mut store = place.open().unwrap();
    let mut ledger = Growing::new(&mut store);
    ledger.grow(&mut store, 600);
    store.put_checkpoint(600, "note").unwrap();
    store.put_anchor(600, "lines\n").unwrap();
    assert_eq!(store.prune(100).unwrap(), 100);
    assert_eq!(store.prune(100).unwrap(), 0);
    assert_eq!(
        store.prune(10_000).unwrap(),
        412,
        "the last 88 leaves are in no full tile"
    );
    let reader = store.reader().unwrap();
    for kept in reader.records(0, 1_000).unwrap() {
        let expected = (512 <= kept.seq).then(|| text(kept.seq).into_bytes());
        assert_eq!(kept.bytes, expected, "record {}", kept.seq);
    }
    assert_eq!(reader.head().unwrap(), 600);
    assert_eq!(reader.leaves(1).unwrap().len(), 256);
    assert_eq!(reader.checkpoints().unwrap().len(), 1);
    assert_eq!(reader.anchors().unwrap(), [600]);
    ledger.grow(&mut store, 700);
    assert_eq!(reader.head().unwrap(), 700);
}

fn a_blob_outlives_all_but_the_last_record_that_names_it(place: &impl Open) {
    let mut store = place.open().unwrap();
    let mut ledger = Growing::new(&mut store);
    ledger.blobs = vec![
        (1, b"once".to_vec()),
        (2, b"twice".to_vec()),
        (300, b"twice".to_vec()),
    ];
    ledger.grow(&mut store, 600);
    let reader = store.reader().unwrap();
    let is_there = |bytes| reader.blob(&sha256(bytes)).unwrap().is_some();
    store.prune(256).unwrap();
    assert!(!is_there(b"once") && is_there(b"twice"));
    store.prune(512).unwrap();
    assert!(!is_there(b"twice"));
}

fn exported_only_rises(place: &impl Open) {
    let mut store = place.open().unwrap();
    let reader = store.reader().unwrap();
    assert_eq!(reader.exported().unwrap(), 0);
    for (noted, expected) in [(5, 5), (3, 5), (9, 9)] {
        store.note_exported(noted).unwrap();
        assert_eq!(reader.exported().unwrap(), expected);
    }
}

/// A ledger of plain records that keeps its tiles.
struct Growing {
    term: Term,
    builder: Builder,
    blobs: Vec<(u64, Vec<u8>)>,
}

impl Growing {
    fn new(store: &mut impl Store) -> Self {
        Self {
            term: store.lead().unwrap(),
            builder: Builder::new(),
            blobs: Vec::new(),
        }
    }

    fn grow(&mut self, store: &mut impl Store, head: u64) {
        let mut append = plain(self.term.head..head);
        for record in &mut append.records {
            self.builder
                .push(leaf_hash(&record.bytes), &mut append.tiles);
            let blobs = self.blobs.iter().filter(|(seq, _)| *seq == record.seq);
            record.blobs.extend(blobs.map(|(_, bytes)| blob(bytes)));
        }
        assert_eq!(store.append(self.term, &append).unwrap(), Appended::Done);
        self.term.head = head;
    }
}

fn text(seq: u64) -> String {
    format!("record {seq}")
}

fn record(seq: u64, bytes: &[u8]) -> Encoded {
    Encoded {
        seq,
        bytes: bytes.to_vec(),
        blobs: Vec::new(),
    }
}

fn blob(bytes: &[u8]) -> Blob {
    Blob {
        sha256: sha256(bytes),
        bytes: bytes.to_vec(),
    }
}

fn tile(level: u32, index: u64) -> FullTile {
    let id = TileId::full(level, index).unwrap();
    FullTile {
        id,
        hashes: vec![sha256(b"a leaf"); 256],
    }
}

fn plain(seqs: std::ops::Range<u64>) -> Append {
    let records = seqs.map(|seq| record(seq, text(seq).as_bytes())).collect();
    Append {
        records,
        tiles: Vec::new(),
    }
}

fn texts(store: &impl Store) -> Vec<String> {
    let kept = store.reader().unwrap().records(0, usize::MAX).unwrap();
    let text = |bytes: Option<Vec<u8>>| String::from_utf8(bytes.unwrap()).unwrap();
    kept.into_iter().map(|kept| text(kept.bytes)).collect()
}
