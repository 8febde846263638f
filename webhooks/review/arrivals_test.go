package review

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// idleCall is a call whose body never arrives. Its read is interrupted by a deadline in the past.
type idleCall struct {
	*httptest.ResponseRecorder

	interrupted chan struct{}
	once        sync.Once
}

func newIdleCall() *idleCall {
	return &idleCall{ResponseRecorder: httptest.NewRecorder(), interrupted: make(chan struct{})}
}

func (c *idleCall) SetReadDeadline(deadline time.Time) error {
	if deadline.Before(time.Now()) {
		c.once.Do(func() { close(c.interrupted) })
	}
	return nil
}

func (c *idleCall) Read([]byte) (int, error) {
	<-c.interrupted
	return 0, context.DeadlineExceeded
}

// TestIdleStreams has 200 addresses, of one network or of 200, begin more reviews than there is memory for, of which no body arrives:
// of whole reviews of another address, none is refused.
func TestIdleStreams(t *testing.T) {
	t.Parallel()
	const addresses, each = 200, 16
	for name, network := range map[string]func(i byte) [4]byte{
		"of one network":   func(i byte) [4]byte { return [4]byte{198, 51, 100, i} },
		"of 200 networks":  func(i byte) [4]byte { return [4]byte{198, 51, i, 1} },
		"of their network": func(i byte) [4]byte { return [4]byte{192, 0, 2, i + 2} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				o := Options{MaxBytes: 1 << 20, MaxTime: 30 * time.Second, Now: time.Now, InFlight: NewBudget(8 << 20), Slots: NewSlots(4)}
				decide := func(context.Context, *AdmissionRequest) admission.Response { return admission.Allowed("") }
				var running sync.WaitGroup
				var idle []*idleCall
				for i := range byte(addresses) {
					o := o
					o.Caller = func(*http.Request) Caller {
						return Caller{Address: netip.PrefixFrom(netip.AddrFrom4(network(i)), 32)}
					}
					for range each {
						call := newIdleCall()
						idle = append(idle, call)
						request := httptest.NewRequest(http.MethodPost, "/?timeout=10s", call)
						request.ContentLength = 10
						request.Header.Set("Content-Type", "application/json")
						running.Go(func() { Admission(decide, o).ServeHTTP(call, request) })
					}
					synctest.Wait()
					for _, other := range []Caller{ordinary, verified} {
						if recorder := sendAs(other, o, 0); recorder.Code != http.StatusOK {
							t.Fatalf("certified %v: beside %d idle reviews, a whole one is answered %d %s", other.Certified, len(idle), recorder.Code, recorder.Body)
						}
					}
				}
				for _, call := range idle {
					_ = call.SetReadDeadline(time.Unix(1, 0)) // never fails
				}
				running.Wait()
			})
		})
	}
}

// TestDroppedArrivals checks which arrivals are dropped when there is no memory for a further one.
func TestDroppedArrivals(t *testing.T) {
	t.Parallel()
	type arrivals struct {
		n       int
		address string
		proven  bool
		// dropped is how many of them are dropped, the oldest of them first.
		dropped int
	}
	const bytes = 3 << 19
	const most = (bytes - bytes/8) / 2 / requestOverhead // arrivals that have memory
	for _, test := range []struct {
		name    string
		entered []arrivals
	}{
		{"the oldest", []arrivals{{n: most, address: "192.0.2.1/32", dropped: 10}, {n: 10, address: "192.0.2.1/32"}}},
		{"of an address", []arrivals{{n: 2, address: "192.0.2.1/32"}, {n: most, address: "198.51.100.1/32", dropped: 2}}},
		{"of a network", []arrivals{
			{n: 2, address: "192.0.2.1/32"}, {n: most / 2, address: "198.51.100.1/32", dropped: 2}, {n: most - most/2, address: "198.51.100.2/32"},
		}},
		{"of a network of IPv6", []arrivals{{n: 2, address: "2001:db8::/64"}, {n: most, address: "2001:db8:0:1::/64", dropped: 2}}},
		{"not of one that holds less than half of the average", []arrivals{
			{n: 4, address: "192.0.2.1/32"}, {n: most / 2, address: "198.51.100.1/32", dropped: 4}, {n: most - most/2, address: "203.0.113.1/32"},
		}},
		{"of one that holds little more than the average", []arrivals{
			{n: most / 3, address: "192.0.2.1/32", dropped: 3}, {n: most / 3, address: "198.51.100.1/32"}, {n: most - 2*(most/3) + 3, address: "203.0.113.1/32"},
		}},
		{"over connections that are not proven", []arrivals{
			{n: 4, address: "192.0.2.1/32", proven: true}, {n: most - 4, address: "192.0.2.1/32", dropped: 3}, {n: 3, address: "192.0.2.1/32", proven: true},
		}},
		{"over proven connections if these hold more", []arrivals{
			{n: most, address: "192.0.2.1/32", proven: true, dropped: 1}, {n: 1, address: "198.51.100.1/32"},
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			budget := NewBudget(bytes)
			entered, ended := make([][]*reservation, len(test.entered)), make(map[*reservation]bool)
			for i, group := range test.entered {
				for range group.n {
					r := arrivalOf(budget, group.address)
					r.proven = group.proven
					if !budget.enter(r) {
						t.Fatalf("a request of %s is refused", group.address)
					}
					entered[i] = append(entered[i], r)
					for _, earlier := range slices.Concat(entered...) {
						if !ended[earlier] && earlier.isDropped() {
							ended[earlier] = true
							earlier.release()
						}
					}
				}
			}
			if held := budget.arrivingBytes(); held != most*requestOverhead {
				t.Errorf("arrivals hold %d bytes, want %d", held, most*requestOverhead)
			}
			for i, group := range test.entered {
				for j, r := range entered[i] {
					if dropped := j < group.dropped; ended[r] != dropped {
						t.Errorf("request %d of group %d is dropped: %v", j, i, !dropped)
					}
					r.release()
				}
			}
			checkEmpty(t, budget)
		})
	}
}

