//! A slot: asked for, held, renewed in the background, given back.
//!
//! [`Slot::reserve`] is all that most callers need; whoever wants to see the queue asks through
//! [`Asked`]. Renewal runs in a task of its own at a third of the ttl, so work that is slow does
//! not lose its slot; work that blocks its thread should run where it does not block the runtime.
//! The holder is told through [`Slot::lost`] when the slot is no longer its own: the server said
//! so, or nobody could be asked until the deadline, which is counted from before the last renewal
//! was sent and so never ends later than the server's. A lost slot is told once more by
//! [`Slot::release`], whatever the release itself comes to.
//!
//! A release is repeated, with the same id and fence, until the server answers. [`Slot::release`]
//! waits for that at most [`RELEASE_WAIT`]; then the slot is dropped, and a dropped slot is given
//! back in the background until the booking's deadline, while the runtime lives. What the background
//! could not give back is a warning in the log (`tracing`).

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bursar_units::BookingId;
use bursar_units::causes::chain;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::api::{
    Booking, BookingRequest, End, Outcome, ReleaseRequest, RenewRequest, State, instant,
};
use crate::client::{self, Client, Mode, Pause, uneven};
use crate::ids;
use crate::log;
use crate::problem::Code;

/// What a request that names no ttl gets (S7).
const TTL_DEFAULT: Duration = Duration::from_millis(bursar_booking::TTL_DEFAULT.ms());
/// How long one look at a waiting booking waits for it to change.
const LOOK: Duration = Duration::from_secs(30);
/// How much earlier than a third of the ttl a renewal may come, in percent: so that slots that
/// were granted together are not renewed together.
const JITTER_PERCENT: u32 = 20;
/// How long the end of a piece of work, or of a process, waits for its release at most.
pub const RELEASE_WAIT: Duration = Duration::from_secs(10);
/// How long one attempt at a release may hang.
const RELEASE_ATTEMPT: Duration = Duration::from_secs(5);
/// How long the first attempt has at least, also after the deadline: the server may still know the
/// booking.
const RELEASE_FIRST: Duration = Duration::from_secs(2);

/// Why a slot was not got, or not given back.
#[derive(Debug, Error)]
pub enum Error {
    /// The server refused, or could not be asked.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// It ended before it was granted.
    #[error("booking {id} was not granted: {}", end.map_or("it has ended", End::word))]
    NotGranted {
        /// Which.
        id: BookingId,
        /// How it ended.
        end: Option<End>,
    },
    /// It was held, and lost before it was given back.
    #[error("booking {id} was lost before it was given back; others may have held its slots since")]
    Fenced {
        /// Which.
        id: BookingId,
        /// Why.
        #[source]
        lost: Lost,
    },
    /// The server could not be told that the work is over.
    #[error(
        "booking {id} was not given back; its ttl ends it at {}, or one ttl after the server \
         starts again", instant::format(*ends)
    )]
    NotGivenBack {
        /// Which.
        id: BookingId,
        /// Its deadline. Until then the release is repeated while this process lives, unless the
        /// server refused it.
        ends: bursar_units::Instant,
        /// Why.
        #[source]
        source: client::Error,
    },
    /// It was granted, and lost again before its holder heard of it.
    #[error("booking {id} was granted, and lost again before that could be told")]
    LostAtOnce {
        /// Which.
        id: BookingId,
    },
    /// The new id is not one.
    #[error("cannot make an id")]
    Id(#[from] bursar_units::NameError),
}

/// Why a slot is no longer held.
#[derive(Clone, Debug, Error)]
pub enum Lost {
    /// The server said so: it expired, or was taken back.
    #[error("the server has ended it: {how}")]
    Fenced {
        /// What the server said.
        how: String,
    },
    /// No renewal succeeded until its time was over.
    #[error("no renewal has succeeded since {}, and its ttl is over", instant::format(*renewed))]
    Unrenewed {
        /// When the last one that succeeded was sent, or the request that was granted.
        renewed: bursar_units::Instant,
        /// Why the last attempt failed; none if there was no time for one.
        #[source]
        cause: Option<Arc<client::Error>>,
    },
}

