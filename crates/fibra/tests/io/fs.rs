//! Files: what std does, fibers do, without holding up their worker.

use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use crate::support;
use fibra::fs::{self, DirBuilder, File, OpenOptions};

/// A folder of the test's own, gone with it.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("fibra-fs-{}-{}", std::process::id(), NEXT.fetch_add(1, SeqCst));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// On a fiber and on a plain thread.
fn everywhere(f: impl Fn(&Folder) -> io::Result<()>) {
    let _watchdog = support::watchdog(60);
    fibra::run(|| f(&Folder::new())).unwrap();
    f(&Folder::new()).unwrap();
}

#[test]
fn a_file_is_written_read_and_sought() {
    everywhere(|folder| {
        let path = folder.path("a");
        let mut file = File::options().read(true).write(true).create_new(true).open(&path)?;
        file.write_all(b"0123456789")?;
        assert_eq!(file.stream_position()?, 10);
        assert_eq!(file.seek(SeekFrom::Start(2))?, 2);
        let mut three = [0; 3];
        file.read_exact(&mut three)?;
        assert_eq!(&three, b"234");
        assert_eq!(file.seek(SeekFrom::Current(-1))?, 4);
        assert_eq!(file.seek(SeekFrom::End(-1))?, 9);
        let mut rest = Vec::new();
        assert_eq!(file.read_to_end(&mut rest)?, 1);
        assert_eq!(file.read(&mut three)?, 0, "the end");
        assert_eq!(file.read(&mut three)?, 0, "and again");
        assert_eq!(file.read(&mut [])?, 0);
        // A partial read at the end.
        file.seek(SeekFrom::Start(8))?;
        assert_eq!(file.read(&mut three)?, 2);
        assert_eq!(file.seek(SeekFrom::Current(-100)).unwrap_err().kind(), ErrorKind::InvalidInput);
        // By reference, and vectored.
        (&file).rewind()?;
        let (mut one, mut two) = ([0; 4], [0; 3]);
        let read = (&file).read_vectored(&mut [IoSliceMut::new(&mut one), IoSliceMut::new(&mut two)])?;
        assert_eq!((read, &one, &two), (7, b"0123", b"456"));
        (&file).rewind()?;
        assert_eq!((&file).write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"c")])?, 3);
        file.rewind()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        assert_eq!(text, "abc3456789");
        file.flush()
    });
}

#[test]
fn places_lengths_and_permissions() {
    everywhere(|folder| {
        let path = folder.path("a");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path)?;
        file.write_all_at(b"hello", 3)?;
        let mut five = [0; 5];
        file.read_exact_at(&mut five, 3)?;
        assert_eq!(&five, b"hello");
        assert_eq!(file.read_at(&mut five, 6)?, 2);
        assert_eq!(file.write_at(b"x", 0)?, 1);
        assert_eq!(file.read_exact_at(&mut five, 6).unwrap_err().kind(), ErrorKind::UnexpectedEof);
        assert_eq!((&file).stream_position()?, 0, "the file's own place is where it was");
        assert_eq!(file.metadata()?.len(), 8);
        file.set_len(2)?;
        assert_eq!(fs::read(&path)?, b"x\0");
        file.sync_all()?;
        file.sync_data()?;
        file.set_permissions(PermissionsExt::from_mode(0o640))?;
        assert_eq!(fs::metadata(&path)?.permissions().mode() & 0o777, 0o640);
        fs::set_permissions(&path, PermissionsExt::from_mode(0o600))?;
        assert_eq!(file.metadata()?.permissions().mode() & 0o777, 0o600);
        let then = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
        file.set_modified(then)?;
        assert_eq!(file.metadata()?.modified()?, then);
        // Clones share the place; conversions keep the file.
        let mut clone = file.try_clone()?;
        clone.seek(SeekFrom::Start(1))?;
        assert_eq!((&file).stream_position()?, 1);
        assert!(clone.as_fd().as_raw_fd() > 2 && format!("{file:?}").contains("File"));
        let mut std_file = file.into_std();
        let mut rest = Vec::new();
        std_file.read_to_end(&mut rest)?;
        assert_eq!(rest, b"\0");
        let mut again = File::from(OwnedFd::from(File::from(std_file)));
        again.rewind()?;
        assert_eq!(again.read(&mut five)?, 2);
        Ok(())
    });
}

