// skew and noisy: latencies of small periodic requests while other goroutines compute. Goroutines have no place of their own and are
// preempted, so `spread` and `compute`, which are about fibra, change nothing here.
package main

import (
	"math/bits"
	"runtime"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

const requestWork = 5 * time.Microsecond

var roundsPerMicrosecond float64

//go:noinline
func compute(rounds uint64) uint64 {
	value := rounds
	for i := uint64(0); i < rounds; i++ {
		value = bits.RotateLeft64(value*31, 7)
	}
	return value
}

// calibrate finds the speed of this core: the best of several tries, since the others were disturbed.
func calibrate() {
	const tries, rounds = 20, 100_000
	best := time.Hour
	for i := 0; i < tries; i++ {
		start := time.Now()
		sink += compute(rounds)
		best = min(best, time.Since(start))
	}
	roundsPerMicrosecond = rounds / (float64(best) / 1e3)
}

// work computes for about this long.
func work(length time.Duration) {
	_ = compute(uint64(float64(length) / 1e3 * roundsPerMicrosecond))
}

type latency struct {
	due  time.Time
	took time.Duration
}

// requests is one goroutine's requests, due at fixed times whatever happened before, and their latencies.
type requests struct {
	due, end  time.Time
	period    time.Duration
	latencies []latency
}

func newRequests(start, end time.Time, period time.Duration, phase float64) *requests {
	due := start.Add(time.Duration(float64(period) * phase))
	return &requests{due, end, period, make([]latency, 0, int(end.Sub(start)/period)+2)}
}

// wait sleeps until the next request is due; false when there is no further one.
func (r *requests) wait() bool {
	if !r.due.Before(r.end) {
		return false
	}
	if rest := time.Until(r.due); rest > 0 {
		time.Sleep(rest)
	}
	return true
}

func (r *requests) serve() {
	work(requestWork)
	r.latencies = append(r.latencies, latency{r.due, time.Since(r.due)})
	r.due = r.due.Add(r.period)
}

// showLatencies shows the percentiles of what fell due before and after the turn.
func showLatencies(all [][]latency, turn time.Time) {
	var quiet, loaded []float64
	for _, latencies := range all {
		for _, l := range latencies {
			microseconds := float64(l.took) / 1e3
			if l.due.Before(turn) {
				quiet = append(quiet, microseconds)
			} else {
				loaded = append(loaded, microseconds)
			}
		}
	}
	sort.Float64s(quiet)
	sort.Float64s(loaded)
	show("p99_quiet_us", percentile(quiet, 0.99))
	show("p50_us", percentile(loaded, 0.50))
	show("p99_us", percentile(loaded, 0.99))
	show("max_us", percentile(loaded, 1))
}

func skew() {
	const tasks, heavy = 64, 8
	const period, heavyPeriod = 5 * time.Millisecond, 10 * time.Millisecond
	length := time.Duration(get("ms")) * time.Millisecond
	burst := time.Duration(float64(heavyPeriod) * float64(get("load")) / 100 / heavy)
	calibrate()
	start := time.Now()
	end := start.Add(length)
	var thread [tasks]atomic.Int64
	var isHeavy [tasks]atomic.Bool
	latencies := make([][]latency, tasks)
	var all sync.WaitGroup
	for task := 0; task < tasks; task++ {
		all.Add(1)
		go func() {
			defer all.Done()
			thread[task].Store(int64(syscall.Gettid()))
			own := newRequests(start, end, period, float64(task)/tasks)
			for own.wait() {
				if isHeavy[task].Load() {
					due := time.Now()
					for {
						work(burst)
						now := time.Now()
						due = due.Add(heavyPeriod)
						if due.Before(now) {
							due = now
						}
						if !now.Before(end) {
							return
						}
						if due.Equal(now) {
							runtime.Gosched()
						} else {
							time.Sleep(due.Sub(now))
						}
					}
				}
				own.serve()
			}
			latencies[task] = own.latencies
		}()
	}
	time.Sleep(length / 4)
	arrived := func() bool {
		for task := range thread {
			if thread[task].Load() == 0 {
				return false
			}
		}
		return true
	}
	for !arrived() {
		time.Sleep(period)
	}
	crowd := map[int64]int{}
	for task := range thread {
		crowd[thread[task].Load()]++
	}
	fullest := thread[0].Load()
	for id, count := range crowd {
		if count > crowd[fullest] {
			fullest = id
		}
	}
	left := heavy
	for task := 0; task < tasks && left > 0; task++ {
		if crowd[fullest] < heavy || thread[task].Load() == fullest {
			isHeavy[task].Store(true)
			left--
		}
	}
	turn := time.Now()
	all.Wait()
	showLatencies(latencies, turn)
	show("beside", float64(max(crowd[fullest]-heavy, 0)))
}

func noisy() {
	const period, hog, hogPeriod = 20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond
	tasks := size("tasks")
	length := time.Duration(get("ms")) * time.Millisecond
	calibrate()
	start := time.Now()
	turn, end := start.Add(length/4), start.Add(length)
	latencies := make([][]latency, tasks)
	var all sync.WaitGroup
	for task := 0; task < tasks; task++ {
		if task == tasks/2 {
			all.Add(1)
			go func() {
				for due := turn; due.Before(end); due = due.Add(hogPeriod) {
					time.Sleep(time.Until(due))
					work(hog)
				}
				all.Done()
			}()
		}
		all.Add(1)
		go func() {
			own := newRequests(start, end, period, float64(task)/float64(tasks))
			for own.wait() {
				own.serve()
			}
			latencies[task] = own.latencies
			all.Done()
		}()
	}
	all.Wait()
	showLatencies(latencies, turn)
}
