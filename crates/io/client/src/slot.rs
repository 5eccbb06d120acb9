//! A slot that is renewed in the background.
//!
//! Most callers need only [`Slot::reserve`]; [`Asked`] also shows the position in the queue. A task
//! of its own renews the slot at a third of the ttl, so slow work does not lose its slot. Work that
//! blocks its thread must not block the runtime.
//!
//! [`Slot::lost`] ends when the slot is no longer held: the server has ended the booking, or no
//! renewal succeeded until the deadline. The deadline is counted from before the last renewal was
//! sent, so it is never later than that of the server. [`Slot::release`] reports a loss too.
//!
//! A release is repeated, with the same id and fence, until the server answers. [`Slot::release`]
//! waits at most [`RELEASE_WAIT`]; after that, and for a dropped slot, the release is repeated in the
//! background until the deadline of the booking, while the runtime lives. A failure in the background
//! is logged as a warning (`tracing`).

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

/// Ttl of a request without one (S7).
const TTL_DEFAULT: Duration = Duration::from_millis(bursar_booking::TTL_DEFAULT.ms());
/// Wait of one request for the change of a queued booking.
const LOOK: Duration = Duration::from_secs(30);
/// Random advance of a renewal, in percent of a third of the ttl, so that slots that were granted
/// together are not renewed together.
const JITTER_PERCENT: u32 = 20;
/// Maximum time that the end of work, or of a process, waits for its release.
pub const RELEASE_WAIT: Duration = Duration::from_secs(10);
const RELEASE_ATTEMPT: Duration = Duration::from_secs(5);
/// Minimum time of the first attempt, also after the deadline: the server may still know the
/// booking.
const RELEASE_FIRST: Duration = Duration::from_secs(2);

/// Error of a reservation or a release.
#[derive(Debug, Error)]
pub enum Error {
    /// The server refused or did not answer.
    #[error(transparent)]
    Client(#[from] client::Error),
    /// The booking ended before it was granted.
    #[error("booking {id} was not granted: {}", end.map_or("it has ended", End::word))]
    NotGranted {
        /// Id of the booking.
        id: BookingId,
        /// Kind of end.
        end: Option<End>,
    },
    /// The slot was lost before it was released.
    #[error("booking {id} was lost before it was released; others may have held its slots since")]
    Fenced {
        /// Id of the booking.
        id: BookingId,
        /// Cause.
        #[source]
        lost: Lost,
    },
    /// No release reached the server.
    #[error(
        "booking {id} was not given back; its ttl ends it at {}, or one ttl after the server \
         starts again", instant::format(*ends)
    )]
    NotGivenBack {
        /// Id of the booking.
        id: BookingId,
        /// Deadline of the booking. Until then the release is repeated while this process lives,
        /// unless the server refused it.
        ends: bursar_units::Instant,
        /// Cause.
        #[source]
        source: client::Error,
    },
    /// The booking was granted, and lost before the client received the grant.
    #[error("booking {id} was granted, but lost before the grant was received")]
    LostAtOnce {
        /// Id of the booking.
        id: BookingId,
    },
    /// The new id is not valid.
    #[error("cannot make an id")]
    Id(#[from] bursar_units::NameError),
}

/// Cause of the loss of a slot.
#[derive(Clone, Debug, Error)]
pub enum Lost {
    /// The server has ended the booking: it expired, or an operator released it.
    #[error("the server has ended it: {how}")]
    Fenced {
        /// Answer of the server.
        how: String,
    },
    /// No renewal succeeded before the deadline.
    #[error("no renewal has succeeded since {}, and its ttl is over", instant::format(*renewed))]
    Unrenewed {
        /// Time at which the last successful renewal, or the granted request, was sent.
        renewed: bursar_units::Instant,
        /// Error of the last attempt; `None` if there was no time for one.
        #[source]
        cause: Option<Arc<client::Error>>,
    },
}

/// A held slot. Dropping it releases it in the background, with repeats until its deadline.
#[derive(Debug)]
pub struct Slot {
    client: Client,
    id: BookingId,
    ttl: Duration,
    request: ReleaseRequest,
    state: watch::Receiver<RenewalState>,
    renewer: JoinHandle<()>,
    is_over: bool,
}

#[derive(Clone, Debug)]
struct RenewalState {
    /// Time at which the last successful renewal was sent.
    renewed: Instant,
    /// Error of the attempts since then.
    cause: Option<Arc<client::Error>>,
    lost: Option<Lost>,
}