/// A held slot. Dropping it gives it back in the background, repeated until its deadline.
#[derive(Debug)]
pub struct Slot {
    client: Client,
    id: BookingId,
    ttl: Duration,
    /// How it is given back.
    request: ReleaseRequest,
    standing: watch::Receiver<Standing>,
    renewer: JoinHandle<()>,
    is_over: bool,
}

/// What is known of a slot.
#[derive(Clone, Debug)]
struct Standing {
    /// When the last renewal that succeeded was sent.
    renewed: Instant,
    /// Why the attempts since then have failed.
    cause: Option<Arc<client::Error>>,
    lost: Option<Lost>,
}

/// A slot that was asked for and may have to be waited for. Dropping it leaves the queue as well
/// as that can be done without waiting; [`Asked::leave`] waits until it is left.
#[derive(Debug)]
pub struct Asked {
    client: Client,
    id: BookingId,
    booking: Booking,
    ttl_ms: Option<u64>,
    sent: Instant,
    has_waited: bool,
    is_over: bool,
}

impl Slot {
    /// Waits for a slot as long as the request says, under a new id.
    ///
    /// Giving up the wait by dropping the future leaves the queue, as well as that can be done
    /// without waiting.
    pub async fn reserve(client: &Client, request: &BookingRequest) -> Result<Self, Error> {
        let asked = Asked::ask(client, &ids::new("slot")?, request, true).await?;
        asked.granted().await
    }

    /// The same under an id of the caller's, so that it can be repeated after a crash.
    ///
    /// Where no answer came, whatever has the id is left alone, for it may be held by whoever asked
    /// under it before: repeating tells, and what nobody repeats ends by its wait or its ttl.
    pub async fn reserve_as(
        client: &Client,
        id: &BookingId,
        request: &BookingRequest,
    ) -> Result<Self, Error> {
        let asked = Asked::new(client, id, request).await?;
        asked.granted().await
    }

    fn hold(renewal: Renewal) -> Self {
        let standing = renewal.standing.subscribe();
        let (client, id, ttl) = (renewal.client.clone(), renewal.id.clone(), renewal.ttl);
        let request = with_fence(renewal.request.fence);
        let renewer = tokio::spawn(renewal.run());
        Self {
            client,
            id,
            ttl,
            request,
            standing,
            renewer,
            is_over: false,
        }
    }

    /// Its booking's id.
    pub fn id(&self) -> &BookingId {
        &self.id
    }

    /// The number that proves it is held, for whatever the work writes to.
    pub fn fence(&self) -> u64 {
        self.request.fence.unwrap_or_default()
    }

    /// Ends when the slot is no longer held: stop the work then. Select on it beside the work.
    pub async fn lost(&self) -> Lost {
        let mut standing = self.standing.clone();
        let told = standing.wait_for(|standing| standing.lost.is_some()).await;
        let told = told.ok().and_then(|standing| standing.lost.clone());
        // The task that tells ends only with the runtime or with this slot.
        told.unwrap_or_else(|| self.standing.borrow().unrenewed())
    }

    /// Gives the slot back and says how the work went.
    ///
    /// Repeated until the server answers, the booking's deadline passes, or [`RELEASE_WAIT`] is
    /// over. Then, or if this future is dropped, the background goes on until the deadline.
    pub async fn release(
        mut self,
        outcome: Outcome,
        exit_code: Option<i32>,
    ) -> Result<Booking, Error> {
        self.renewer.abort();
        (self.request.outcome, self.request.exit_code) = (Some(outcome), exit_code);
        let (began, deadline) = (Instant::now(), self.deadline());
        let lost = self.lost_until(began);
        let mut repeats = Repeats::until(deadline.min(began + RELEASE_WAIT));
        let answer = repeats.release(&self.client, &self.id, &self.request).await;
        // What is not over is repeated by `Drop`.
        self.is_over = match &answer {
            Ok(_) => true,
            Err(error) => is_refusal(error) || deadline <= Instant::now(),
        };
        let id = self.id.clone();
        if let Some(lost) = lost.or_else(|| lost_by_answer(&answer)) {
            return Err(Error::Fenced { id, lost });
        }
        answer.map_err(|source| {
            let ends = wall(deadline);
            Error::NotGivenBack { id, ends, source }
        })
    }

