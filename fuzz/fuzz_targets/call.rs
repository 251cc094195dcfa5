#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| seaway_proxy::fuzz::call(bytes));
