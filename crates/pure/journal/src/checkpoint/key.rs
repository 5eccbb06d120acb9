//! Names and keys of the signers of checkpoints.
//!
//! A key is identified by its name and by four bytes computed from name and key, which distinguish two
//! keys of one name. The caller provides randomness. The private text is for a file that only the
//! server can read; it never appears in debug output.

use std::fmt;
use std::str::FromStr;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::Signer as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::hash::sha256;

/// Maximum size of a name; that of a ledger has about 50 bytes.
const NAME_BYTES_MAX: usize = 253;

/// The signature type of Ed25519 in signed notes.
const ED25519: u8 = 0x01;

const PRIVATE: &str = "PRIVATE+KEY+";

/// The name of a key, and the origin of a ledger: a word without spaces, controls and `+`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Name(String);

/// Four bytes that distinguish keys of one name.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct KeyId(pub [u8; 4]);

/// The private half of a key.
#[derive(Clone)]
pub struct SigningKey {
    name: Name,
    id: KeyId,
    key: ed25519_dalek::SigningKey,
}

/// The public half of a key: `name+id+key` in text and JSON.
#[derive(Clone, PartialEq, Eq)]
pub struct VerifierKey {
    name: Name,
    id: KeyId,
    key: ed25519_dalek::VerifyingKey,
}

/// Error of a text that is not a key.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A name that signed notes cannot carry.
    #[error(
        "a key's name is 1 to {NAME_BYTES_MAX} bytes without spaces, control characters and `+`"
    )]
    Name,
    /// Not of the form of a public key.
    #[error("a public key reads `name+id+key`, with 8 hexadecimal digits and 44 base64 characters")]
    PublicForm,
    /// Not of the form of a private key.
    #[error("a private key reads `{PRIVATE}name+id+key` in one line")]
    PrivateForm,
    /// The id does not match name and key: one of the three was changed.
    #[error("the key's id is {stated}, but its name and key give {computed}")]
    Id {
        /// The id in the text.
        stated: String,
        /// The id computed from name and key.
        computed: KeyId,
    },
    /// Bytes that are not a usable Ed25519 key.
    #[error("not a valid Ed25519 public key")]
    Weak,
}

impl Name {
    /// The origin of a ledger: `bursar/<ledger uuid>/<generation>`.
    pub fn ledger(uuid: &str, generation: u64) -> Result<Self, Error> {
        format!("bursar/{uuid}/{generation}").parse()
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The name for people, with UUIDs cut to their first eight digits.
    pub fn short(&self) -> String {
        let parts = self.0.split('/').map(|part| match part.split_once('-') {
            Some((head, _)) if part.len() == 36 && head.len() == 8 => format!("{head}…"),
            _ => part.to_owned(),
        });
        parts.collect::<Vec<_>>().join("/")
    }
}

impl SigningKey {
    /// The key of 32 random bytes.
    pub fn from_seed(name: Name, seed: [u8; 32]) -> Self {
        let key = ed25519_dalek::SigningKey::from_bytes(&seed);
        let id = key_id(&name, key.verifying_key().as_bytes());
        Self { name, id, key }
    }

    /// The name in its signatures.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        self.id
    }

    /// The public half.
    pub fn verifier(&self) -> VerifierKey {
        VerifierKey {
            name: self.name.clone(),
            id: self.id,
            key: self.key.verifying_key(),
        }
    }

    /// The private key as a line without its newline. It is a secret.
    pub fn to_private_text(&self) -> String {
        key_text(PRIVATE, &self.name, self.id, self.key.as_bytes())
    }

    pub(super) fn sign(&self, text: &[u8]) -> [u8; 64] {
        self.key.sign(text).to_bytes()
    }
}

impl VerifierKey {
    /// The name in signatures by this key.
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Its id.
    pub fn id(&self) -> KeyId {
        self.id
    }

    pub(super) fn verifies(&self, text: &[u8], signature: &[u8]) -> bool {
        ed25519_dalek::Signature::from_slice(signature)
            .is_ok_and(|signature| self.key.verify_strict(text, &signature).is_ok())
    }
}

impl fmt::Display for Name {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl FromStr for Name {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let odd = |character: char| {
            character.is_whitespace() || character.is_control() || character == '+'
        };
        if text.is_empty() || NAME_BYTES_MAX < text.len() || text.contains(odd) {
            return Err(Error::Name);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl fmt::Debug for KeyId {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, formatter)
    }
}

/// Shows the public half only.
impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({}+{})", self.name, self.id)
    }
}

impl FromStr for SigningKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let line = text.strip_suffix('\n').unwrap_or(text);
        let rest = line.strip_prefix(PRIVATE).ok_or(Error::PrivateForm)?;
        let (name, stated, seed) = take_apart(rest).ok_or(Error::PrivateForm)?;
        let key = Self::from_seed(name.parse()?, seed);
        check_id(stated, key.id)?;
        Ok(key)
    }
}

impl fmt::Display for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&key_text("", &self.name, self.id, self.key.as_bytes()))
    }
}

impl fmt::Debug for VerifierKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "VerifierKey({self})")
    }
}

impl FromStr for VerifierKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let (name, stated, bytes) = take_apart(text).ok_or(Error::PublicForm)?;
        let name = name.parse()?;
        let id = key_id(&name, &bytes);
        check_id(stated, id)?;
        let key = ed25519_dalek::VerifyingKey::from_bytes(&bytes).map_err(|_| Error::Weak)?;
        // With a key of small order anybody could forge signatures.
        if key.is_weak() {
            Err(Error::Weak)
        } else {
            Ok(Self { name, id, key })
        }
    }
}

impl Serialize for VerifierKey {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for VerifierKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?
            .parse()
            .map_err(serde::de::Error::custom)
    }
}

/// The first four bytes of SHA-256 over the name, a newline, the signature type and the key.
fn key_id(name: &Name, public: &[u8; 32]) -> KeyId {
    let digest = sha256(&[name.0.as_bytes(), b"\n", &[ED25519], public].concat());
    let [a, b, c, d, ..] = digest.0;
    KeyId([a, b, c, d])
}

fn check_id(stated: &str, computed: KeyId) -> Result<(), Error> {
    if stated == computed.to_string() {
        return Ok(());
    }
    Err(Error::Id {
        stated: stated.to_owned(),
        computed,
    })
}

fn key_text(prefix: &str, name: &Name, id: KeyId, bytes: &[u8; 32]) -> String {
    format!(
        "{prefix}{name}+{id}+{}",
        STANDARD.encode([&[ED25519], bytes.as_slice()].concat())
    )
}

/// The name, the id and the 32 bytes of a key's text; base64 may contain a `+`.
fn take_apart(text: &str) -> Option<(&str, &str, [u8; 32])> {
    let (name, rest) = text.split_once('+')?;
    let (id, encoded) = rest.split_once('+')?;
    match STANDARD.decode(encoded).ok()?.split_first()? {
        (&ED25519, bytes) => Some((name, id, bytes.try_into().ok()?)),
        _ => None,
    }
}
