//! Hashes and their only spelling.

use bursar_journal::hash::{Hash, leaf_hash, node_hash, sha256};

#[test]
fn leaves_and_nodes_are_hashed_apart() {
    // The empty leaf and the empty tree are published in RFC 6962's test data.
    let empty_leaf = "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d";
    let empty_tree = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    assert_eq!(leaf_hash(b"").to_string(), empty_leaf);
    assert_eq!(sha256(b"").to_string(), empty_tree);

    let (left, right) = (Hash([1; 32]), Hash([2; 32]));
    let joined = [[0x01].as_slice(), &left.0, &right.0].concat();
    assert_eq!(node_hash(&left, &right), sha256(&joined));
    assert_ne!(
        node_hash(&left, &right),
        leaf_hash(&[left.0, right.0].concat())
    );
}

#[test]
fn a_hash_has_one_spelling() {
    let hash = sha256(b"one");
    let text = hash.to_string();
    assert_eq!(text.parse(), Ok(hash));
    assert_eq!(hash.short(), format!("{}…", &text[..4]));
    assert_eq!(serde_json::to_string(&hash).unwrap(), format!("\"{text}\""));
    assert_eq!(
        serde_json::from_str::<Hash>(&format!("\"{text}\"")).unwrap(),
        hash
    );

    let wrong = [
        text.to_uppercase(),
        text[1..].to_owned(),
        format!("{text}0"),
        format!("{text}00"),
        format!("0x{}", &text[2..]),
        format!("+1{}", &text[2..]),
        String::new(),
    ];
    for wrong in wrong {
        assert!(wrong.parse::<Hash>().is_err(), "{wrong}");
    }
}