/// A requested slot, which may be queued. Dropping it leaves the queue in the background, with one
/// attempt; [`Asked::leave`] waits for the answer.
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
    /// Reserves a slot under a new id and waits as long as the request allows.
    ///
    /// Dropping the future leaves the queue in the background.
    pub async fn reserve(client: &Client, request: &BookingRequest) -> Result<Self, Error> {
        let asked = Asked::ask(client, &ids::new("slot")?, request, true).await?;
        asked.granted().await
    }

    /// The same under an id of the caller, so that it can be repeated after a crash.
    ///
    /// Without an answer, a booking of that id is left unchanged, because an earlier request under
    /// it may hold it. A repeat returns its state; without one its wait or its ttl ends it.
    pub async fn reserve_as(
        client: &Client,
        id: &BookingId,
        request: &BookingRequest,
    ) -> Result<Self, Error> {
        let asked = Asked::new(client, id, request).await?;
        asked.granted().await
    }

    fn hold(renewal: Renewal) -> Self {
        let state = renewal.state.subscribe();
        let (client, id, ttl) = (renewal.client.clone(), renewal.id.clone(), renewal.ttl);
        let request = with_fence(renewal.request.fence);
        let renewer = tokio::spawn(renewal.run());
        Self {
            client,
            id,
            ttl,
            request,
            state,
            renewer,
            is_over: false,
        }
    }

    /// Id of the booking.
    pub fn id(&self) -> &BookingId {
        &self.id
    }

    /// Number that proves that the slot is held; the work sends it with its writes.
    pub fn fence(&self) -> u64 {
        self.request.fence.unwrap_or_default()
    }

    /// Ends when the slot is no longer held; the work must stop then. For use in `select!`.
    pub async fn lost(&self) -> Lost {
        let mut state = self.state.clone();
        let lost = state.wait_for(|state| state.lost.is_some()).await;
        let lost = lost.ok().and_then(|state| state.lost.clone());
        // The renewing task ends only with the runtime or with this slot.
        lost.unwrap_or_else(|| self.state.borrow().unrenewed())
    }

    /// Releases the slot with the outcome of the work.
    ///
    /// The release is repeated until the server answers, the deadline of the booking passes, or
    /// [`RELEASE_WAIT`] is over. Then, or if this future is dropped, it is repeated in the background
    /// until the deadline.
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
        // `Drop` repeats a release that is not over.
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

    /// Time at which its ttl ends it without a renewal or release. After a restart of the server it
    /// lasts one ttl more.
    pub fn ends(&self) -> bursar_units::Instant {
        wall(self.deadline())
    }

    fn deadline(&self) -> Instant {
        self.state.borrow().renewed + self.ttl
    }

    /// Cause of the loss, if this process knows at that time that the slot is not held.
    fn lost_until(&self, now: Instant) -> Option<Lost> {
        let state = self.state.borrow();
        let is_late = state.renewed + self.ttl <= now;
        let unrenewed = || is_late.then(|| state.unrenewed());
        state.lost.clone().or_else(unrenewed)
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.renewer.abort();
        if self.is_over {
            return;
        }
        let mut background = BackgroundRelease {
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
            let answer = repeats.release(&client, &background.id, &request).await;
            background.answered(answer);
        });
    }
}

/// Release in the background. Dropped with a cause, it logs that the slot was not released.
struct BackgroundRelease {
    id: BookingId,
    ends: bursar_units::Instant,
    cause: Option<String>,
}

impl BackgroundRelease {
    /// A booking that the server has ended needs no release.
    fn answered(&mut self, answer: Result<Booking, client::Error>) {
        let error = answer.err().filter(|error| !is_fenced(error));
        self.cause = error.map(|error| chain(&error));
    }
}

impl Drop for BackgroundRelease {
    fn drop(&mut self) {
        if let Some(cause) = &self.cause {
            let ends = instant::format(self.ends);
            tracing::warn!(booking = %self.id, %ends, %cause, "{}", log::SLOT_NOT_GIVEN_BACK);
        }
    }
}

impl RenewalState {
    fn unrenewed(&self) -> Lost {
        Lost::Unrenewed {
            renewed: wall(self.renewed),
            cause: self.cause.clone(),
        }
    }
}

/// Attempts of a release, with growing random pauses, until an end.
#[derive(Debug)]
pub struct Repeats {
    pause: Pause,
    end: Instant,
}

impl Repeats {
    /// Attempts until a time.
    pub const fn until(end: Instant) -> Self {
        let pause = Pause::new();
        Self { pause, end }
    }

    /// Waits for the next attempt; false if the end comes first.
    pub async fn again(&mut self) -> bool {
        let next = Instant::now() + self.pause.next();
        if self.end <= next {
            return false;
        }
        sleep_until(next).await;
        true
    }

