//! Signed notes: the form, the signatures, the keys.

use bursar_journal::checkpoint::{
    Checkpoint, Error, KeyError, NOTE_BYTES_MAX, Name, SigningKey, VerifierKey,
};
use bursar_journal::hash::Hash;

const LEDGER: &str = "0198f3c2-0000-7000-8000-000000000000";

/// Created with OpenSSL from the seed 00 01 … 1f, over the root of RFC 6962's eight leaves.
const NOTE: &str = "bursar/0198f3c2-0000-7000-8000-000000000000/1
8
XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=

— bursar/0198f3c2-0000-7000-8000-000000000000/1 PLZOOUC7IGnRerUyOOoueRDbD2OXpj7jx+TX10djPfS9FKByWEGaeOfNnwapGpWTwUU6fTTeWLGzJlL7gklkTF/2nQ0=
";
const PUBLIC: &str = "bursar/0198f3c2-0000-7000-8000-000000000000/1+3cb64e39+AQOhB7/zzhC+HXDdGOdLwJln5NYwm6UNXx3chmQSVTG4";
const PRIVATE: &str = "PRIVATE+KEY+bursar/0198f3c2-0000-7000-8000-000000000000/1+3cb64e39+AQABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f";

fn name() -> Name {
    Name::ledger(LEDGER, 1).unwrap()
}

fn key() -> SigningKey {
    SigningKey::from_seed(
        name(),
        std::array::from_fn(|place| u8::try_from(place).unwrap()),
    )
}

fn checkpoint() -> Checkpoint {
    let root = "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328";
    Checkpoint {
        origin: name(),
        size: 8,
        root: root.parse().unwrap(),
    }
}

#[test]
fn a_note_equals_that_of_openssl_for_the_same_seed() {
    assert_eq!(checkpoint().sign([&key()]), NOTE);
    assert_eq!(
        Checkpoint::open(NOTE, &PUBLIC.parse().unwrap()),
        Ok(checkpoint())
    );
}

#[test]
fn keys_have_the_texts_of_signed_notes() {
    assert_eq!(key().verifier().to_string(), PUBLIC);
    assert_eq!(key().to_private_text(), PRIVATE);
    assert_eq!(PUBLIC.parse(), Ok(key().verifier()));
    for text in [PRIVATE.to_owned(), format!("{PRIVATE}\n")] {
        assert_eq!(
            text.parse::<SigningKey>().unwrap().to_private_text(),
            PRIVATE
        );
    }
    let json = serde_json::to_string(&key().verifier()).unwrap();
    assert_eq!(
        serde_json::from_str::<VerifierKey>(&json).unwrap(),
        key().verifier()
    );

    // Published with the Go package of signed notes.
    let private = "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
    let public = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    assert_eq!(
        private
            .parse::<SigningKey>()
            .unwrap()
            .verifier()
            .to_string(),
        public
    );
}

#[test]
fn a_private_key_is_not_shown_by_debug_output() {
    let shown = format!("{:?}", key());
    assert_eq!(shown, format!("SigningKey({}+3cb64e39)", name()));
}

#[test]
fn a_key_whose_text_was_changed_is_refused() {
    let secret = &PRIVATE[PRIVATE.len() - 44..];
    let cases = [
        (PUBLIC.replace("3cb64e39", "3cb64e38"), "id"),
        (PUBLIC.replace("3cb64e39", "3CB64E39"), "upper-case id"),
        (PUBLIC.replace("/1+", "/2+"), "name"),
        (PUBLIC.replace("AQOh", "AQOi"), "key"),
        (PUBLIC.replace("AQOh", "AgOh"), "type"),
        (PUBLIC.replace("TG4", "TG"), "length"),
        (PUBLIC.replace('+', " "), "separators"),
        (format!("{PUBLIC}\n"), "newline"),
        (String::new(), "nothing"),
    ];
    for (text, what) in cases {
        assert!(text.parse::<VerifierKey>().is_err(), "{what}");
    }
    for text in [
        PUBLIC,
        "",
        "PRIVATE+KEY+",
        &PRIVATE.replace("/1+", "/2+"),
        &PRIVATE.to_lowercase(),
    ] {
        let error = text.parse::<SigningKey>().unwrap_err();
        assert!(
            !error.to_string().contains(secret),
            "an error must not tell the key"
        );
    }
}

#[test]
fn a_weak_key_is_refused() {
    // The neutral element of the curve, y = 1, has small order.
    let text = weak_key_text();
    assert_eq!(text.parse::<VerifierKey>(), Err(KeyError::Weak));
}

fn weak_key_text() -> String {
    let mut bytes = [0; 32];
    bytes[0] = 1;
    let id = bursar_journal::hash::sha256(&[b"weak\n\x01".as_slice(), &bytes].concat());
    format!(
        "weak+{}+AQEAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        &id.to_string()[..8]
    )
}

#[test]
fn names_are_single_words() {
    assert_eq!(name().as_str(), format!("bursar/{LEDGER}/1"));
    assert_eq!(name().short(), "bursar/0198f3c2…/1");
    assert_eq!(
        "ledger-of-our-lab.example/1"
            .parse::<Name>()
            .unwrap()
            .short(),
        "ledger-of-our-lab.example/1"
    );
    for wrong in [
        "",
        "a b",
        "a\nb",
        "a+b",
        "a\u{a0}b",
        "a\u{0}b",
        &"x".repeat(254),
    ] {
        assert_eq!(wrong.parse::<Name>(), Err(KeyError::Name), "{wrong:?}");
    }
}