    /// When its ttl ends it if nobody renews it or gives it back. A server that was away meanwhile
    /// gives it one ttl more.
    pub fn ends(&self) -> bursar_units::Instant {
        wall(self.deadline())
    }

    fn deadline(&self) -> Instant {
        self.standing.borrow().renewed + self.ttl
    }

    /// Why it is no longer held at that moment, as far as this process knows.
    fn lost_until(&self, now: Instant) -> Option<Lost> {
        let standing = self.standing.borrow();
        let is_late = standing.renewed + self.ttl <= now;
        let unrenewed = || is_late.then(|| standing.unrenewed());
        standing.lost.clone().or_else(unrenewed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.renewer.abort();
        if self.is_over {
            return;
        }
        let mut kept = Kept {
            id: self.id.clone(),
            ends: self.ends(),
            cause: Some("the runtime has ended".to_owned()),
        };
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        let (client, request) = (self.client.clone(), self.request.clone());
        let mut repeats = Repeats::until(self.deadline());
        runtime.spawn(async move {
            let answer = repeats.release(&client, &kept.id, &request).await;
            kept.answered(answer);
        });
    }
}

/// A slot that is given back in the background: dropped with a cause, it says that it was not.
struct Kept {
    id: BookingId,
    ends: bursar_units::Instant,
    cause: Option<String>,
}

impl Kept {
    /// What the server has ended is not kept either.
    fn answered(&mut self, answer: Result<Booking, client::Error>) {
        let error = answer.err().filter(|error| !is_fenced(error));
        self.cause = error.map(|error| chain(&error));
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        if let Some(cause) = &self.cause {
            let ends = instant::format(self.ends);
            tracing::warn!(booking = %self.id, %ends, %cause, "{}", log::SLOT_NOT_GIVEN_BACK);
        }
    }
}

impl Standing {
    fn unrenewed(&self) -> Lost {
        Lost::Unrenewed {
            renewed: wall(self.renewed),
            cause: self.cause.clone(),
        }
    }
}

/// The attempts of a release: after growing, uneven pauses, until its end.
#[derive(Debug)]
pub struct Repeats {
    pause: Pause,
    end: Instant,
}

impl Repeats {
    /// Attempts until then.
    pub const fn until(end: Instant) -> Self {
        let pause = Pause::new();
        Self { pause, end }
    }

    /// Waits for the next attempt; false where the end comes first.
    pub async fn again(&mut self) -> bool {
        let next = Instant::now() + self.pause.next();
        if self.end <= next {
            return false;
        }
        sleep_until(next).await;
        true
    }

    /// Sends a release, at least once, until the server answers it with the booking or a refusal.
    pub async fn release(
        &mut self,
        client: &Client,
        id: &BookingId,
        request: &ReleaseRequest,
    ) -> Result<Booking, client::Error> {
        let mut last = None;
        let mut end = self.end.max(Instant::now() + RELEASE_FIRST);
        loop {
            let began = Instant::now();
            let until = end.min(began + RELEASE_ATTEMPT);
            let release = client.release(id, request, Mode::Do);
            let error = match timeout_at(until, release).await {
                Ok(Ok(booking)) => return Ok(booking),
                Ok(Err(error)) => error,
                // An attempt that was cut short says less than the one before it.
                Err(_) => last.unwrap_or_else(|| no_answer(client, until - began)),
            };
            if is_refusal(&error) || !self.again().await {
                return Err(error);
            }
            (last, end) = (Some(error), self.end);
        }
    }
}

/// What the answer to a release says of a slot that its holder believed to hold.
fn lost_by_answer(answer: &Result<Booking, client::Error>) -> Option<Lost> {
    let how = match answer {
        Ok(booking) => {
            let end = booking.end?;
            if !matches!(end, End::Expired | End::Forced) {
                return None;
            }
            let reason = booking.reason.as_ref().map(|reason| format!(", {reason}"));
            format!("{}{}", end.word(), reason.unwrap_or_default())
        }
        Err(error) if is_fenced(error) => error.to_string(),
        Err(_) => return None,
    };
    Some(Lost::Fenced { how })
}

/// A release that says nothing but who holds it.
pub(crate) fn with_fence(fence: u64) -> ReleaseRequest {
    ReleaseRequest {
        fence: Some(fence),
        ..ReleaseRequest::default()
    }
}

impl Asked {
    /// Asks; the answer is in [`Asked::booking`]. Without one, whatever has the id is left alone.
    pub async fn new(
        client: &Client,
        id: &BookingId,
        request: &BookingRequest,
    ) -> Result<Self, Error> {
        Self::ask(client, id, request, false).await
    }