func arrivalOf(b *Budget, address string) *reservation {
	return &reservation{
		budget: b, caller: Caller{Address: netip.MustParsePrefix(address)}, used: requestOverhead, now: time.Now, maxWait: time.Hour,
		arrival: arrival{writer: newIdleCall()},
	}
}

func checkEmpty(t *testing.T, b *Budget) {
	t.Helper()
	if b.used != 0 || b.arrivingBytes() != 0 || b.dropped != 0 || len(b.callers) != 0 {
		t.Errorf("left are %d bytes used, %d of arrivals, and %v", b.used, b.arrivingBytes(), b.callers)
	}
}

// TestPlaces has requests take their places from arrivals, which have no part in what callers hold.
func TestPlaces(t *testing.T) {
	t.Parallel()
	budget := NewBudget(8 << 20)
	most := budget.size - budget.reserved
	var all []*reservation
	for r := arrivalOf(budget, "198.51.100.1/32"); budget.enter(r); r = arrivalOf(budget, "198.51.100.1/32") {
		all = append(all, r)
	}
	for _, address := range []string{"192.0.2.1/32", "192.0.2.2/32", "192.0.2.3/32"} {
		r := arrivalOf(budget, address)
		all = append(all, r)
		if !budget.enter(r) || r.place(t.Context()) != nil || r.reserved != requestBytes {
			t.Errorf("beside arrivals, a request holds %d bytes", r.reserved)
		}
		if held := budget.used + budget.arrivingBytes() + budget.dropped; held > most {
			t.Errorf("%d bytes are held, want at most %d", held, most)
		}
	}
	if err := all[0].place(t.Context()); err == nil || !all[0].isDropped() {
		t.Errorf("the oldest arrival was dropped: %v, and has no place: %v", all[0].isDropped(), err)
	}
	for _, r := range all {
		r.release()
	}
	checkEmpty(t, budget)
}

// TestWaitingForAPlace has a body arrive while its caller may hold no more: it waits, and is dropped if its memory is needed.
func TestWaitingForAPlace(t *testing.T) {
	t.Parallel()
	for _, drop := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			budget := NewBudget(1 << 20)
			r := arrivalOf(budget, ordinary.Address.String())
			r.caller = ordinary
			if !budget.enter(r) {
				t.Fatal("an empty budget is full")
			}
			var held int64
			for budget.try(ordinary, requestBytes) {
				held += requestBytes
			}
			placed := make(chan error, 1)
			go func() { placed <- r.place(context.Background()) }()
			synctest.Wait()
			if drop {
				budget.mu.Lock()
				budget.drop(r)
				budget.unlock()
			} else {
				budget.release(ordinary, held)
				held = 0
			}
			if err := <-placed; (err != nil) != drop {
				t.Errorf("dropped %v: place: %v", drop, err)
			}
			r.release()
			budget.release(ordinary, held)
			checkEmpty(t, budget)
		})
	}
}