#[test]
fn during_a_rotation_both_keys_open_the_note() {
    let new = SigningKey::from_seed(name(), [9; 32]);
    let stranger = SigningKey::from_seed(name(), [10; 32]);
    let other_name = SigningKey::from_seed("witness.example/w".parse().unwrap(), [9; 32]);
    let note = checkpoint().sign([&key(), &new]);
    assert_eq!(note.lines().count(), 6);
    for signer in [&key(), &new] {
        assert_eq!(
            Checkpoint::open(&note, &signer.verifier()),
            Ok(checkpoint())
        );
    }
    for signer in [&stranger, &other_name] {
        let opened = Checkpoint::open(&note, &signer.verifier());
        assert!(matches!(opened, Err(Error::Unsigned { .. })), "{opened:?}");
    }
    assert!(matches!(
        Checkpoint::open(&checkpoint().sign([]), &key().verifier()),
        Err(Error::Note { .. })
    ));
}

#[test]
fn one_wrong_signature_by_our_key_makes_the_note_invalid() {
    let other = Checkpoint {
        size: 9,
        ..checkpoint()
    }
    .sign([&key()]);
    let stray = other.lines().last().unwrap();
    let opened = Checkpoint::open(&format!("{NOTE}{stray}\n"), &key().verifier());
    assert!(matches!(opened, Err(Error::Signature { .. })), "{opened:?}");
}

#[test]
fn a_signature_of_an_unknown_type_is_ignored() {
    let note = format!("{NOTE}— witness.example/w AAAAAAAAAAAA\n");
    assert_eq!(Checkpoint::open(&note, &key().verifier()), Ok(checkpoint()));
}

#[test]
fn every_flipped_bit_of_a_note_is_rejected() {
    let verifier = key().verifier();
    for bit in 0..NOTE.len() * 8 {
        let mut bytes = NOTE.as_bytes().to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        // Bytes that are not UTF-8 are no text.
        let Ok(text) = String::from_utf8(bytes) else {
            continue;
        };
        assert!(
            Checkpoint::open(&text, &verifier).is_err(),
            "bit {bit}: {text}"
        );
    }
}

#[test]
fn a_note_in_another_form_is_refused() {
    let verifier = key().verifier();
    let forms = [
        NOTE.trim_end().to_owned(),
        NOTE.replace("\n\n", "\n"),
        NOTE.replace('\n', "\r\n"),
        NOTE.replace("— ", "- "),
        NOTE.replace("— ", "—"),
        format!("{NOTE}\n"),
        format!("{NOTE}what is this\n"),
        format!("{NOTE}— w\u{1} AAAAAAAA\n"),
        format!("\n{NOTE}"),
        format!("{NOTE}{}", "— w AAAAAAAA\n".repeat(NOTE_BYTES_MAX / 14)),
        "\n\n".to_owned(),
    ];
    for form in forms {
        let opened = Checkpoint::open(&form, &verifier);
        assert!(
            matches!(opened, Err(Error::Note { .. } | Error::Signature { .. })),
            "{opened:?}"
        );
    }
}

/// A signed text must also be a checkpoint in its only spelling.
#[test]
fn a_signed_text_that_is_no_checkpoint_is_refused() {
    let root = "XcnaeacGWamtVZy3Ad7ZoqudgjqtL0lgz+Nw7/RgQyg=";
    let good = format!("a\n8\n{root}\n");
    assert!(open_signed(&good).is_ok());
    let wrong = [
        format!("a\n08\n{root}\n"),
        format!("a\n+8\n{root}\n"),
        format!("a\n-8\n{root}\n"),
        format!("a\n18446744073709551616\n{root}\n"),
        format!("a b\n8\n{root}\n"),
        format!("\n8\n{root}\n"),
        format!("a\n8\n{root}\nmore\n"),
        "a\n8\n".to_owned(),
        "a\n8\nAAAA\n".to_owned(),
        format!("a\n8\n{}\n", &root[..43]),
        format!("a\n8\n{}h=\n", &root[..42]),
    ];
    for text in wrong {
        assert!(
            matches!(open_signed(&text), Err(Error::Checkpoint { .. })),
            "{text}"
        );
    }
    let largest = Checkpoint {
        origin: name(),
        size: u64::MAX,
        root: Hash([0xff; 32]),
    };
    assert_eq!(
        Checkpoint::open(&largest.sign([&key()]), &key().verifier()),
        Ok(largest)
    );
}

/// Signs any text with Ed25519 of the same seed.
fn open_signed(text: &str) -> Result<Checkpoint, Error> {
    use base64::Engine as _;
    use ed25519_dalek::Signer as _;
    let plain = ed25519_dalek::SigningKey::from_bytes(&[3; 32]);
    let ours = SigningKey::from_seed("k".parse().unwrap(), [3; 32]);
    let signed = [
        ours.id().0.as_slice(),
        &plain.sign(text.as_bytes()).to_bytes(),
    ]
    .concat();
    let signed = base64::engine::general_purpose::STANDARD.encode(signed);
    Checkpoint::open(&format!("{text}\n— k {signed}\n"), &ours.verifier())
}
