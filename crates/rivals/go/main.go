// The Go side of rivals: `rivals-go <workload> key=value...` measures one workload and prints `key value` lines, as a child of rivals
// does. It is started by `rivals --one <workload> peer=go ...`, which pins it to one core if w=1.
//
//	main.go       arguments, the list of workloads, passes, clocks
//	tasks.go      goroutines without channels: spawn_join, spawn_await, yield, mutex, timers
//	channels.go   pingpong, ring, sieve, mpmc, select, stages, skynet
//	requests.go   skew and noisy: latencies of periodic requests beside goroutines that compute
//
// What an operation is, is said in ../src/workloads, in the file of the workload; this program does the same the way Go's own
// documentation tells: unbuffered channels for a rendezvous, a WaitGroup to join, GOMAXPROCS for the workers.
package main

import (
	"fmt"
	"os"
	"runtime"
	"sort"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// A measurement that takes longer ends itself, like the other children of rivals (which SIGALRM ends; Go ignores that signal).
const limit = 120 * time.Second

var workloads = map[string]func(){
	"spawn_join":  spawnJoin,
	"spawn_await": spawnAwait,
	"yield":       yielding,
	"mutex":       mutex,
	"timers":      timers,
	"pingpong":    pingpong,
	"ring":        ring,
	"sieve":       sieve,
	"mpmc":        mpmc,
	"select":      selecting,
	"stages":      stages,
	"skynet":      skynet,
	"skew":        skew,
	"noisy":       noisy,
}

var params = map[string]uint64{}

func main() {
	if len(os.Args) < 2 || workloads[os.Args[1]] == nil {
		fail("usage: rivals-go <workload> key=value...")
	}
	for _, argument := range os.Args[2:] {
		key, text, _ := strings.Cut(argument, "=")
		value, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			fail(argument + ": key=number is wanted")
		}
		params[key] = value
	}
	time.AfterFunc(limit, func() { fail("SIGALRM: still running after " + limit.String()) })
	runtime.GOMAXPROCS(size("w"))
	workloads[os.Args[1]]()
}

func fail(why string) {
	fmt.Fprintln(os.Stderr, "rivals-go: "+why)
	os.Exit(1)
}

// check is what assert is in the Rust sides.
func check(holds bool, what string) {
	if !holds {
		fail(what)
	}
}

// get is the value of a parameter that the case must have given.
func get(key string) uint64 {
	value, found := params[key]
	check(found, "parameter "+key+"=<number> is missing")
	return value
}

func size(key string) int { return int(get(key)) }

func show(key string, value float64) { fmt.Println(key, value) }

// span is wall and CPU time, in seconds.
type span struct{ wall, cpu float64 }

func meter() func() span {
	cpu, start := cpuSeconds(), time.Now()
	return func() span { return span{time.Since(start).Seconds(), cpuSeconds() - cpu} }
}

func (s span) show(operations uint64) {
	show("ns", s.wall*1e9/float64(operations))
	show("cpu", s.cpu*1e9/float64(operations))
}

// passes runs a warm-up and then up to three measured passes (no new one after four seconds), and shows the median by wall time.
// A pass returns its number of operations.
func passes(pass func() uint64) {
	const most = 3
	const patience = 4 * time.Second
	started := time.Now()
	operations := pass()
	var done []span
	for len(done) < most && (len(done) == 0 || time.Since(started) < patience) {
		stop := meter()
		pass()
		done = append(done, stop())
	}
	sort.Slice(done, func(a, b int) bool { return done[a].wall < done[b].wall })
	done[len(done)/2].show(operations)
}

// cpuSeconds is the CPU time of this process, of all its threads.
func cpuSeconds() float64 {
	const processClock = 2
	var now syscall.Timespec
	_, _, err := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, processClock, uintptr(unsafe.Pointer(&now)), 0)
	check(err == 0, "Linux has a CPU clock of processes")
	return float64(now.Sec) + float64(now.Nsec)/1e9
}

// percentile is the value below which a share of the sorted values lies.
func percentile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[int(float64(len(sorted)-1)*share)]
}
