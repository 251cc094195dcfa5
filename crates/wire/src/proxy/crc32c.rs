//! CRC-32C (Castagnoli). Bit by bit: headers with a checksum are rare and short.

use std::ops::Range;

const POLYNOMIAL: u32 = 0x82f6_3b78;

/// The checksum of `bytes`, with those in `blank` taken as zeros.
pub(super) fn with_zeros(bytes: &[u8], blank: Range<usize>) -> u32 {
    !bytes.iter().enumerate().fold(!0, |sum, (at, byte)| {
        let byte = if blank.contains(&at) { 0 } else { *byte };
        (0..8).fold(sum ^ u32::from(byte), |sum, _| (sum >> 1) ^ (POLYNOMIAL & (sum & 1).wrapping_neg()))
    })
}

#[cfg(test)]
mod tests {
    use super::with_zeros;

    #[test]
    fn it_agrees_with_the_published_check_value() {
        assert_eq!(with_zeros(b"123456789", 0..0), 0xe306_9283);
    }
}
