//! The map that cannot be iterated behaves like any map.

use std::collections::BTreeMap;

use bursar_units::Index;
use bursar_units::index::Positions;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn an_index_answers_as_a_map_does(steps in prop::collection::vec((0..3_u8, 0..40_u32, any::<u8>()), 0..200)) {
        let (mut index, mut map) = (Index::default(), BTreeMap::new());
        for (what, key, value) in steps {
            match what {
                0 => prop_assert_eq!(index.insert(key, value), map.insert(key, value)),
                1 => prop_assert_eq!(index.remove(&key), map.remove(&key)),
                _ => {
                    if let Some(present) = index.get_mut(&key) {
                        *present = value;
                    }
                    if let Some(present) = map.get_mut(&key) {
                        *present = value;
                    }
                }
            }
            prop_assert_eq!(index.get(&key), map.get(&key));
        }
    }

    #[test]
    fn positions_find_each_key(keys in prop::collection::btree_set("[a-z]{1,4}", 0..100), gone in any::<prop::sample::Index>()) {
        let keys: Vec<String> = keys.into_iter().collect();
        let key_at = |position: u32| keys.get(usize::try_from(position).ok()?).map(String::as_str);
        let mut positions = Positions::default();
        for (position, key) in (0..).zip(&keys) {
            positions.insert(key, position, key_at);
        }
        let gone = gone.index(keys.len().max(1));
        for (position, key) in (0..).zip(&keys) {
            prop_assert_eq!(positions.find(key, key_at), Some(position));
        }
        if let Some(key) = keys.get(gone) {
            positions.remove(key, u32::try_from(gone).unwrap());
            prop_assert_eq!(positions.find(key, key_at), None);
        }
    }
}
