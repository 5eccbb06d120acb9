#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bursar_server::fuzz::fuzz_target(bytes));