    /// Asks. Whatever has an id that nobody else knows is of this request, answered or not.
    async fn ask(
        client: &Client,
        id: &BookingId,
        request: &BookingRequest,
        is_new: bool,
    ) -> Result<Self, Error> {
        let mut asked = Self {
            client: client.clone(),
            id: id.clone(),
            booking: Booking::new(id.clone(), State::Queued),
            ttl_ms: request.ttl_ms,
            sent: Instant::now(),
            has_waited: false,
            is_over: !is_new,
        };
        match client.reserve(id, request, Mode::Do).await {
            Ok(booking) => {
                asked.has_waited = booking.state == State::Queued;
                asked.booking = booking;
                asked.is_over = false;
                Ok(asked)
            }
            Err(error) => {
                // What was refused has left nothing behind; of the rest that is not known.
                asked.is_over |= error
                    .problem()
                    .is_some_and(|problem| problem.code != Code::OutcomeUnknown);
                Err(error.into())
            }
        }
    }

    /// How it stood when the server was last heard.
    pub fn booking(&self) -> &Booking {
        &self.booking
    }

    /// Looks again: as soon as it no longer waits, or after that long at the latest.
    ///
    /// A server that is away is waited for as long as the ttl: whoever is granted meanwhile still
    /// has the slot then. May be dropped and called again: nothing is lost.
    pub async fn look(&mut self, most: Duration) -> Result<&Booking, Error> {
        let mut pause = Pause::new();
        let mut given_up_at = None;
        loop {
            let error = match self.client.booking_wait(&self.id, most).await {
                Ok(booking) => {
                    self.booking = booking;
                    return Ok(&self.booking);
                }
                Err(error) => error,
            };
            let now = Instant::now();
            let given_up_at = *given_up_at.get_or_insert(now + ttl(self.ttl_ms));
            if is_refusal(&error) || given_up_at <= now {
                return Err(error.into());
            }
            sleep(pause.next()).await;
        }
    }

    /// Waits until it is granted, and holds it.
    pub async fn granted(mut self) -> Result<Slot, Error> {
        while self.booking.state == State::Queued {
            self.look(LOOK).await?;
        }
        let id = self.id.clone();
        let fence = match (self.booking.state, self.booking.fence) {
            (State::Granted, Some(fence)) => fence,
            (State::Granted, None) => {
                let what = format!("booking {id} is granted, and its fence is not told");
                return Err(self.client.protocol(what).into());
            }
            _ => {
                self.is_over = true;
                let end = self.booking.end;
                return Err(Error::NotGranted { id, end });
            }
        };
        let renewal = Renewal {
            client: self.client.clone(),
            id,
            request: RenewRequest {
                fence,
                ttl_ms: self.ttl_ms,
            },
            ttl: ttl(self.ttl_ms),
            standing: watch::Sender::new(Standing {
                renewed: self.sent,
                cause: None,
                lost: None,
            }),
        };
        if self.has_waited {
            // How long ago it was granted is not known here; a renewal makes the deadline known.
            let renewed = renewal.renew(Instant::now() + renewal.ttl).await;
            let id = &renewal.id;
            renewed.map_err(|_| Error::LostAtOnce { id: id.clone() })?;
        }
        self.is_over = true;
        Ok(Slot::hold(renewal))
    }

