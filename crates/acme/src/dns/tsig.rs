//! Signatures of messages by a key that both sides know (TSIG, RFC 8945).

use std::fmt;

use aws_lc_rs::hmac;
use base64::{Engine, prelude::BASE64_STANDARD};

use super::{
    error::DnsError,
    message::{ANY, HEAD, MalformedMessage, Reader, TSIG, WireName, number, record},
};

/// Seconds by which clocks may differ, as everybody has it.
const FUDGE: u16 = 300;
const BAD_SIGNATURE: u16 = 16;
const BAD_KEY: u16 = 17;
const BAD_TIME: u16 = 18;
/// Where the number of additional records is in a message's head.
const ADDITIONAL: usize = 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TsigAlgorithm {
    Sha256,
    Sha512,
}

impl TsigAlgorithm {
    fn name(self) -> &'static str {
        match self {
            TsigAlgorithm::Sha256 => "hmac-sha256",
            TsigAlgorithm::Sha512 => "hmac-sha512",
        }
    }
}

pub struct TsigKey {
    name: WireName,
    text: String,
    algorithm: WireName,
    secret: hmac::Key,
}

impl TsigKey {
    /// `secret`: in base64, alone or as `tsig-keygen` writes it.
    pub fn new(name: &str, algorithm: TsigAlgorithm, secret: &str) -> Result<TsigKey, DnsError> {
        let wire = |name: &str| WireName::parse(name).ok_or_else(|| DnsError::Name(name.into()));
        let clause = secret.rsplit_once("secret").filter(|_| secret.contains('"'));
        let base64 = clause.map_or(secret, |(_, rest)| rest.split('"').nth(1).unwrap_or_default());
        let wrong = || DnsError::Key(format!("the secret of the key {name} is not valid base64"));
        let bytes =
            BASE64_STANDARD.decode(base64.trim()).ok().filter(|it| !it.is_empty()).ok_or_else(wrong)?;
        let kind = match algorithm {
            TsigAlgorithm::Sha256 => hmac::HMAC_SHA256,
            TsigAlgorithm::Sha512 => hmac::HMAC_SHA512,
        };
        Ok(TsigKey {
            name: wire(name)?,
            text: name.into(),
            algorithm: wire(algorithm.name())?,
            secret: hmac::Key::new(kind, &bytes),
        })
    }

    pub(super) fn name(&self) -> &str {
        &self.text
    }

    /// The request with its signature, and that signature, which the answer is signed with.
    pub(super) fn sign(&self, request: &[u8], now: u64) -> Result<(Vec<u8>, Vec<u8>), DnsError> {
        let (time, fudge) = (&now.to_be_bytes()[2..], FUDGE.to_be_bytes());
        let signed = [request, &self.variables(time, fudge, 0, &[])].concat();
        let mac = hmac::sign(&self.secret, &signed).as_ref().to_vec();
        let id = request.get(..2).unwrap_or_default();
        let length = u16::try_from(mac.len()).unwrap_or_default().to_be_bytes();
        let data = [self.algorithm.bytes(), time, &fudge, &length, &mac, id, &[0, 0], &[0, 0]].concat();
        let mut out = with_additional(request, 1);
        record(&mut out, &self.name, [TSIG, ANY], 0, &data)?;
        Ok((out, mac))
    }

    /// What is signed of the signature's own record (RFC 8945, section 4.3.3).
    fn variables(&self, time: &[u8], fudge: [u8; 2], error: u16, other: &[u8]) -> Vec<u8> {
        let length = u16::try_from(other.len()).unwrap_or_default().to_be_bytes();
        let (class, error) = (ANY.to_be_bytes(), error.to_be_bytes());
        let parts = [
            self.name.bytes(),
            &class,
            &[0; 4],
            self.algorithm.bytes(),
            time,
            &fudge,
            &error,
            &length,
            other,
        ];
        parts.concat()
    }

