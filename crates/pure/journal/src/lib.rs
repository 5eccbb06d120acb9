//! Hashes, the Merkle tree over the records, signed checkpoints, and the proof file that anybody can
//! check offline (L7, L9, L11, L13).
//!
//! Bytes in, bytes out. Nothing here panics on any input, a proof or note with a changed bit does not
//! verify, and the tree is that of RFC 6962, so other tools can check it too. Deliberately absent: the
//! meaning of a record (`engine::codec`) and the storage of tiles (`ledger`), which are read through
//! the trait [`tile::Tiles`].
//!
//! # A worked example
//!
//! Three records are appended, the tree is signed, and the middle one is proven.
//!
//! ```
//! use bursar_journal::checkpoint::{Checkpoint, Name, SigningKey};
//! use bursar_journal::hash::leaf_hash;
//! use bursar_journal::merkle::prove_inclusion;
//! use bursar_journal::proof::{Proof, Proven};
//! use bursar_journal::tile::{Builder, FullTile};
//! # use bursar_journal::{hash::Hash, tile::{TileId, Tiles}};
//! # struct NoTiles;
//! # impl Tiles for NoTiles {
//! #     type Error = std::convert::Infallible;
//! #     fn tile(&self, _: TileId) -> Result<Vec<Hash>, Self::Error> {
//! #         Ok(Vec::new())
//! #     }
//! # }
//!
//! let records = [r#"{"v":1,"seq":0}"#, r#"{"v":1,"seq":1}"#, r#"{"v":1,"seq":2}"#];
//! let mut builder = Builder::new();
//! let mut full: Vec<FullTile> = Vec::new(); // the store writes a row for each tile in it
//! for record in records {
//!     builder.push(leaf_hash(record.as_bytes()), &mut full);
//! }
//! assert!(full.is_empty(), "a tile is full after 256 records");
//!
//! let origin = Name::ledger("0198f3c2-0000-7000-8000-000000000000", 1)?;
//! let key = SigningKey::from_seed(origin.clone(), [7; 32]);
//! let checkpoint = Checkpoint { origin, size: builder.size(), root: builder.root() };
//!
//! let proof = Proof {
//!     v: 1,
//!     object: "booking/job-1".to_owned(),
//!     checkpoint: checkpoint.sign([&key]),
//!     keys: vec![key.verifier()],
//!     records: vec![Proven {
//!         seq: 1,
//!         leaf: leaf_hash(records[1].as_bytes()),
//!         bytes: records[1].to_owned(),
//!         blobs: Vec::new(),
//!         inclusion: prove_inclusion(&builder.over(&NoTiles), 1, builder.size())?,
//!     }],
//! };
//! let file = proof.to_text()?;
//!
//! let checks = Proof::parse(&file)?.verify(&key.verifier());
//! assert!(checks.iter().all(|check| check.ok));
//! assert_eq!(checks[1].detail, "record 1 is in that ledger");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod checkpoint;
pub mod hash;
pub mod merkle;
pub mod proof;
pub mod record;
pub mod tile;
