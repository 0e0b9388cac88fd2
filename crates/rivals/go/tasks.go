// Goroutines without channels: the costs of starting, ending, yielding, locking and sleeping.
package main

import (
	"runtime"
	"sort"
	"sync"
	"time"
)

func spawnJoin() {
	n, batch := get("n"), get("batch")
	passes(func() uint64 {
		for i := uint64(0); i < n/batch; i++ {
			var all sync.WaitGroup
			all.Add(int(batch))
			for j := uint64(0); j < batch; j++ {
				go func() { all.Done() }()
			}
			all.Wait()
		}
		return n / batch * batch
	})
}

func spawnAwait() {
	n := get("n")
	passes(func() uint64 {
		for i := uint64(0); i < n; i++ {
			var one sync.WaitGroup
			one.Add(1)
			go func() { one.Done() }()
			one.Wait()
		}
		return n
	})
}

//go:noinline
func depth1() uint64 {
	runtime.Gosched()
	return 1
}

//go:noinline
func depth2() uint64 { return depth1() + 1 }

//go:noinline
func depth3() uint64 { return depth2() + 1 }

func yielding() {
	tasks, n, depth := get("tasks"), get("n"), get("depth")
	each := n / tasks
	passes(func() uint64 {
		var all sync.WaitGroup
		for i := uint64(0); i < tasks; i++ {
			all.Add(1)
			go func() {
				defer all.Done()
				switch depth {
				case 0:
					for j := uint64(0); j < each; j++ {
						runtime.Gosched()
					}
				case 1:
					for j := uint64(0); j < each; j++ {
						depth1()
					}
				case 2:
					for j := uint64(0); j < each; j++ {
						depth2()
					}
				default:
					for j := uint64(0); j < each; j++ {
						depth3()
					}
				}
			}()
		}
		all.Wait()
		return each * tasks
	})
}

func mutex() {
	tasks, rounds := get("tasks"), get("rounds")
	passes(func() uint64 {
		var lock sync.Mutex
		var total uint64
		var all sync.WaitGroup
		for i := uint64(0); i < tasks; i++ {
			all.Add(1)
			go func() {
				for j := uint64(0); j < rounds; j++ {
					lock.Lock()
					total++
					lock.Unlock()
				}
				all.Done()
			}()
		}
		all.Wait()
		check(total == tasks*rounds, "every count arrives")
		return tasks * rounds
	})
}

// random is the generator of ../src/measure.rs, so that every peer sleeps the same lengths.
type random uint64

func (r *random) below(most uint64) uint64 {
	*r = *r*6364136223846793005 + 1442695040888963407
	return uint64(*r>>32) * most >> 32
}

func timers() {
	n, width := size("n"), get("span_ms")*1_000_000
	lengths := make([]time.Duration, n)
	draw := random(0x2545F4914F6CDD1D)
	for i := range lengths {
		lengths[i] = time.Duration(draw.below(width))
	}
	early := 0
	pass := func() (span, []float64) {
		stop := meter()
		late := make([]float64, n)
		var all sync.WaitGroup
		all.Add(n)
		for i, length := range lengths {
			go func() {
				start := time.Now()
				time.Sleep(length)
				late[i] = float64(time.Since(start)-length) / 1e3
				all.Done()
			}()
		}
		all.Wait()
		took := stop()
		for _, microseconds := range late {
			if microseconds < 0 {
				early++
			}
		}
		return took, late
	}
	cold, _ := pass()
	second, _ := pass()
	warm, late := pass()
	sort.Float64s(late)
	warm.show(uint64(n))
	show("cpu_warm", warm.cpu*1e9/float64(n))
	show("cpu_second", second.cpu*1e9/float64(n))
	show("cpu_cold", cold.cpu*1e9/float64(n))
	show("late_p50_us", percentile(late, 0.50))
	show("late_p99_us", percentile(late, 0.99))
	show("early", float64(early))
}