#[test]
fn the_functions_of_std() {
    everywhere(|folder| {
        let (a, b) = (folder.path("a"), folder.path("b"));
        fs::write(&a, "text")?;
        assert_eq!((fs::read(&a)?, fs::read_to_string(&a)?), (b"text".to_vec(), "text".to_owned()));
        assert_eq!(fs::copy(&a, &b)?, 4);
        fs::rename(&b, folder.path("c"))?;
        assert!(!fs::exists(&b)? && fs::try_exists(folder.path("c"))?);
        fs::hard_link(&a, &b)?;
        fs::symlink("a", folder.path("link"))?;
        assert_eq!(fs::read_link(folder.path("link"))?, Path::new("a"));
        assert!(
            fs::symlink_metadata(folder.path("link"))?.is_symlink() && fs::metadata(folder.path("link"))?.is_file()
        );
        assert_eq!(fs::canonicalize(folder.path("link"))?, fs::canonicalize(&a)?);
        fs::create_dir(folder.path("d"))?;
        fs::create_dir_all(folder.path("d/e/f"))?;
        DirBuilder::new().recursive(true).mode(0o700).create(folder.path("d/e/f"))?;
        DirBuilder::new().mode(0o700).create(folder.path("d/g"))?;
        assert_eq!(fs::metadata(folder.path("d/g"))?.permissions().mode() & 0o777, 0o700);
        fs::remove_dir(folder.path("d/e/f"))?;
        assert!(fs::remove_dir(folder.path("d")).is_err(), "there is something in it");
        fs::remove_dir_all(folder.path("d"))?;
        fs::remove_file(&b)?;
        let mut names: Vec<_> = fs::read_dir(&folder.0)?
            .map(|entry| {
                let entry = entry.unwrap();
                assert_eq!(entry.path(), folder.0.join(entry.file_name()));
                assert_eq!(entry.metadata().unwrap().file_type(), entry.file_type().unwrap());
                assert!(entry.ino() != 0);
                entry.file_name().into_string().unwrap()
            })
            .collect();
        names.sort();
        assert_eq!(names, ["a", "c", "link"]);
        let lines = BufReader::new(File::open(&a)?).lines().collect::<io::Result<Vec<_>>>()?;
        assert_eq!(lines, ["text"]);
        // Opened for adding to it.
        OpenOptions::new().append(true).open(&a)?.write_all(b"s")?;
        assert_eq!(fs::read(&a)?, b"texts");
        File::create(&a)?;
        assert_eq!(fs::read(&a)?, b"");
        Ok(())
    });
}

/// What std says, said by fibers too.
#[test]
fn bad_input_is_the_error_of_std() {
    everywhere(|folder| {
        let same = |ours: io::Error, std: io::Error| {
            assert_eq!((ours.kind(), ours.raw_os_error()), (std.kind(), std.raw_os_error()), "{ours} / {std}");
        };
        let long = "x".repeat(5000);
        let zero = OsStr::from_bytes(b"a\0b");
        for path in [Path::new("/nowhere/at/all"), Path::new(""), Path::new(&long), Path::new(zero), &folder.0] {
            same(fs::read_to_string(path).unwrap_err(), std::fs::read_to_string(path).unwrap_err());
            same(File::create(path).unwrap_err(), std::fs::File::create(path).unwrap_err());
            same(fs::write(path, "").unwrap_err(), std::fs::write(path, "").unwrap_err());
            same(fs::read_link(path).unwrap_err(), std::fs::read_link(path).unwrap_err());
            same(fs::create_dir(path).unwrap_err(), std::fs::create_dir(path).unwrap_err());
            same(fs::remove_file(path).unwrap_err(), std::fs::remove_file(path).unwrap_err());
        }
        same(fs::read_dir("/nowhere").unwrap_err(), std::fs::read_dir("/nowhere").unwrap_err());
        same(fs::copy("/nowhere", folder.path("x")).unwrap_err(), std::fs::copy("/nowhere", "x").unwrap_err());
        same(OpenOptions::new().open("/").unwrap_err(), std::fs::OpenOptions::new().open("/").unwrap_err());
        let path = folder.path("bytes");
        fs::write(&path, [0xff, 0xfe])?;
        assert_eq!(fs::read_to_string(&path).unwrap_err().kind(), ErrorKind::InvalidData);
        same(File::create_new(&path).unwrap_err(), std::fs::File::create_new(&path).unwrap_err());
        // Opened for the other thing.
        same((&File::open(&path)?).write(b"x").unwrap_err(), io::Error::from_raw_os_error(libc::EBADF));
        let out = File::options().write(true).open(&path)?;
        same((&out).read(&mut [0; 1]).unwrap_err(), io::Error::from_raw_os_error(libc::EBADF));
        // Without permission. (Root may do everything.)
        fs::set_permissions(&path, PermissionsExt::from_mode(0o000))?;
        // SAFETY: the call takes nothing.
        if unsafe { libc::geteuid() } != 0 {
            assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::PermissionDenied);
        }
        Ok(())
    });
}

