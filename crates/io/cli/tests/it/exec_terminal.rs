//! `bursar exec` at a terminal: the program gets keys, colours, window size and job control.

use rustix::process::{Pid, Signal, kill_process};

use crate::exec_running::{Running, program};
use crate::house::House;

/// Starts a command in a new terminal.
fn at_terminal(house: &House, words: &[&str]) -> Running {
    let mut command = program(house, "python3");
    command
        .args(["-c", include_str!("terminal.py")])
        .args(words);
    Running::start(&mut command)
}

/// Counts interrupts and changes of the window size, resizes the window at USR2, and prints the
/// counts at USR1, when the terminal and `bursar` have forwarded everything.
const COUNTS: &str = "
import fcntl, os, signal, struct, sys, termios
count = {'INT': 0, 'WINCH': 0}
def counted(number, _):
    name = signal.Signals(number).name[3:]
    count[name] += 1
    os.write(1, b'%s seen\\n' % name.encode())
def resize(*_):
    fcntl.ioctl(1, termios.TIOCSWINSZ, struct.pack('HHHH', 40, 90, 0, 0))
def asked(*_):
    os.write(1, b'counted %d %d\\n' % (count['INT'], count['WINCH']))
    sys.exit(42)
signal.signal(signal.SIGINT, counted)
signal.signal(signal.SIGWINCH, counted)
signal.signal(signal.SIGUSR1, asked)
signal.signal(signal.SIGUSR2, resize)
print('colours', sys.stdout.isatty(), 'window', *os.get_terminal_size(), flush=True)
print('parent', os.getppid(), flush=True)
while True: signal.pause()
";

#[test]
fn keys_and_window_changes_reach_the_program_once_and_its_exit_code_is_returned() {
    let house = House::new();
    let _server = house.up(&[]);
    let mut terminal = at_terminal(&house, &["bursar", "exec", "--", "python3", "-c", COUNTS]);
    assert_eq!(terminal.line(), "colours True window 120 33\r\n");
    let parent = terminal.line();
    let parent: i32 = parent
        .trim()
        .strip_prefix("parent ")
        .unwrap()
        .parse()
        .unwrap();
    terminal.write("\u{3}");
    terminal.until("INT seen\r\n");
    let parent = Pid::from_raw(parent).unwrap();
    kill_process(parent, Signal::USR2).unwrap();
    terminal.until("WINCH seen\r\n");
    kill_process(parent, Signal::USR1).unwrap();
    terminal.until("counted 1 1\r\n");
    assert_eq!(terminal.end().code, 42);
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "");
}

/// Without a terminal the output is printed byte for byte.
#[test]
fn logs_of_a_detached_program_cannot_control_a_terminal() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = r"printf 'a\033[2J\tb\342\200\256\n'; printf '\033]0;c\007\n' >&2";
    let words = ["exec", "--detach", "--id", "evil", "--", "sh", "-c", script];
    house.ok(&words);
    let piped = house.run(&["booking", "logs", "evil", "-f"]);
    assert_eq!(piped.stdout, "a\u{1b}[2J\tb\u{202e}\n");
    assert_eq!(piped.stderr, "\u{1b}]0;c\u{7}\n");
    for (stream, shown) in [
        ("stdout", "a\\u{1b}[2J\tb\\u{202e}\r\n"),
        ("stderr", "\\u{1b}]0;c\\u{7}\r\n"),
    ] {
        let words = ["bursar", "booking", "logs", "evil", "--stream", stream];
        assert_eq!(at_terminal(&house, &words).end().stdout, shown);
    }
    let both = at_terminal(&house, &["bursar", "booking", "logs", "evil"]);
    let both = both.end().stdout;
    assert!(
        !both.contains('\u{1b}') && !both.contains('\u{7}'),
        "{both:?}"
    );
}

#[test]
fn a_program_ended_by_a_key_releases_its_slot() {
    let house = House::new();
    let _server = house.up(&[]);
    let script = "echo ready; read x";
    let mut terminal = at_terminal(&house, &["bursar", "exec", "--", "sh", "-c", script]);
    terminal.until("ready\r\n");
    terminal.write("\u{3}");
    assert_eq!(terminal.end().code, 130);
    let ended = house.ok(&["bookings", "--where", "state=ended"]);
    assert!(ended.contains("failed, exit 130"), "{ended}");
}

