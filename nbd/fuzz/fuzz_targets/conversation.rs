#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| lode_nbd_fuzz::conversation::run(data));
