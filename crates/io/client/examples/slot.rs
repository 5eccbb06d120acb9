//! Holds a slot while some work runs: `cargo run --example slot -- unix:PATH CLASS`.

use std::error::Error;
use std::time::Duration;

use bursar_client::api::{BookingRequest, Outcome};
use bursar_client::client::{Options, Transport};
use bursar_client::{Client, Slot};

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    let mut args = std::env::args().skip(1);
    let (Some(server), Some(class)) = (args.next(), args.next()) else {
        return Err("usage: slot SERVER CLASS".into());
    };
    let client = Client::new(Transport::to(server.parse()?), Options::usual());
    let request = BookingRequest {
        wait_ms: Some(60_000),
        ..BookingRequest::new(class.parse()?)
    };
    let slot = Slot::reserve(&client, &request).await?;
    tokio::select! {
        () = work(slot.fence()) => {
            slot.release(Outcome::Ok, Some(0)).await?;
            Ok(())
        }
        // `select!` drops the work: another client may hold the slot now.
        why = slot.lost() => Err(format!("the slot is lost: {why}").into()),
    }
}

/// Real work sends its fence with every write, so that the receiver can refuse late writes.
async fn work(fence: u64) {
    println!("working under fence {fence}");
    tokio::time::sleep(Duration::from_secs(1)).await;
}