#[test]
fn children_of_a_program_end_with_it_although_the_process_group_is_the_callers() {
    let house = House::new();
    let _server = house.up(&[]);
    let inner = "trap 'echo inner told; exit 0' TERM; sleep 1000 & wait";
    let script = "sh -c \"$0\" & wait";
    let line = "bursar exec --max-time 1s -- sh -c \"$0\" \"$1\"; echo outer $?";
    let mut terminal = at_terminal(&house, &["sh", "-c", line, script, inner]);
    let text = terminal.until("outer 124\r\n");
    assert!(text.contains("inner told"), "{text}");
    assert_eq!(terminal.end().code, 0, "the caller's shell is left alone");
}

#[test]
fn children_that_ignore_sigterm_are_killed_before_the_slot_is_released() {
    let house = House::new();
    let _server = house.up(&[]);
    let inner = "trap '' TERM HUP; echo inner $$; while :; do sleep 1000; done";
    let script = "sh -c \"$0\" & wait";
    let line = "bursar exec --max-time 1s -- sh -c \"$0\" \"$1\"; echo outer $?";
    let mut terminal = at_terminal(&house, &["sh", "-c", line, script, inner]);
    terminal.until("inner ");
    let inner = terminal.line();
    terminal.until("outer 124\r\n");
    // Its new parent may not have reaped it yet.
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", inner.trim()));
    assert!(
        stat.as_ref().map_or(true, |stat| stat.contains(") Z ")),
        "{stat:?}"
    );
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "");
    assert_eq!(terminal.end().code, 0);
}

#[test]
fn the_line_of_a_wait_is_updated_in_place_and_ctrl_c_leaves_the_queue() {
    let house = House::new();
    let _server = house.up(&[]);
    house.ok(&[
        "limit", "set", "python", "--class", "python", "--slots", "1",
    ]);
    for id in ["holder", "other"] {
        house.ok(&[
            "booking", "reserve", "python", "--id", id, "--ttl", "1h", "--wait", "1h",
        ]);
    }
    let words = ["bursar", "exec", "--class", "python", "--", "echo", "ran"];
    let mut terminal = at_terminal(&house, &words);
    terminal.until("\rwaiting: 2nd for python, 1/1 slots in use, time unknown");
    house.ok(&["booking", "cancel", "other"]);
    let change = terminal.until("\rwaiting: 1st for python, 1/1 slots in use, time unknown");
    assert!(!change.contains('\n'), "{change:?}");
    terminal.write("\u{3}");
    let ended = terminal.end();
    assert_eq!(ended.code, 130);
    assert!(
        ended.stdout.ends_with("\r\n") && !ended.stdout.contains("ran"),
        "{:?}",
        ended.stdout
    );
    assert_eq!(house.ok(&["bookings", "-o", "name"]), "booking/holder\n");
}

#[test]
fn a_program_is_stopped_and_continued_as_a_job_of_the_shell() {
    let house = House::new();
    let _server = house.up(&[]);
    let words = ["env", "PS1=next> ", "sh", "-i"];
    let mut terminal = at_terminal(&house, &words);
    terminal.until("next> ");
    let script = "echo rea\"\"dy $$; read x; echo go\"\"t $x; exit 9";
    terminal.write(&format!("bursar exec -- sh -c '{script}'\n"));
    terminal.until("ready ");
    let program = terminal.line();
    terminal.write("\u{1a}");
    terminal.until("Stopped");
    terminal.until("next> ");
    // The shell waits for its own child only; input before the program has stopped goes to the
    // program.
    let stat = format!("/proc/{}/stat", program.trim());
    while !std::fs::read_to_string(&stat).unwrap().contains(") T ") {
        std::thread::yield_now();
    }
    terminal.write("fg\n");
    terminal.until("fg\r\n");
    terminal.write("on\n");
    terminal.until("got on\r\n");
    terminal.until("next> ");
    terminal.write("exit 0\n");
    assert_eq!(terminal.end().code, 0);
    let ended = house.ok(&["bookings", "--where", "state=ended"]);
    assert!(ended.contains("failed, exit 9"), "{ended}");
}