// Large and small reads, of a file that is in memory and one that may not be: always all of it, in order.
#[test]
fn every_byte_is_read_once() {
    let _watchdog = support::watchdog(60);
    let folder = Folder::new();
    let data: Vec<u8> = (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::fs::write(folder.path("a"), &data).unwrap();
    fibra::run(|| {
        for size in [1000, 4096, 65_536, 65_537, 300_000] {
            let mut file = File::open(folder.path("a")).unwrap();
            let mut all = Vec::new();
            let mut buffer = vec![0; size];
            loop {
                match file.read(&mut buffer).unwrap() {
                    0 => break,
                    read => all.extend_from_slice(&buffer[..read]),
                }
            }
            assert!(all == data, "in pieces of {size}");
        }
    });
}

#[test]
fn a_large_folder_is_listed_whole() {
    let _watchdog = support::watchdog(60);
    let folder = Folder::new();
    for n in 0..1000 {
        std::fs::write(folder.path(&n.to_string()), "").unwrap();
    }
    fibra::run(|| {
        let mut entries = fs::read_dir(&folder.0).unwrap();
        let mut numbers: Vec<u32> =
            entries.by_ref().map(|entry| entry.unwrap().file_name().to_str().unwrap().parse().unwrap()).collect();
        numbers.sort_unstable();
        assert!(numbers.iter().copied().eq(0..1000));
        assert!(entries.next().is_none(), "the end stays the end");
    });
}

/// A pipe with a name: opening it waits for the other end.
fn fifo(folder: &Folder) -> PathBuf {
    let path = folder.path("fifo");
    let name = std::ffi::CString::new(path.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name ends with a zero and lives through the call.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    path
}

// The worker is free while a call waits, and so are the others.
#[test]
fn a_call_that_waits_holds_up_no_fiber() {
    let _watchdog = support::watchdog(60);
    let folder = Folder::new();
    let path = fifo(&folder);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    runtime.run(|| {
        let there = path.clone();
        let opening = fibra::spawn(move || File::open(there));
        while fibra::spawn(|| 1).join().unwrap() == 1 && opening.is_finished() {}
        fs::write(folder.path("other"), "x").unwrap();
        assert!(!opening.is_finished());
        let mut writer = OpenOptions::new().write(true).open(&path).unwrap();
        let mut reader = opening.join().unwrap().unwrap();
        // An empty pipe is waited for too, and nothing is taken for its end.
        let reading = fibra::spawn(move || {
            let mut two = [0; 2];
            reader.read_exact(&mut two).map(|()| two)
        });
        fibra::sleep(Duration::from_millis(5));
        assert!(!reading.is_finished());
        writer.write_all(b"ok").unwrap();
        assert_eq!(&reading.join().unwrap().unwrap(), b"ok");
    });
}

// The report of a fiber in such a call says so, with the place of the call.
#[test]
fn a_fiber_in_a_call_says_so() {
    let _watchdog = support::watchdog(60);
    // Its fiber waits as one whose call is queued; cancelled, it wakes, finds that the call was made, and waits for that. On a busy machine
    // that may take longer than the shutdown waits: then the shutdown is tried again, with more time.
    let mut timeout = Duration::from_millis(20);
    loop {
        let text = shut_down_beside_a_call(timeout);
        if text.contains("in a call on files") && text.contains("tests/io/fs.rs") {
            break;
        }
        assert!(timeout < Duration::from_secs(10), "{text}");
        timeout *= 2;
    }
}

/// What `shutdown_timeout` says of a runtime whose only fiber is in a call that does not end.
fn shut_down_beside_a_call(timeout: Duration) -> String {
    let folder = Folder::new();
    let path = fifo(&folder);
    let runtime = fibra::Runtime::builder().workers(1).build().unwrap();
    let there = path.clone();
    let opening = runtime.spawn(move || File::open(there).map(drop));
    let started = || (runtime.metrics().blocking_threads, runtime.metrics().blocking_queued) == (1, 0);
    support::eventually(|| started() && runtime.metrics().parked == 1, || format!("{:?}", runtime.metrics()));
    let error = runtime.shutdown_timeout(timeout).unwrap_err();
    std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    assert!(opening.join().is_ok_and(|opened| opened.is_ok()));
    error.to_string()
}

// A time-out arrives when the call has ended, with its value; one around a loop of calls ends the loop.
#[test]
fn timeouts_arrive_between_calls() {
    let _watchdog = support::watchdog(60);
    let folder = Folder::new();
    let late = fibra::run(|| {
        fibra::timeout(Duration::from_millis(20), || {
            loop {
                fs::write(folder.path("a"), "x").unwrap();
                assert_eq!(fs::read(folder.path("a")).unwrap(), b"x");
                let mut byte = [0];
                File::open(folder.path("a")).unwrap().read_exact(&mut byte).unwrap();
            }
        })
    });
    assert!(late.is_err());
}

#[test]
fn many_fibers_use_files_at_once_and_none_leaks() {
    // In a process of its own: other tests open descriptors too.
    let test = "many_fibers_use_files_at_once_and_none_leaks";
    if !support::is_child(test) {
        let ended = support::rerun_self(test, &[]);
        return assert!(ended.status.success(), "{}{}", ended.stdout, ended.stderr);
    }
    let _watchdog = support::watchdog(120);
    let folder = Folder::new();
    let before = support::fds();
    fibra::run(|| {
        fibra::scope(|s| {
            for n in 0..200 {
                let path = folder.path(&format!("f{n}"));
                s.spawn(move || {
                    let mut file = File::options().read(true).write(true).create(true).open(&path).unwrap();
                    for turn in 0..10_u32 {
                        file.write_all(&turn.to_le_bytes()).unwrap();
                    }
                    file.rewind().unwrap();
                    let mut all = Vec::new();
                    file.read_to_end(&mut all).unwrap();
                    assert_eq!(all.len(), 40);
                    fs::remove_file(path).unwrap();
                });
            }
        });
        assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 0);
    });
    assert_eq!(support::fds(), before);
}

// The kernel makes a caller that uses the position of a file wait for one that does so already, perhaps for a device. So while such a call
// is on the pool, or on its way there, no other is made on a worker.
#[test]
fn who_shares_a_position_with_a_call_on_the_pool_does_not_hold_up_the_worker() {
    let _watchdog = support::watchdog(60);
    let folder = Folder::new();
    let path = folder.path("shared");
    std::fs::write(&path, b"0123456789").unwrap();
    let runtime = fibra::Runtime::builder().workers(1).max_blocking_threads(1).build().unwrap();
    runtime.run(|| {
        let file = File::open(&path).unwrap();
        let (go, wait) = std::sync::mpsc::channel::<()>();
        let (began, begins) = fibra::channel::bounded(1);
        // The only thread of the pool is busy, and so calls stay on their way.
        let busy = fibra::spawn_blocking(move || {
            began.send(()).unwrap();
            wait.recv()
        });
        begins.recv().unwrap();
        fibra::scope(|s| {
            let all = s.spawn_local(|| {
                let mut all = Vec::new();
                (&file).read_to_end(&mut all).map(|_| all)
            });
            fibra::yield_now(); // It is local, so it has begun when this returns.
            let soon = Duration::from_millis(5);
            assert!(fibra::timeout(soon, || (&file).stream_position()).is_err(), "it goes to the pool");
            assert!(fibra::timeout(soon, || (&file).read(&mut [0; 4])).is_err(), "it goes to the pool");
            let mut clone = file.try_clone().unwrap();
            assert!(fibra::timeout(soon, || clone.rewind()).is_err(), "a clone has the same position");
            let mut there = [0; 4];
            // At a place of its own it need not wait; if the file system knows how to read what is in memory.
            let at_place = fibra::timeout(soon, || file.read_at(&mut there, 2));
            assert!(at_place.is_err() || &there == b"2345");
            go.send(()).unwrap();
            assert_eq!(all.join().unwrap().unwrap(), b"0123456789");
        });
        busy.join().unwrap().unwrap();
        assert_eq!((&file).stream_position().unwrap(), 10, "and back on the worker");
    });
}
