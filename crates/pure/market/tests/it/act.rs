//! The order of writes: the sum of limits stays within capacity after each single one.

use bursar_market::act::{Move, Write, decreases, increases};

use crate::random::Random;

fn change(id: &str, effective_milli: u64, wanted_milli: u64) -> Move {
    Move {
        id: id.to_owned(),
        effective_milli,
        wanted_milli,
        is_unlimited: false,
    }
}

fn texts(writes: &[Write]) -> Vec<String> {
    let text = |write: &Write| format!("{} {}", write.id, write.milli);
    writes.iter().map(text).collect()
}

#[test]
fn decreases_come_biggest_first_and_increases_by_id() {
    let moves = [
        change("a", 100, 300),
        change("b", 300, 200),
        change("c", 500, 200),
        change("d", 100, 150),
        change("e", 200, 100),
    ];
    assert_eq!(texts(&decreases(&moves, 1200)), ["c 200", "b 200", "e 100"]);
    let read_back = [
        change("a", 100, 300),
        change("b", 200, 200),
        change("c", 200, 200),
        change("d", 100, 150),
        change("e", 100, 100),
    ];
    assert_eq!(texts(&increases(&read_back, 1200, 1)), ["a 300", "d 150"]);
    assert_eq!(texts(&increases(&read_back, 925, 1)), ["a 300", "d 125"]);
    assert_eq!(
        texts(&increases(&read_back, 925, 10)),
        ["a 300", "d 120"],
        "in whole quanta"
    );
    assert_eq!(
        texts(&increases(&read_back, 700, 1)),
        [""; 0],
        "nothing is free"
    );
}

#[test]
fn small_changes_are_skipped_but_not_decreases_while_over_capacity() {
    for (from, to, is_written) in [
        (100, 91, false),
        (100, 90, true),
        (100, 109, false),
        (100, 110, true),
        (1000, 951, false),
        (1000, 950, true),
        (1000, 1049, false),
        (1000, 1050, true),
        (333, 317, false),
        (333, 316, true),
    ] {
        let moves = [change("a", from, to)];
        let both = [decreases(&moves, 5000), increases(&moves, 5000, 1)].concat();
        assert_eq!(!both.is_empty(), is_written, "{from} → {to}");
    }
    assert_eq!(texts(&decreases(&[change("a", 1000, 999)], 999)), ["a 999"]);
    assert_eq!(
        texts(&increases(&[change("a", 1000, 1001)], 9999, 1)),
        [""; 0]
    );
}

#[test]
fn small_decreases_are_written_for_an_increase_that_lacks_room() {
    let mut moves = vec![
        change("a", 108, 100),
        change("b", 109, 100),
        change("c", 104, 100),
        change("z", 90, 100),
    ];
    // There is enough room, and an increase too small for a write needs none.
    assert_eq!(texts(&decreases(&moves, 421)), [""; 0]);
    let last = moves.len() - 1;
    moves[last] = change("z", 95, 100);
    assert_eq!(texts(&decreases(&moves, 416)), [""; 0]);
    moves[last] = change("z", 90, 100);
    assert_eq!(
        texts(&decreases(&moves, 413)),
        ["b 100"],
        "no more than it takes"
    );
    assert_eq!(texts(&decreases(&moves, 411)), ["b 100", "a 100"]);
}

#[test]
fn a_pod_without_a_limit_gets_one_first() {
    let unlimited = Move {
        is_unlimited: true,
        ..change("b", 1000, 1000)
    };
    let moves = [change("a", 500, 100), unlimited];
    assert_eq!(texts(&decreases(&moves, 5000)), ["b 1000", "a 100"]);
}

/// Method: random moves, each write randomly taken or refused; after each one the sum is at most the
/// larger of capacity and the sum before.
#[test]
fn no_write_raises_the_sum_above_capacity_or_the_old_sum() {
    let mut random = Random(80);
    for _ in 0..5_000 {
        let mut moves: Vec<Move> = (0..random.below(8))
            .map(|number| change(&format!("p{number}"), random.below(600), random.below(600)))
            .collect();
        let capacity = random.below(3000);
        let quantum = random.pick(&[1, 10]);
        let sum = |moves: &[Move]| {
            moves
                .iter()
                .map(|change| change.effective_milli)
                .sum::<u64>()
        };
        let most = capacity.max(sum(&moves));
        let mut drop_last = u64::MAX;
        for write in decreases(&moves, capacity) {
            let change = moves
                .iter_mut()
                .find(|change| change.id == write.id)
                .unwrap();
            let drop = change.effective_milli - write.milli;
            assert!(0 < drop && drop <= drop_last);
            drop_last = drop;
            if !random.once_in(4) {
                change.effective_milli = write.milli;
            }
        }
        for write in increases(&moves, capacity, quantum) {
            let change = moves
                .iter_mut()
                .find(|change| change.id == write.id)
                .unwrap();
            assert!(change.effective_milli < write.milli && write.milli <= change.wanted_milli);
            if !random.once_in(4) {
                change.effective_milli = write.milli;
            }
            assert!(sum(&moves) <= most);
        }
    }
    let absurd = [
        change("a", u64::MAX, 0),
        change("b", u64::MAX, 1),
        change("c", 0, u64::MAX),
    ];
    assert_eq!(decreases(&absurd, u64::MAX).len(), 2);
    assert!(increases(&absurd, u64::MAX, u64::MAX).is_empty());
}
