//! No text makes a parser panic, and formatted values are parsed back.

use bursar_units::name::{ID_LENGTH_MAX, OBJECT_NAME_LENGTH_MAX};
use bursar_units::quantity::{self, cpu_milli, format_cpu, format_memory, memory_bytes};
use bursar_units::{BookingId, INTEGER_MAX, Instant, Label, Millis, NameError, ObjectName};
use proptest::prelude::*;

/// Text that is often nearly valid: digits, signs, suffixes and some other characters.
fn nearly() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[0-9]{1,22}",
        2 => prop::sample::select(vec![
            ".", "+", "-", "e", "E", "m", "k", "Ki", "Mi", "Gi", "Ei", "ms", "s", "h", "d", "%", " ",
            "_", ":", "n", "u", "ö", "\u{0}", "\u{a0}", "٣", "*", "/", "=", "7", "8000", "-7abc-8def-",
        ]).prop_map(str::to_owned),
        1 => any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 2_000, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_parsed_or_refused_without_a_panic(text in prop_oneof![nearly(), any::<String>()]) {
        for parse in [cpu_milli, memory_bytes] {
            match parse(&text) {
                Ok(value) => prop_assert!(value <= INTEGER_MAX),
                Err(error) => prop_assert!(error.to_string().chars().count() < 140, "{error}"),
            }
        }
        match text.parse::<Millis>() {
            Ok(length) => prop_assert!(length.ms() <= INTEGER_MAX),
            Err(error) => prop_assert!(error.to_string().chars().count() < 140, "{error}"),
        }
        if let Ok(id) = BookingId::new(&text) {
            prop_assert!(text.is_ascii() && (1..=ID_LENGTH_MAX).contains(&text.len()));
            prop_assert_eq!(id.as_str(), &text);
            let _made_at = id.made_at();
        }
        if let Ok(label) = Label::new(&text) {
            prop_assert!(!text.chars().any(|c| c.is_control() || c.is_whitespace() || "*/,=".contains(c)));
            prop_assert!((1..=ID_LENGTH_MAX).contains(&text.chars().count()));
            prop_assert_eq!(label.to_string(), text.clone());
        }
        if let Ok(name) = ObjectName::new(&text) {
            prop_assert!(text.len() <= OBJECT_NAME_LENGTH_MAX);
            prop_assert_eq!(name.to_string(), text);
        }
    }

    #[test]
    fn formatted_values_are_parsed_back(value in prop_oneof![0..=INTEGER_MAX, 0..5_000_u64, (0..43_u32).prop_map(|n| 1 << n)]) {
        prop_assert_eq!(cpu_milli(&format_cpu(value)), Ok(value));
        prop_assert_eq!(memory_bytes(&format_memory(value)), Ok(value));
        prop_assert_eq!(Millis::from_ms(value).to_string().parse(), Ok(Millis::from_ms(value)));
    }

    /// Method: the exact value is digits·10^(exponent + scale − places), in u128, rounded up.
    #[test]
    fn a_decimal_is_read_exactly_and_rounded_up(
        whole in 0..1_000_000_u64, fraction in "[0-9]{0,6}", exponent in -9..9_i32,
    ) {
        let text = format!("{whole}.{fraction}e{exponent}");
        let digits: u128 = format!("{whole}{fraction}").parse().unwrap();
        let places = i32::try_from(fraction.len()).unwrap();
        for (read, scale) in [(cpu_milli(&text), 3), (memory_bytes(&text), 0)] {
            let power = exponent + scale - places;
            let ten = 10_u128.pow(power.unsigned_abs());
            let exact = if power < 0 { digits.div_ceil(ten) } else { digits * ten };
            match read {
                Ok(value) => prop_assert_eq!(u128::from(value), exact, "{}", text),
                Err(quantity::Error::TooLarge(_)) => prop_assert!(exact > u128::from(INTEGER_MAX)),
                Err(other) => panic!("{text}: {other}"),
            }
        }
    }

    #[test]
    fn the_time_of_a_uuid_v7_is_read_with_or_without_hyphens(
        prefix in "[a-z0-9]{0,8}[-_:.]", ms in 0..(1_u64 << 48), tail in 0..(1_u64 << 48),
    ) {
        let time = format!("{ms:012x}");
        let (high, low) = time.split_at(8);
        for text in [
            format!("{prefix}{high}-{low}-7abc-8def-{tail:012x}"),
            format!("{prefix}{high}{low}7abc9def{tail:012x}"),
            format!("{prefix}{}-{}-7ABC-BDEF-{tail:012X}", high.to_uppercase(), low.to_uppercase()),
        ] {
            prop_assert_eq!(BookingId::new(&text).unwrap().made_at(), Some(Instant::from_ms(ms)), "{}", text);
        }
        for text in [
            format!("{prefix}{high}-{low}-6abc-8def-{tail:012x}"),
            format!("{prefix}{high}-{low}-7abc-7def-{tail:012x}"),
            format!("{prefix}{high}-{low}-7abc-8def-{tail:012x}z"),
        ] {
            prop_assert_eq!(BookingId::new(&text).unwrap().made_at(), None, "{}", text);
        }
    }
}

#[test]
fn names_are_read_from_json_with_the_same_rules() {
    // Serde's own deserializer for plain text represents any format.
    use serde::Deserialize as _;
    use serde::de::IntoDeserializer as _;
    use serde::de::value::{Error, StrDeserializer};
    let read = |text: &'static str| -> Result<BookingId, Error> {
        let deserializer: StrDeserializer<'_, Error> = text.into_deserializer();
        BookingId::deserialize(deserializer)
    };
    assert_eq!(read("job-1").unwrap().as_str(), "job-1");
    let refused = read("job 1").unwrap_err().to_string();
    let said = NameError::Character {
        character: ' ',
        allowed: "letters, digits and . _ : -",
    };
    assert_eq!(refused, said.to_string());
}
