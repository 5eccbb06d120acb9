#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| bursar_sim::fuzz::market::cgroup_files(bytes));
