//! A slot: asked for, held, renewed in the background, given back.
//!
//! [`Slot::reserve`] is all that most callers need; whoever wants to see the queue asks through
//! [`Asked`]. Renewal runs in a task of its own at a third of the ttl, so work that is slow does
//! not lose its slot; work that blocks its thread should run where it does not block the runtime.
//! The holder is told through [`Slot::lost`] when the slot is no longer its own: the server said
//! so, or nobody could be asked until the deadline, which is counted from before the last renewal
//! was sent and so never ends later than the server's.

use std::time::Duration;

use bursar_units::BookingId;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};

use crate::api::{Booking, BookingRequest, End, Outcome, ReleaseRequest, RenewRequest, State};
use crate::client::{self, Client, Mode, Pause, uneven};
use crate::ids;
use crate::problem::Code;

/// What a request that names no ttl gets (S7).
const TTL_DEFAULT: Duration = Duration::from_millis(bursar_booking::TTL_DEFAULT.ms());
/// How long one look at a waiting booking waits for it to change.
const LOOK: Duration = Duration::from_secs(30);
/// How much earlier than a third of the ttl a renewal may come, in percent: so that slots that
/// were granted together are not renewed together.
const JITTER_PERCENT: u32 = 20;

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
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Lost {
    /// The server said so: it expired, or was taken back.
    Fenced,
    /// Nobody could be asked until its time was over.
    Unrenewed,
}

/// A held slot. Dropping it gives it back as well as that can be done without waiting.
#[derive(Debug)]
pub struct Slot {
    client: Client,
    id: BookingId,
    fence: u64,
    lost: watch::Receiver<Option<Lost>>,
    renewer: JoinHandle<()>,
    is_over: bool,
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

    fn hold(renewal: Renewal, sent: Instant) -> Self {
        let (tell, lost) = watch::channel(None);
        let (client, id) = (renewal.client.clone(), renewal.id.clone());
        let fence = renewal.request.fence;
        let renewer = tokio::spawn(async move {
            let why = renewal.run(sent).await;
            tell.send_replace(Some(why));
        });
        Self {
            client,
            id,
            fence,
            lost,
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
        self.fence
    }

    /// Ends when the slot is no longer held: stop the work then. Select on it beside the work.
    pub async fn lost(&self) -> Lost {
        let mut lost = self.lost.clone();
        let told = lost
            .wait_for(Option::is_some)
            .await
            .ok()
            .and_then(|why| *why);
        // The task that tells ends only with the runtime or with this slot.
        told.unwrap_or(Lost::Unrenewed)
    }

    /// Gives the slot back and says how the work went.
    pub async fn release(
        mut self,
        outcome: Outcome,
        exit_code: Option<i32>,
    ) -> Result<Booking, Error> {
        self.is_over = true;
        self.renewer.abort();
        let request = self.release_request(Some(outcome), exit_code);
        Ok(self.client.release(&self.id, &request, Mode::Do).await?)
    }

    fn release_request(&self, outcome: Option<Outcome>, exit_code: Option<i32>) -> ReleaseRequest {
        let fence = Some(self.fence);
        ReleaseRequest {
            fence,
            outcome,
            exit_code,
            force: false,
            reason: None,
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.renewer.abort();
        if self.is_over {
            return;
        }
        let (client, id) = (self.client.clone(), self.id.clone());
        let request = self.release_request(None, None);
        // Without a runtime the slot comes back by its ttl.
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { client.release(&id, &request, Mode::Do).await });
        }
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
        };
        if self.has_waited {
            // How long ago it was granted is not known here; a renewal makes the deadline known.
            let renewed = renewal.renew(Instant::now() + renewal.ttl).await;
            let id = &renewal.id;
            self.sent = renewed.map_err(|_| Error::LostAtOnce { id: id.clone() })?;
        }
        self.is_over = true;
        Ok(Slot::hold(renewal, self.sent))
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
        let request = ReleaseRequest {
            fence: Some(fence),
            ..ReleaseRequest::default()
        };
        client.release(id, &request, Mode::Do).await?;
    }
    Ok(())
}

/// Shows life until that is no longer believed.
struct Renewal {
    client: Client,
    id: BookingId,
    request: RenewRequest,
    ttl: Duration,
}

impl Renewal {
    async fn run(self, mut sent: Instant) -> Lost {
        loop {
            sleep_until(sent + uneven(self.ttl / 3, JITTER_PERCENT)).await;
            match self.renew(sent + self.ttl).await {
                Ok(renewed) => sent = renewed,
                Err(why) => return why,
            }
        }
    }

    /// Renews, however often that must be tried, until the deadline; answers when it was sent.
    async fn renew(&self, deadline: Instant) -> Result<Instant, Lost> {
        let mut pause = Pause::new();
        loop {
            let sent = Instant::now();
            let renewal = self.client.renew(&self.id, &self.request, Mode::Do);
            match timeout_at(deadline, renewal).await {
                Ok(Ok(_)) => return Ok(sent),
                Ok(Err(error)) if is_fenced(&error) => return Err(Lost::Fenced),
                Err(_) => return Err(Lost::Unrenewed),
                Ok(Err(_)) => {
                    let next = Instant::now() + pause.next();
                    sleep_until(next.min(deadline)).await;
                    if next >= deadline {
                        return Err(Lost::Unrenewed);
                    }
                }
            }
        }
    }
}

/// Whether the server has said that the slot is no longer held.
fn is_fenced(error: &client::Error) -> bool {
    error
        .problem()
        .is_some_and(|problem| matches!(problem.code, Code::StaleFence | Code::NotFound))
}

/// Whether the server has answered, and the answer is no; anything else may pass.
fn is_refusal(error: &client::Error) -> bool {
    error.problem().is_some_and(|problem| {
        !matches!(
            problem.code,
            Code::Busy
                | Code::Unavailable
                | Code::NotLeader
                | Code::OutcomeUnknown
                | Code::SlowDown
                | Code::Internal
        )
    })
}

fn ttl(ttl_ms: Option<u64>) -> Duration {
    ttl_ms.map_or(TTL_DEFAULT, Duration::from_millis)
}