    /// Whether who knows the key has written this, in answer to what was signed with `request_mac`, and now.
    pub(super) fn verify(
        &self,
        reply: &[u8],
        tsig: Option<&Signature>,
        request_mac: &[u8],
        now: u64,
    ) -> Result<(), VerificationError> {
        let tsig = tsig.ok_or(VerificationError::Unsigned)?;
        match tsig.error {
            // It does not sign where it does not know the key.
            BAD_KEY => return Err(VerificationError::BadKey),
            BAD_SIGNATURE => return Err(VerificationError::BadSignature),
            _ => {}
        }
        if tsig.key != self.name || tsig.algorithm != self.algorithm {
            return Err(VerificationError::Forged);
        }
        // As it was before it was signed.
        let mut message = reply.get(..tsig.begins_at).unwrap_or_default().to_vec();
        if let Some(id) = message.get_mut(..2) {
            id.copy_from_slice(&tsig.id);
        }
        let count = number(reply, ADDITIONAL).unwrap_or_default().saturating_sub(1);
        let message = with_additional(&message, count);
        let length = u16::try_from(request_mac.len()).unwrap_or_default().to_be_bytes();
        let variables = self.variables(&tsig.time, tsig.fudge.to_be_bytes(), tsig.error, &tsig.other);
        let signed = [&length, request_mac, &message, &variables].concat();
        hmac::verify(&self.secret, &signed, &tsig.mac).map_err(|_| VerificationError::Forged)?;
        if tsig.error == BAD_TIME {
            return Err(VerificationError::BadTime { there: seconds(&tsig.other), here: now });
        }
        match seconds(&tsig.time).abs_diff(now) > u64::from(tsig.fudge) {
            true => Err(VerificationError::BadTime { there: seconds(&tsig.time), here: now }),
            false if tsig.error != 0 => Err(VerificationError::Forged),
            false => Ok(()),
        }
    }
}

impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TsigKey {} ({})", self.text, self.algorithm)
    }
}

/// A signature, as it came.
pub(super) struct Signature {
    key: WireName,
    algorithm: WireName,
    time: [u8; 6],
    fudge: u16,
    pub(super) mac: Vec<u8>,
    /// Of the message when it was signed.
    id: [u8; 2],
    error: u16,
    other: Vec<u8>,
    /// Where its record begins in the message.
    pub(super) begins_at: usize,
}

/// The record that begins there, with these data.
pub(super) fn read(message: &[u8], begins_at: usize, key: WireName, data: &[u8]) -> Option<Signature> {
    // Its data are no place for pointers; names are read where they are.
    let read = || -> Result<Signature, MalformedMessage> {
        let mut reader = Reader { bytes: data, at: 0 };
        let algorithm = reader.name()?;
        let time = reader.take(6)?.try_into().map_err(|_| MalformedMessage)?;
        let (fudge, length) = (reader.number()?, reader.number()?);
        let mac = reader.take(usize::from(length))?.to_vec();
        let id = reader.take(2)?.try_into().map_err(|_| MalformedMessage)?;
        let (error, length) = (reader.number()?, reader.number()?);
        let other = reader.take(usize::from(length))?.to_vec();
        let is_whole = reader.at == data.len() && begins_at >= HEAD && begins_at < message.len();
        let signature = Signature { key, algorithm, time, fudge, mac, id, error, other, begins_at };
        if is_whole { Ok(signature) } else { Err(MalformedMessage) }
    };
    read().ok()
}

/// Why an answer is not believed.
#[derive(Debug, PartialEq)]
pub(super) enum VerificationError {
    Unsigned,
    Forged,
    BadKey,
    BadSignature,
    BadTime { there: u64, here: u64 },
}

impl VerificationError {
    pub(super) fn message(&self, key: &TsigKey) -> String {
        let name = key.name();
        match self {
            VerificationError::Unsigned => format!("the answer is not signed with the key {name}"),
            VerificationError::Forged => format!("the signature of the answer does not match the key {name}"),
            VerificationError::BadKey => format!(
                "the server does not know the key {name} with {}: compare the key in seaway.yaml with that \
                 in the configuration of the server (BADKEY)",
                key.algorithm
            ),
            VerificationError::BadSignature => {
                format!("the server has another secret for the key {name} than secretFile (BADSIG)")
            }
            VerificationError::BadTime { there, here } => format!(
                "the clocks of the server and of this machine differ by {} s, and {FUDGE} s are allowed: \
                 set both by NTP (BADTIME)",
                there.abs_diff(*here)
            ),
        }
    }
}

fn seconds(bytes: &[u8]) -> u64 {
    bytes.iter().take(6).fold(0, |all, it| all << 8 | u64::from(*it))
}

fn with_additional(message: &[u8], count: u16) -> Vec<u8> {
    let mut out = message.to_vec();
    if let Some(place) = out.get_mut(ADDITIONAL..HEAD) {
        place.copy_from_slice(&count.to_be_bytes());
    }
    out
}

#[cfg(test)]
pub(super) mod tests {
    use super::{
        super::message::{Reply, Request},
        *,
    };

    const NOW: u64 = 1_800_000_000;

    pub(in super::super) fn key(name: &str, secret: &str) -> TsigKey {
        TsigKey::new(name, TsigAlgorithm::Sha256, secret).expect("a key")
    }

    /// As a server signs: what was asked goes first.
    fn signed_reply(by: &TsigKey, mac: &[u8], at: u64, [error, code]: [u16; 2], other: &[u8]) -> Vec<u8> {
        let name = WireName::parse("shop.example").expect("a name");
        let mut reply = Request::query(&name, 6).expect("a request").bytes().to_vec();
        (reply[2], reply[3]) = (0x80, code as u8);
        signed(by, reply, mac, at, error, other)
    }

