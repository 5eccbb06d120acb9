//! Flags and value parsers that several planes share.

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};

#[derive(Args, Clone, Debug, Default)]
pub(crate) struct ListFlags {
    /// Show only rows whose columns have these values; columns as in `-o wide`
    #[arg(long = "where", value_name = "KEY=VALUE,…")]
    pub(crate) filter: Option<String>,
    /// Keep printing rows that change
    #[arg(short, long)]
    pub(crate) watch: bool,
}

pub(super) fn cpu(text: &str) -> Result<u64, String> {
    bursar_units::quantity::cpu_milli(text).map_err(|error| error.to_string())
}

pub(super) fn memory(text: &str) -> Result<u64, String> {
    bursar_units::quantity::memory_bytes(text).map_err(|error| error.to_string())
}

/// Parser of a flag that accepts one word of a closed set.
pub(super) fn words<T, const N: usize>(
    all: [T; N],
    word: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T>
where
    T: Copy + Send + Sync + 'static,
{
    PossibleValuesParser::new(all.map(word)).try_map(move |text| {
        all.into_iter()
            .find(|value| word(*value) == text)
            .ok_or("not one of the words")
    })
}