    /// Leaves the queue, or gives back what was granted meanwhile.
    pub async fn leave(mut self) -> Result<(), Error> {
        self.is_over = true;
        Ok(leave(&self.client, &self.id).await?)
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let (false, Ok(runtime)) = (self.is_over, Handle::try_current()) {
            let (client, id) = (self.client.clone(), self.id.clone());
            runtime.spawn(async move { leave(&client, &id).await });
        }
    }
}

/// Ends a booking, whether it still waits or was granted meanwhile, and whoever holds it: for those
/// who know that it is theirs.
pub async fn leave(client: &Client, id: &BookingId) -> Result<(), client::Error> {
    if client.cancel(id, Mode::Do).await.is_ok() {
        return Ok(());
    }
    let booking = client.booking(id).await?;
    if let (State::Granted, Some(fence)) = (booking.state, booking.fence) {
        client.release(id, &with_fence(fence), Mode::Do).await?;
    }
    Ok(())
}

/// Shows life until that is no longer believed.
struct Renewal {
    client: Client,
    id: BookingId,
    request: RenewRequest,
    ttl: Duration,
    standing: watch::Sender<Standing>,
}

impl Renewal {
    async fn run(self) {
        loop {
            let renewed = self.standing.borrow().renewed;
            sleep_until(renewed + uneven(self.ttl / 3, JITTER_PERCENT)).await;
            if let Err(lost) = self.renew(renewed + self.ttl).await {
                self.standing
                    .send_modify(|standing| standing.lost = Some(lost));
                return;
            }
        }
    }

    /// Renews, however often that must be tried, until the deadline.
    async fn renew(&self, deadline: Instant) -> Result<(), Lost> {
        let mut pause = Pause::new();
        loop {
            let sent = Instant::now();
            let renewal = self.client.renew(&self.id, &self.request, Mode::Do);
            let error = match timeout_at(deadline, renewal).await {
                Ok(Ok(_)) => {
                    self.standing.send_modify(|standing| {
                        (standing.renewed, standing.cause) = (sent, None);
                    });
                    return Ok(());
                }
                Ok(Err(error)) if is_fenced(&error) => {
                    let how = error.to_string();
                    return Err(Lost::Fenced { how });
                }
                Ok(Err(error)) => Some(Arc::new(error)),
                Err(_) => None,
            };
            self.standing.send_modify(|standing| {
                // An attempt that was cut short says less than the one before it.
                let cause = error.or_else(|| standing.cause.take());
                let cut = || Arc::new(no_answer(&self.client, deadline - sent));
                standing.cause = Some(cause.unwrap_or_else(cut));
            });
            let next = Instant::now() + pause.next();
            sleep_until(next.min(deadline)).await;
            if next >= deadline {
                return Err(self.standing.borrow().unrenewed());
            }
        }
    }
}

fn no_answer(client: &Client, after: Duration) -> client::Error {
    client::Error::Timeout {
        server: client.server().to_owned(),
        after,
    }
}

/// Whether the server has said that the slot is no longer held.
fn is_fenced(error: &client::Error) -> bool {
    error
        .problem()
        .is_some_and(|problem| matches!(problem.code, Code::StaleFence | Code::NotFound))
}

/// Whether the server has answered, and the answer is no; anything else may pass.
pub(crate) fn is_refusal(error: &client::Error) -> bool {
    error
        .problem()
        .is_some_and(|problem| problem.code.status() < 500 && problem.code != Code::SlowDown)
}

/// The time of day at a moment of the monotonic clock.
fn wall(at: Instant) -> bursar_units::Instant {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let ahead = at.saturating_duration_since(Instant::now());
    let time = now.saturating_add(ahead).saturating_sub(at.elapsed());
    bursar_units::Instant::from_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

fn ttl(ttl_ms: Option<u64>) -> Duration {
    ttl_ms.map_or(TTL_DEFAULT, Duration::from_millis)
}