    /// Sends a release, at least once, until the server answers with the booking or a refusal.
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
                // The error of the attempt before is more precise than a timeout.
                Err(_) => last.unwrap_or_else(|| client.timed_out(until - began)),
            };
            if is_refusal(&error) || !self.again().await {
                return Err(error);
            }
            (last, end) = (Some(error), self.end);
        }
    }
}

/// Loss of the slot that the answer to a release shows.
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

pub(crate) fn with_fence(fence: u64) -> ReleaseRequest {
    ReleaseRequest {
        fence: Some(fence),
        ..ReleaseRequest::default()
    }
}

impl Asked {
    /// Requests a slot; the answer is in [`Asked::booking`]. Without an answer, a booking of the id
    /// is left unchanged.
    pub async fn new(
        client: &Client,
        id: &BookingId,
        request: &BookingRequest,
    ) -> Result<Self, Error> {
        Self::ask(client, id, request, false).await
    }

    /// Requests a slot. A booking of a new id belongs to this request, even without an answer.
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
                // A refused request leaves no booking; any other may have made one.
                asked.is_over |= error
                    .problem()
                    .is_some_and(|problem| problem.code != Code::OutcomeUnknown);
                Err(error.into())
            }
        }
    }

    /// State in the last answer of the server.
    pub fn booking(&self) -> &Booking {
        &self.booking
    }

    /// Reads the booking as soon as it no longer waits, or after `most`.
    ///
    /// An unavailable server is waited for as long as the ttl: a slot that is granted meanwhile is
    /// still held then. Cancellation-safe.
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

    /// Waits for the grant and holds the slot.
    pub async fn granted(mut self) -> Result<Slot, Error> {
        while self.booking.state == State::Queued {
            self.look(LOOK).await?;
        }
        let id = self.id.clone();
        let fence = match (self.booking.state, self.booking.fence) {
            (State::Granted, Some(fence)) => fence,
            (State::Granted, None) => {
                let what = format!("booking {id} is granted, but the answer has no fence");
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
            state: watch::Sender::new(RenewalState {
                renewed: self.sent,
                cause: None,
                lost: None,
            }),
        };
        if self.has_waited {
            // The time of the grant is not known here; a renewal gives a known deadline.
            let renewed = renewal.renew(Instant::now() + renewal.ttl).await;
            let id = &renewal.id;
            renewed.map_err(|_| Error::LostAtOnce { id: id.clone() })?;
        }
        self.is_over = true;
        Ok(Slot::hold(renewal))
    }

    /// Leaves the queue, or releases the slot if it was granted meanwhile.
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

/// Ends a queued or granted booking without a check of its holder. The caller must know that the
/// booking is its own.
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

struct Renewal {
    client: Client,
    id: BookingId,
    request: RenewRequest,
    ttl: Duration,
    state: watch::Sender<RenewalState>,
}

impl Renewal {
    async fn run(self) {
        loop {
            let renewed = self.state.borrow().renewed;
            sleep_until(renewed + uneven(self.ttl / 3, JITTER_PERCENT)).await;
            if let Err(lost) = self.renew(renewed + self.ttl).await {
                self.state.send_modify(|state| state.lost = Some(lost));
                return;
            }
        }
    }

    async fn renew(&self, deadline: Instant) -> Result<(), Lost> {
        let mut pause = Pause::new();
        loop {
            let sent = Instant::now();
            let renewal = self.client.renew(&self.id, &self.request, Mode::Do);
            let error = match timeout_at(deadline, renewal).await {
                Ok(Ok(_)) => {
                    self.state.send_modify(|state| {
                        (state.renewed, state.cause) = (sent, None);
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
            self.state.send_modify(|state| {
                // The error of the attempt before is more precise than a timeout.
                let cause = error.or_else(|| state.cause.take());
                let cut = || Arc::new(self.client.timed_out(deadline - sent));
                state.cause = Some(cause.unwrap_or_else(cut));
            });
            let next = Instant::now() + pause.next();
            sleep_until(next.min(deadline)).await;
            if next >= deadline {
                return Err(self.state.borrow().unrenewed());
            }
        }
    }
}

/// True if the server answered that the slot is no longer held.
fn is_fenced(error: &client::Error) -> bool {
    error
        .problem()
        .is_some_and(|problem| matches!(problem.code, Code::StaleFence | Code::NotFound))
}

/// True if the server refused; any other error may be temporary.
pub(crate) fn is_refusal(error: &client::Error) -> bool {
    error
        .problem()
        .is_some_and(|problem| problem.code.status() < 500 && problem.code != Code::SlowDown)
}

/// Wall-clock time of a time of the monotonic clock.
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
