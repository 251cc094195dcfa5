//! A message of ours as gRPC frames it: five bytes before it say that it is not compressed, and how long it is.

pub const PREFIX: usize = 5;

pub fn prefix(length: usize) -> [u8; PREFIX] {
    let [a, b, c, d] = (length as u32).to_be_bytes();
    [0, a, b, c, d]
}

/// The message, if nothing is missing of it and nothing follows.
pub fn message(bytes: &[u8]) -> Option<&[u8]> {
    let (head, message) = bytes.split_at_checked(PREFIX)?;
    (head == prefix(message.len())).then_some(message)
}
