//! The CPU of a node.

use std::path::PathBuf;

use clap::Subcommand;

use super::HELP;

/// What can be done with a market by itself.
#[derive(Debug, Subcommand)]
pub(crate) enum MarketVerb {
    /// Clear one node from a file, and explain each number
    #[command(
        before_help = "example:  bursar market clear -f market.yaml",
        before_long_help = "\
examples:
  bursar market clear -f market.yaml           who gets what, and why
  bursar market clear -f market.yaml -o json   the same for programs
  bursar market clear -f -                     from stdin

a file:
  capacityMilli: 1000
  policy: proportional            # or weighted-nash, full-capacity
  quantumMilli: 1
  pods:                           # demandPpm, or needMilli instead
  - {id: a, minMilli: 100, maxMilli: 1000, weight: 100, demandPpm: 600000}
  - {id: b, minMilli: 100, maxMilli: 1000, needMilli: 533, currentMilli: 300, cooling: true}",
        after_help = "No server is asked: it is the very function that the agent of a node calls.",
        help_template = HELP
    )]
    Clear {
        /// A file, or - for stdin
        #[arg(short, long, value_name = "FILE")]
        file: PathBuf,
    },
}
