// Goroutines that talk over channels; an unbuffered channel is the rendezvous of the other sides.
package main

import (
	"reflect"
	"sync"
)

// message is what pingpong and mpmc send: 8, 64 or 1024 bytes by value, compiled for each size.
type message interface {
	[1]uint64 | [8]uint64 | [128]uint64
}

func byMessage(small, middle, large func()) {
	switch get("bytes") {
	case 8:
		small()
	case 64:
		middle()
	case 1024:
		large()
	default:
		fail("bytes: 8, 64 or 1024")
	}
}

func pingpong() {
	byMessage(pingpongWith[[1]uint64], pingpongWith[[8]uint64], pingpongWith[[128]uint64])
}

func pingpongWith[M message]() {
	n := get("n")
	passes(func() uint64 {
		ping, pong := make(chan M), make(chan M)
		var both sync.WaitGroup
		both.Add(2)
		go func() {
			for m := range ping {
				pong <- m
			}
			both.Done()
		}()
		go func() {
			for number := uint64(0); number < n; number++ {
				var m M
				m[0] = number
				ping <- m
				back := <-pong
				check(back[0] == number, "the same message comes back")
			}
			close(ping)
			both.Done()
		}()
		both.Wait()
		return n
	})
}

func ring() {
	tasks, laps := get("tasks"), get("laps")
	passes(func() uint64 {
		first := make(chan uint64)
		last := first
		for i := uint64(1); i < tasks; i++ {
			before, next := last, make(chan uint64)
			last = next
			go func() {
				for token := range before {
					next <- token + 1
				}
				close(next)
			}()
		}
		var starter sync.WaitGroup
		starter.Add(1)
		go func() {
			for lap := uint64(0); lap < laps; lap++ {
				first <- 1
				check(<-last == tasks, "the token comes round")
			}
			close(first)
			starter.Done()
		}()
		starter.Wait()
		return tasks * laps
	})
}

// known finds without goroutines how far the source of the sieve counts, and how many transfers there are.
func known(primes uint64) (last, transfers uint64) {
	var found []uint64
	number := uint64(1)
	for uint64(len(found)) < primes {
		number++
		through := 0
		for through < len(found) && number%found[through] != 0 {
			through++
		}
		transfers += uint64(through) + 1
		if through == len(found) {
			found = append(found, number)
		}
	}
	return number, transfers
}

func sieve() {
	wanted := get("primes")
	last, transfers := known(wanted)
	passes(func() uint64 {
		source := make(chan uint64)
		go func() {
			for number := uint64(2); number <= last; number++ {
				source <- number
			}
			close(source)
		}()
		primes := uint64(0)
		end := source
		for {
			prime, open := <-end
			if !open {
				break
			}
			primes++
			before, passOn := end, make(chan uint64)
			end = passOn
			go func() {
				for number := range before {
					if number%prime != 0 {
						passOn <- number
					}
				}
				close(passOn)
			}()
		}
		check(primes == wanted, "every prime is found")
		return transfers
	})
}

func mpmc() {
	byMessage(mpmcWith[[1]uint64], mpmcWith[[8]uint64], mpmcWith[[128]uint64])
}

func mpmcWith[M message]() {
	p, c, capacity, n := get("p"), size("c"), size("cap"), get("n")
	each := n / p
	passes(func() uint64 {
		channel := make(chan M, capacity)
		var senders, receivers sync.WaitGroup
		for i := uint64(0); i < p; i++ {
			senders.Add(1)
			go func() {
				for number := uint64(0); number < each; number++ {
					var m M
					m[0] = number
					channel <- m
				}
				senders.Done()
			}()
		}
		counts := make([]uint64, c)
		for i := range counts {
			receivers.Add(1)
			go func() {
				count := uint64(0)
				for range channel {
					count++
				}
				counts[i] = count
				receivers.Done()
			}()
		}
		senders.Wait()
		close(channel)
		receivers.Wait()
		total := uint64(0)
		for _, count := range counts {
			total += count
		}
		check(total == each*p, "every message arrives")
		return total
	})
}

func selecting() {
	ways, named, n := size("ways"), get("macro") == 1, get("n")
	each := n / uint64(ways)
	passes(func() uint64 {
		channels := make([]chan uint64, ways)
		for i := range channels {
			channel := make(chan uint64)
			channels[i] = channel
			go func() {
				for number := uint64(0); number < each; number++ {
					channel <- number
				}
			}()
		}
		if named {
			selectEight(channels, each*8)
		} else {
			selectAny(channels, each*uint64(ways))
		}
		return each * uint64(ways)
	})
}

var sink uint64

// selectEight names its channels in a select statement.
func selectEight(channels []chan uint64, total uint64) {
	a, b, c, d := channels[0], channels[1], channels[2], channels[3]
	e, f, g, h := channels[4], channels[5], channels[6], channels[7]
	for i := uint64(0); i < total; i++ {
		select {
		case sink = <-a:
		case sink = <-b:
		case sink = <-c:
		case sink = <-d:
		case sink = <-e:
		case sink = <-f:
		case sink = <-g:
		case sink = <-h:
		}
	}
}

// selectAny builds the set of channels at run time; Go has package reflect for that.
func selectAny(channels []chan uint64, total uint64) {
	cases := make([]reflect.SelectCase, len(channels))
	for i, channel := range channels {
		cases[i] = reflect.SelectCase{Dir: reflect.SelectRecv, Chan: reflect.ValueOf(channel)}
	}
	for i := uint64(0); i < total; i++ {
		_, value, _ := reflect.Select(cases)
		sink = value.Uint()
	}
}

// stages has a goroutine and a channel for each of the ten stages, also where fibra's side is fused: Go does not fuse.
func stages() {
	const stages = 10
	n, capacity := get("n"), size("cap")
	passes(func() uint64 {
		source := make(chan uint64, capacity)
		go func() {
			for number := uint64(0); number < n; number++ {
				source <- number
			}
			close(source)
		}()
		end := source
		for i := 0; i < stages; i++ {
			before, behind := end, make(chan uint64, capacity)
			end = behind
			go func() {
				for number := range before {
					behind <- number + 1
				}
				close(behind)
			}()
		}
		total := uint64(0)
		for number := range end {
			total += number
		}
		check(total == n*(n-1)/2+n*stages, "every number comes through")
		return n
	})
}

func node(parent chan<- uint64, first, leaves uint64) {
	const children = 10
	if leaves == 1 {
		parent <- first
		return
	}
	channel := make(chan uint64)
	below := leaves / children
	for child := uint64(0); child < children; child++ {
		go node(channel, first+child*below, below)
	}
	sum := uint64(0)
	for child := 0; child < children; child++ {
		sum += <-channel
	}
	parent <- sum
}

func skynet() {
	leaves := get("leaves")
	passes(func() uint64 {
		channel := make(chan uint64)
		go node(channel, 0, leaves)
		check(<-channel == leaves*(leaves-1)/2, "every leaf is counted")
		return leaves
	})
}