    pub(in super::super) fn signed(
        by: &TsigKey,
        reply: Vec<u8>,
        mac: &[u8],
        at: u64,
        error: u16,
        other: &[u8],
    ) -> Vec<u8> {
        let (time, fudge) = (&at.to_be_bytes()[2..], FUDGE.to_be_bytes());
        let length = (mac.len() as u16).to_be_bytes();
        let signed = [&length, mac, &reply, &by.variables(time, fudge, error, other)].concat();
        let own = hmac::sign(&by.secret, &signed).as_ref().to_vec();
        let (own_length, other_length) =
            ((own.len() as u16).to_be_bytes(), (other.len() as u16).to_be_bytes());
        let (id, error) = (reply[..2].to_vec(), error.to_be_bytes());
        let data = [by.algorithm.bytes(), time, &fudge, &own_length, &own, &id, &error, &other_length, other]
            .concat();
        let mut out = with_additional(&reply, 1);
        record(&mut out, &by.name, [TSIG, ANY], 0, &data).expect("short");
        out
    }

    #[test]
    fn an_answer_is_believed_if_the_key_has_signed_it_for_this_request_now() {
        let (ours, theirs) = (key("seaway.", "c2VjcmV0"), key("seaway.", "b3RoZXI="));
        let verified = |reply: &[u8], mac: &[u8]| {
            let read = Reply::read(reply).expect("it is read");
            ours.verify(reply, read.tsig.as_ref(), mac, NOW)
        };
        let (mac, no_error) = ([7; 32], [0, 0]);
        let good = signed_reply(&ours, &mac, NOW, no_error, &[]);
        assert_eq!(verified(&good, &mac), Ok(()));
        assert_eq!(verified(&good, &[8; 32]), Err(VerificationError::Forged), "an answer to another request");
        let other = signed_reply(&theirs, &mac, NOW, no_error, &[]);
        assert_eq!(verified(&other, &mac), Err(VerificationError::Forged));
        let named = signed_reply(&key("other.", "c2VjcmV0"), &mac, NOW, no_error, &[]);
        assert_eq!(verified(&named, &mac), Err(VerificationError::Forged));
        for (place, bit) in [(3, 5), (13, 1), (14, 1)] {
            let mut changed = good.clone();
            changed[place] ^= bit;
            assert_eq!(verified(&changed, &mac), Err(VerificationError::Forged), "byte {place}");
        }
        let plain = with_additional(&good[..30], 0);
        assert_eq!(verified(&plain, &mac), Err(VerificationError::Unsigned));
        let late = signed_reply(&ours, &mac, NOW - 400, no_error, &[]);
        assert_eq!(verified(&late, &mac), Err(VerificationError::BadTime { there: NOW - 400, here: NOW }));
        let told = signed_reply(&ours, &mac, NOW, [BAD_TIME, 9], &(NOW + 1_000).to_be_bytes()[2..]);
        assert_eq!(verified(&told, &mac), Err(VerificationError::BadTime { there: NOW + 1_000, here: NOW }));
        let unknown = signed_reply(&theirs, &mac, NOW, [BAD_KEY, 9], &[]);
        assert_eq!(verified(&unknown, &mac), Err(VerificationError::BadKey));
    }

    #[test]
    fn a_signature_stands_last_and_is_whole() {
        let ours = key("seaway.", "c2VjcmV0");
        let good = signed_reply(&ours, &[7; 32], NOW, [0, 0], &[]);
        for length in 30..good.len() {
            assert!(Reply::read(&good[..length]).is_err(), "{length}");
        }
        let mut twice = good.clone();
        twice.extend(&good[30..]);
        twice[11] = 2;
        assert!(Reply::read(&twice).is_err(), "one that is not the last");
    }

    #[test]
    fn a_secret_is_read_alone_or_as_its_tool_writes_it_and_never_shown() {
        let written = "key \"seaway\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0\";\n};\n";
        let of = |text: &str| key("seaway", text).sign(b"0123456789ab", NOW).expect("signed").1;
        assert_eq!(of(written), of("c2VjcmV0\n"));
        assert_eq!(of(&written.replace("key \"seaway", "key \"secret")), of("c2VjcmV0"));
        for wrong in ["", "!", "secret c2VjcmV0;", "secret \"\""] {
            let error = TsigKey::new("seaway", TsigAlgorithm::Sha512, wrong).expect_err(wrong);
            assert_eq!(error.to_string(), "the secret of the key seaway is not valid base64");
        }
        assert_eq!(format!("{:?}", key("seaway", "c2VjcmV0")), "TsigKey seaway (hmac-sha256)");
    }
}
