//! Little-endian fields of byte arrays, at constant places.

macro_rules! field {
    ($get:ident, $type:ty, $bytes:expr) => {
        #[doc = concat!("The little-endian `", stringify!($type), "` at `at`.")]
        #[inline(always)]
        pub(crate) fn $get(from: &[u8], at: usize) -> $type {
            let mut raw = [0u8; $bytes];
            raw.copy_from_slice(&from[at..at + $bytes]);
            <$type>::from_le_bytes(raw)
        }
    };
    ($get:ident, $put:ident, $type:ty, $bytes:expr) => {
        field!($get, $type, $bytes);

        #[doc = concat!("Puts the little-endian `", stringify!($type), "` at `at`.")]
        #[inline(always)]
        pub(crate) fn $put(into: &mut [u8], at: usize, value: $type) {
            into[at..at + $bytes].copy_from_slice(&value.to_le_bytes());
        }
    };
}

field!(get_u16, u16, 2);
field!(get_u32, put_u32, u32, 4);
field!(get_u64, put_u64, u64, 8);
field!(get_i64, put_i64, i64, 8);
