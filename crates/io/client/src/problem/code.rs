//! Table of codes: status, exit code and text of the page.

use serde::{Deserialize, Serialize};

use crate::ToSchema;

/// Page of a code at `/problems/{code}`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Page {
    /// Code as written.
    pub code: &'static str,
    /// HTTP status.
    pub status: u16,
    /// Exit code of a command that ends with it.
    pub exit: u8,
    /// Short title.
    pub title: &'static str,
    /// Meaning and advice, in one paragraph.
    pub text: &'static str,
}

macro_rules! codes {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $status:literal, $exit:literal, $title:literal, $text:literal;)+) => {
        /// Stable name of a problem, for programs.
        #[derive(Clone, Copy, Debug, Eq, PartialEq, Ord, PartialOrd, Hash, Serialize, Deserialize, ToSchema)]
        pub enum Code {
            $($(#[$doc])* #[serde(rename = $code)] $name,)+
        }

        impl Code {
            /// All codes, in the order of the table.
            pub const ALL: &[Self] = &[$(Self::$name,)+];

            /// Page of the code.
            pub const fn page(self) -> Page {
                match self {
                    $(Self::$name => Page { code: $code, status: $status, exit: $exit, title: $title, text: $text },)+
                }
            }
        }
    };
}

codes! {
    /// Not JSON or YAML.
    Malformed = "malformed", 400, 2, "The request cannot be read",
        "The body is not JSON, is cut off, is not UTF-8, or is nested too deeply. Nothing was done. The detail says where reading stopped; correct the text there and send it again.";
    /// Wrong, missing or unknown fields.
    Invalid = "invalid", 422, 2, "The request has mistakes",
        "The body could be read, but fields are wrong, missing or unknown. Nothing was done. `errors` lists all of them, each with its path, what is wrong and, where a name is nearly right, what may have been meant. Correct them and send it again.";
    /// No valid token.
    Unauthenticated = "unauthenticated", 401, 1, "The caller is not known",
        "The request carried no token, or one that has expired or was revoked. Send a good one as `Authorization: Bearer …`, or use the local socket, where the Unix user is the identity. An operator makes tokens with `bursar token create`.";
    /// May not act as this tenant or in this role.
    NotAllowed = "not-allowed", 403, 1, "The caller may not do this",
        "The caller is known, but its roles or tenants do not cover what was asked; the detail names both. Act as a tenant of your own, or ask an operator for a token that has the role.";
    /// No such object.
    NotFound = "not-found", 404, 1, "There is no such thing",
        "Nothing of that kind and name exists, or the caller may not see it. `suggestion` has the nearest name, where one is near. Ended bookings are remembered for 24 hours.";
    /// `If-Match` failed.
    Conflict = "conflict", 409, 1, "It has changed meanwhile",
        "The object is not as the caller expected: another version is in force, or it is in a state that does not allow this. Nothing was done. Read it again, look at what differs (`resourceVersion` has the present version), and send the change again if it is still wanted.";
    /// Same id or key with another body.
    IdReused = "id-reused", 409, 1, "The id is taken by another request",
        "An id or idempotency key stands for one request for ever, and the name of a run for one run while it lives. This one has another body; the detail names the first field that differs. Use a new id or name for a new request; to change a request, cancel or release the old one first.";
    /// Wrong fence, or renewal of a booking that ended.
    StaleFence = "stale-fence", 409, 1, "The booking is no longer yours",
        "The fence is not the present one, or the booking has ended (`end` says how). The caller no longer holds the slot: stop the work, and reserve again under a new id. The present fence is never shown.";
    /// Unknown id that is older than the memory of the ledger.
    IdTooOld = "id-too-old", 409, 1, "The id is too old to be sure about",
        "The id was made before the last booking that was forgotten, so it may have been granted and ended already. It is refused, because an id is never granted twice. If the work is still wanted, reserve it under a new id.";
    /// The request has `now`, and it cannot start now.
    WouldWait = "would-wait", 409, 1, "It cannot start now",
        "It was asked to start at once or not at all, and it would have to wait. Nothing was done. The answer explains what it would wait for; leave out `now` to wait.";
    /// No set of cuts makes the beneficiary fit.
    NothingHelps = "nothing-helps", 409, 1, "No cut would make room",
        "There is no set of runs whose end would let the beneficiary start, so nobody was cut. The answer says what is short; ask for less, or for another place.";
    /// No event can make the request possible.
    NeverFits = "never-fits", 422, 1, "It can never fit",
        "The request asks for more than it may ever have, even when nothing else is held, so it was not queued. For a booking, `limits` names each limit and its size. For a run, `trace` has each envelope that may pay with the most that it pays; without a trace, no declared nodes have room for it. Ask for less or for another place, or ask an operator for a higher limit, another budget or more nodes.";
    /// A limit is reached and the request does not wait.
    OverLimit = "over-limit", 429, 1, "No slot is free",
        "Nothing was done. For a booking: a limit is reached, or others wait first, and the request did not ask to wait; `limits` has the numbers, `holders` who holds the slots, `retryAfterMs` when one is expected. Send `waitMs` to queue, try later, or ask an operator to raise the limit. For a run: its owner has as many waiting runs as it may have (`bounds`); submit it when some have started, or cancel some.";
    /// The client has too many requests in flight.
    SlowDown = "slow-down", 429, 3, "Too many requests at once",
        "This caller has more requests in flight than one caller may have. Nothing was done. Wait for answers, or for `retryAfterMs`, and send the request again; a batch carries up to 1,024 operations in one request.";
    /// The stream position or cursor is too old.
    Gone = "gone", 410, 3, "The position is too old",
        "The cursor or stream position points to what the server no longer keeps. Start again: list from the beginning, then follow the stream from the record of that list.";
    /// A bound was exceeded.
    TooLarge = "too-large", 413, 2, "The request is too large",
        "A body may have 1 MiB, a batch 1,024 operations, a page 1,000 items. The detail names the bound that was exceeded. Nothing was done; send it in parts.";
    /// The store or the leader is not available.
    Unavailable = "unavailable", 503, 3, "The service is not available",
        "The store cannot be written, or the server is starting or stopping. Nothing was admitted. Try again after a moment; if it stays so, `bursar doctor` says what is missing.";
    /// Another replica leads.
    NotLeader = "not-leader", 503, 3, "Another server leads",
        "This server may not write now, and the request could not be passed on. Nothing was admitted. Try again after a moment; the leader will have been found by then.";
    /// The files of the store are gone.
    StoreAway = "store-away", 503, 3, "The files of the store are gone",
        "`ledger.db` was moved or removed while the server had it open. Nothing is admitted any more. All records that the server still had were written to `ledger.rescue.db` beside it; its log says so. Stop the server, then restore that file, or the newest backup, with `bursar ledger restore`.";
    /// The intake is full.
    Busy = "busy", 503, 3, "The server is busy",
        "The intake is full, or all connections are taken. Nothing was done. Send the request again after the time in `Retry-After`; repeating is safe.";
    /// Only requests that free resources are accepted.
    DiskLow = "disk-low", 503, 3, "The disk is nearly full",
        "Less than 256 MiB are free where the ledger is. Releases, renewals, cancels and operators' commands are accepted; nothing new is admitted. Free space there, or prune with `bursar ledger prune`.";
    /// A defect.
    Internal = "internal", 500, 3, "The server has a defect",
        "Something happened that should be impossible. The command was not done, and is kept under its id for the repair. Please report it with the detail; repeating the request is safe.";
    /// Accepted, but not confirmed as durable in time.
    OutcomeUnknown = "outcome-unknown", 504, 3, "The outcome is not known",
        "The request was accepted, but the store did not confirm in time whether it is durable. It may have been done. Repeat it with the same id: that is always safe, and the answer will be the present state.";
}

impl Code {
    /// Code of a word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL
            .iter()
            .copied()
            .find(|code| code.page().code == word)
    }

    /// Code as written.
    pub const fn word(self) -> &'static str {
        self.page().code
    }

    /// HTTP status.
    pub const fn status(self) -> u16 {
        self.page().status
    }
}

impl std::fmt::Display for Code {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.word())
    }
}
