//! S3-23, S3-24: a machine can take out of its input port and cannot put anything in; and what it puts out goes through the functions of
//! its own ports: there is no way to the output of another one, nor past its own.

use fibra::machine::{Machine, Ports, Timestamp};

struct Busybody;

impl Machine for Busybody {
    fn tick(&mut self, _: Timestamp, ports: &mut Ports<'_>) {
        if let Some(request) = ports.input.submissions.pop() {
            ports.input.submissions.push(request);
        }
        if let Some(request) = ports.input.submissions.pop() {
            ports.out.submissions.push(request);
        }
        if let Some(done) = ports.input.completions.take() {
            drop(done);
        }
        *ports.input = fibra::machine::Port::new();
    }
}

fn main() {}
