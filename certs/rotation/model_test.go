package rotation

import (
	"crypto/x509"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The model is a cluster in which replicas keep a state as package certs does,
// publish what should be trusted, and are called by API servers that notice a
// change late. All that a replica does in between can happen to others between
// any two of its steps.
const (
	modelHold          = 60 * time.Second
	modelEmergencyHold = 20 * time.Second
	modelEmergencyWait = 40 * time.Second
	// modelDelay is the longest that an API server takes to notice a change. It is
	// shorter than each hold.
	modelDelay = 15 * time.Second
	// modelRescue is how long somebody who does not know enough waits for others:
	// longer than a round of a replica.
	modelRescue = 40 * time.Second
	modelAway   = 90 * time.Second
	// modelStale is for how long a replica that cannot read what is stored knows it.
	modelStale = 30 * time.Second
)

// faults is what goes wrong in a run.
type faults struct{ crashes, partitions, losses, requests, emergencies, clocks, skew, stalls bool }

type modelLeaf struct {
	issuer    *x509.Certificate
	notBefore time.Time
	notAfter  time.Time
	due       time.Time
}

type modelRecord struct {
	version int
	state   *State // nil if there is none that can be read
}

type modelReplica struct {
	name string
	skew time.Duration
	// everCut tells that it was cut off, or stood still, at some time.
	up, cut, everCut bool
	at               time.Duration // of its next action, by the true clock
	pc, publishing   int
	again            int

	memory *State
	record modelRecord
	list   []Report
	view   [][]*x509.Certificate
	// trusted is since when each CA is, by the true clock.
	trusted map[*x509.Certificate]time.Time
	lost    time.Duration
	// confirmed is when what is stored was last what holds, by its memory.
	confirmed time.Duration
	// watched is since when it has seen the phase and the cause of its memory.
	watched time.Duration
	phase   string

	leaf            *modelLeaf
	next            *modelLeaf
	ready, reported bool
	// looked tells that registrations were read in this round.
	looked bool

	bundle   []*x509.Certificate
	versions []int
	readAt   [][]*x509.Certificate
}

type modelChange struct {
	at     time.Duration
	bundle []*x509.Certificate
}

type model struct {
	r      *rand.Rand
	faults faults
	trace  []string

	clock time.Duration // the true time that has passed
	wall  time.Duration // how far the clocks on the wall have been set
	made  int

	store    modelRecord
	history  []*State
	last     *State // the last state that was written by a replica
	lost     bool   // it is not what is stored
	writes   int
	replicas []*modelReplica
	reports  map[string]Report
	bundles  [][]*x509.Certificate
	versions []int
	// noticing is what each API server knows and will know of each registration.
	noticing [][][]modelChange
	noticed  [][][]*x509.Certificate

	asked     string // the last request
	emergency bool
	setBack   bool // clocks were, so that they had been wrong before or are now
	// exempt is why a failed call is not counted any more in this run.
	exempt  string
	refused error
	failure error
	seen    map[string]int64
}

func (m *model) now(r *modelReplica) time.Time {
	skew := time.Duration(0)
	if r != nil {
		skew = r.skew
	}
	return epoch().Add(m.clock + m.wall + skew)
}

func (m *model) monotonic() time.Time { return epoch().Add(m.clock) }

func (m *model) note(format string, args ...any) {
	if m.trace != nil {
		m.trace = append(m.trace, fmt.Sprintf("%8.1f ", m.clock.Seconds())+fmt.Sprintf(format, args...))
	}
}

func (m *model) fail(format string, args ...any) {
	if m.failure == nil {
		m.failure = fmt.Errorf("after %.1fs: "+format, append([]any{m.clock.Seconds()}, args...)...)
		m.note("FAILURE %v", m.failure)
	}
}

func (m *model) between(a, b time.Duration) time.Duration {
	return a + time.Duration(m.r.Int64N(int64(b-a)+1))
}

func (m *model) newCA(now time.Time) (*Authority, error) {
	m.made++
	return year("ca"+strconv.Itoa(m.made), now), nil
}

func (m *model) policy() *Policy {
	return &Policy{New: m.newCA, LeafLife: leafLife, Hold: modelHold, EmergencyHold: modelEmergencyHold, EmergencyWait: modelEmergencyWait}
}

func newModel(seed uint64, f faults, trace bool) *model {
	m := &model{
		r: rand.New(rand.NewPCG(seed, 2)), faults: f,
		reports: map[string]Report{}, seen: map[string]int64{},
	}
	if trace {
		m.trace = []string{}
	}
	for i := range 2 + m.r.IntN(3) {
		r := &modelReplica{name: "r" + strconv.Itoa(i), up: true, at: m.between(0, 10*time.Second)}
		if f.skew {
			r.skew = m.between(-2*time.Hour, 2*time.Hour)
		}
		m.restart(r)
		m.replicas = append(m.replicas, r)
	}
	registrations := 1 + m.r.IntN(2)
	m.bundles = make([][]*x509.Certificate, registrations)
	m.versions = make([]int, registrations)
	for range 1 + m.r.IntN(2) {
		m.noticing = append(m.noticing, make([][]modelChange, registrations))
		m.noticed = append(m.noticed, make([][]*x509.Certificate, registrations))
	}
	return m
}

// restart is a replica that has just begun.
func (m *model) restart(r *modelReplica) {
	*r = modelReplica{name: r.name, skew: r.skew, up: true, cut: r.cut, everCut: r.everCut, at: r.at, lost: -1}
}

// run lets time pass.
func (m *model) run(d time.Duration, unlucky bool) {
	end := m.clock + d
	fault := m.clock + m.between(time.Second, 60*time.Second)
	for m.failure == nil {
		next := m.replicas[0]
		for _, r := range m.replicas {
			if r.at < next.at {
				next = r
			}
		}
		if unlucky && fault <= next.at && fault < end {
			m.pass(fault)
			m.misfortune()
			fault += m.between(time.Second, 60*time.Second)
			continue
		}
		if next.at >= end {
			m.pass(end)
			return
		}
		m.pass(next.at)
		if !next.up {
			next.at += 5 * time.Second
			continue
		}
		m.act(next)
		m.watchLoss()
		m.check()
		m.agree()
	}
}

// pass is time going by, in which API servers notice changes.
func (m *model) pass(to time.Duration) {
	for s := range m.noticing {
		for g := range m.noticing[s] {
			q := m.noticing[s][g]
			for len(q) > 0 && q[0].at <= to {
				m.clock = max(m.clock, q[0].at)
				m.noticed[s][g] = q[0].bundle
				q = q[1:]
				m.noticing[s][g] = q
				m.check()
			}
		}
	}
	m.clock = max(m.clock, to)
}

// check is the first invariant: what is ready and reported is accepted by every
// API server.
func (m *model) check() {
	if m.exempt != "" {
		return
	}
	for _, r := range m.replicas {
		if !r.up || !r.ready || !r.reported || r.leaf == nil || m.now(nil).After(r.leaf.notAfter) ||
			m.now(nil).Before(r.leaf.notBefore) || (m.emergency || m.setBack) && r.everCut {
			continue
		}
		for s := range m.noticed {
			for g, bundle := range m.noticed[s] {
				if !slices.Contains(bundle, r.leaf.issuer) {
					m.fail("API server %d does not accept %s of %s for registration %d: %s", s, r.leaf.issuer.Raw, r.name, g, names(bundle))
				}
			}
		}
	}
}

// watchLoss notes that what was stored is lost and nobody who can reach the store
// remembers the last state: whatever they do then, they cannot know what is
// served and trusted.
func (m *model) watchLoss() {
	if s := m.store.state; s != nil && m.last != nil && s.Lineage == m.last.Lineage && s.Generation >= m.last.Generation {
		m.lost = false
	}
	if m.lost && m.exempt == "" && !slices.ContainsFunc(m.replicas, func(r *modelReplica) bool {
		return r.up && !r.cut && r.at < m.clock+30*time.Second && r.memory != nil && r.memory.Lineage == m.last.Lineage && r.memory.Generation >= m.last.Generation
	}) {
		m.exempt = "lost and forgotten"
		m.note("exempt: %s", m.exempt)
	}
}

// agree is the third invariant: what all agree on does not go back.
func (m *model) agree() {
	s := m.store.state
	if s == nil || m.exempt != "" || slices.ContainsFunc(m.replicas, func(r *modelReplica) bool {
		return r.up && !r.cut && (r.memory == nil || r.memory.Lineage != s.Lineage || r.memory.Generation != s.Generation)
	}) {
		return
	}
	if s.Generation < m.seen[s.Lineage] {
		m.fail("all agree on generation %d of %s after %d", s.Generation, s.Lineage, m.seen[s.Lineage])
	}
	m.seen[s.Lineage] = s.Generation
}

func names(bundle []*x509.Certificate) string {
	var all []string
	for _, c := range bundle {
		all = append(all, string(c.Raw))
	}
	return strings.Join(all, ",")
}

// misfortune is one fault.
func (m *model) misfortune() {
	r := m.replicas[m.r.IntN(len(m.replicas))]
	kinds := 7
	if m.faults.stalls {
		kinds++
	}
	switch m.r.IntN(kinds) {
	case 7:
		m.note("%s stalls", r.name)
		r.at += m.between(time.Minute, 5*time.Minute)
		r.everCut = true
	case 0:
		if m.faults.crashes {
			m.note("%s crashes", r.name)
			r.up = !r.up
			m.restartIf(r)
		}
	case 1:
		if m.faults.crashes {
			m.note("%s restarts", r.name)
			m.restart(r)
		}
	case 2:
		if m.faults.partitions {
			r.cut = !r.cut
			r.everCut = true
			m.note("%s cut off: %v", r.name, r.cut)
		}
	case 3:
		if m.faults.losses {
			m.lose()
		}
	case 4, 5:
		m.request()
	case 6:
		if m.faults.clocks {
			m.setClock(m.between(0, [...]time.Duration{time.Hour, 10 * day, 800 * day}[m.r.IntN(3)]) * time.Duration(1-2*m.r.IntN(2)))
		}
	}
	m.watchLoss()
	m.check()
}

func (m *model) restartIf(r *modelReplica) {
	if r.up {
		m.restart(r)
	}
	r.ready = false
}

func (m *model) setClock(d time.Duration) {
	m.wall += d
	m.setBack = m.setBack || d < 0
	m.note("clocks are set by %v", d)
}

// request is what an administrator asks for.
func (m *model) request() {
	emergency := m.faults.emergencies && m.r.IntN(2) == 0
	if !m.faults.requests && !emergency || m.store.state == nil {
		return
	}
	m.emergency = m.emergency || emergency
	m.made++
	m.ask(emergency)
}

func (m *model) ask(emergency bool) {
	n := m.store.state.next()
	m.asked = strconv.Itoa(m.made)
	n.Request = &Request{ID: m.asked, Emergency: emergency}
	m.note("requested, emergency %v", emergency)
	m.write(n)
}

// lose is what becomes of the store.
func (m *model) lose() {
	if m.last == nil {
		return
	}
	if m.exempt == "" && slices.ContainsFunc(m.replicas, func(r *modelReplica) bool { return r.memory != nil && len(r.memory.Authorities()) > 2 }) {
		m.exempt = "lost again"
		m.note("exempt: %s", m.exempt)
	}
	m.store.version++
	m.store.state = nil
	switch m.r.IntN(4) {
	case 0, 1:
		m.note("the state is deleted or damaged")
	case 2:
		m.store.state = m.history[m.r.IntN(len(m.history))]
		m.note("an old backup: %s", show(m.store.state))
	case 3:
		now := m.now(nil)
		ca, _ := m.newCA(now)
		m.store.state = &State{
			Lineage: "foreign" + strconv.Itoa(m.made), Created: now.Add(m.between(-1000*day, 10*day)), Generation: 1 + m.r.Int64N(40), Phase: Stable,
			Since: now, Current: ca,
		}
		m.note("somebody else's: %s", show(m.store.state))
	}
	m.lost = true
}

// write stores a state.
func (m *model) write(s *State) {
	m.store = modelRecord{version: m.store.version + 1, state: s}
	m.history = append(m.history, s)
	m.last = s
	m.writes++
	m.note("stored: %s", show(s))
}

// act is one action of a replica, of those that keep the state or of those that
// publish it.
func (m *model) act(r *modelReplica) {
	soon := m.between(0, 700*time.Millisecond)
	if m.r.IntN(3) == 0 {
		m.publish(r)
		r.at += soon
		return
	}
	now := m.now(r)
	switch r.pc {
	case 0: // Look at the registrations, and read what is stored.
		m.watch(r)
		r.looked = !r.cut
		r.pc = 4
		if !r.cut {
			r.record, r.pc = m.store, 1
		}
	case 1: // Read what replicas serve, after what is stored.
		r.pc = 4
		if !r.cut {
			r.list = r.list[:0]
			for _, o := range m.replicas {
				if report, ok := m.reports[o.name]; ok {
					r.list = append(r.list, report)
				}
			}
			r.pc = 2
		}
	case 2: // Decide and write.
		r.pc = 4
		if !r.cut && m.settle(r, now) && r.again < 5 {
			r.again++
			r.pc = 0
		}
	case 4: // Make a certificate, and promise it.
		r.again = 0
		m.mint(r, now)
		r.pc = 5
	case 5: // Read again whether it is the right one still.
		if r.next != nil && !r.cut {
			s := m.store.state
			if s == nil || r.memory == nil || s.Lineage != r.memory.Lineage || s.Current.Cert != r.next.issuer {
				r.next = nil
			}
		}
		r.pc = 6
	case 6: // Use it.
		if r.next != nil {
			m.note("%s serves %s", r.name, r.next.issuer.Raw)
			r.leaf, r.next = r.next, nil
		}
		r.pc = 7
	case 7: // Report it.
		if r.leaf != nil && !r.cut {
			m.report(r, r.leaf.issuer, r.leaf.notAfter)
			r.reported = true
		}
		if r.leaf != nil && r.reported && r.looked && !r.ready {
			since, ok := m.holds(r, r.leaf.issuer, now)
			r.ready = ok && !now.Before(since.Add(modelDelay)) // longer than an API server takes to notice
			if r.ready {
				m.note("%s is ready", r.name)
			}
		}
		r.pc = 0
		r.at += m.between(2*time.Second, 8*time.Second)
	}
	r.at += soon
}

func (m *model) report(r *modelReplica, issuer *x509.Certificate, notAfter time.Time) {
	m.reports[r.name] = Report{Replica: r.name, Issuer: ID(issuer), NotAfter: notAfter, Seen: m.monotonic()}
}

// watch reads registrations back.
func (m *model) watch(r *modelReplica) {
	if r.cut {
		return
	}
	r.view = slices.Clone(m.bundles)
	known := map[*x509.Certificate]time.Time{}
	if len(r.view) > 0 {
		for _, c := range r.view[0] {
			if slices.ContainsFunc(r.view, func(b []*x509.Certificate) bool { return !slices.Contains(b, c) }) {
				continue
			}
			since, ok := r.trusted[c]
			if !ok {
				since = m.monotonic()
			}
			known[c] = since
		}
	}
	r.trusted = known
}

// holds returns since when a replica has seen a CA trusted, by its clock.
func (m *model) holds(r *modelReplica, c *x509.Certificate, now time.Time) (time.Time, bool) {
	since, ok := r.trusted[c]
	return now.Add(-m.monotonic().Sub(since)), ok
}

// settle makes what is stored what it should be, and reports whether to look again.
func (m *model) settle(r *modelReplica, now time.Time) bool {
	found := r.record.state
	want := Merge(r.memory, found, now)
	if r.memory != nil && want == found {
		r.confirmed = m.clock
	}
	if (r.memory == nil || m.clock-r.confirmed > modelStale) && m.waits(r, want) {
		return false
	}
	r.lost = -1
	if want == nil {
		m.made++
		want = &State{Lineage: "l" + strconv.Itoa(m.made), Created: now, Generation: 1, Phase: Stable, Since: now}
		want.Current, _ = m.newCA(now)
	}
	if want != found {
		return m.save(r, want)
	}
	r.memory = want
	if phase := want.Lineage + string(want.Phase) + string(want.Cause) + want.Current.ID(); phase != r.phase {
		r.phase, r.watched = phase, m.clock
	}
	watched := now.Add(r.watched - m.clock)
	next, _, err := Step(want, &Observation{
		Now: now, Watched: watched, Replicas: r.list,
		Trusts: func(c *x509.Certificate) (time.Time, bool) { return m.holds(r, c, now) },
	}, m.policy())
	m.refused = err
	if next == nil {
		return false
	}
	if !want.Current.isUsable(&Observation{Now: now}) && m.exempt == "" {
		m.exempt = "the CA was of no use"
		m.note("exempt: %s", m.exempt)
	}
	return m.save(r, next)
}

func (m *model) save(r *modelReplica, s *State) bool {
	if m.store.version != r.record.version {
		return true
	}
	m.note("%s stores", r.name)
	m.write(s)
	r.memory = s
	return true
}

// waits reports whether a replica waits for somebody who remembers more.
func (m *model) waits(r *modelReplica, result *State) bool {
	ids := map[string]bool{}
	if result != nil {
		for _, a := range result.Authorities() {
			ids[a.ID()] = true
		}
	}
	if !slices.ContainsFunc(r.list, func(o Report) bool {
		return o.Replica != r.name && m.monotonic().Sub(o.Seen) < modelAway && !ids[o.Issuer]
	}) {
		return false
	}
	if r.lost < 0 {
		r.lost = m.clock
	}
	return m.clock-r.lost < modelRescue
}

// mint makes the certificate that should be served, if it is not.
func (m *model) mint(r *modelReplica, now time.Time) {
	r.next = nil
	s := r.memory
	if s == nil || now.Before(s.Current.Cert.NotBefore) || s.Current.hasExpired(now) {
		return
	}
	c := s.Current.Cert
	good := r.leaf != nil && !now.After(r.leaf.notAfter) && !now.Before(r.leaf.notBefore)
	if good && r.leaf.issuer == c && now.Before(r.leaf.due) {
		return
	}
	if good && r.leaf.issuer != c && slices.ContainsFunc(s.Authorities(), func(a *Authority) bool { return a.Cert == r.leaf.issuer }) {
		hold := modelHold
		if s.Cause == Emergency {
			hold = modelEmergencyHold
		}
		if since, ok := m.holds(r, c, now); !ok || now.Before(since.Add(hold)) {
			return
		}
	}
	end := now.Add(leafLife)
	if c.NotAfter.Before(end) {
		end = c.NotAfter
	}
	r.next = &modelLeaf{issuer: c, notBefore: now.Add(-day), notAfter: end, due: now.Add(leafLife / 3 * 2)}
	switch issuer := r.leaf; {
	case !r.cut && issuer == nil:
		m.report(r, c, end)
	case !r.cut:
		if issuer.notAfter.After(end) {
			end = issuer.notAfter
		}
		m.report(r, issuer.issuer, end)
	case good:
		r.next = nil // nobody can be told of a new one: the old one goes on
	default:
		// It has been cut off for longer than its certificate lasted, and nobody waits
		// for it: whether it is accepted, nobody can say.
		r.reported, r.ready = false, false
	}
}

// publish is one action of a replica's publisher.
func (m *model) publish(r *modelReplica) {
	if r.cut {
		r.publishing = 0
		return
	}
	switch r.publishing {
	case 0:
		r.versions, r.readAt = slices.Clone(m.versions), slices.Clone(m.bundles)
		r.publishing = 1
	case 1:
		r.publishing = 0
		s := m.store.state
		if s == nil || r.leaf == nil || r.memory == nil {
			return
		}
		if Merge(r.memory, s, m.now(r)) != s {
			return
		}
		r.bundle = s.Trusted(m.now(r))
		if slices.Contains(r.bundle, r.leaf.issuer) {
			r.publishing = 2
		}
	default:
		r.publishing = 0
		for g := range m.bundles {
			if m.versions[g] != r.versions[g] || slices.Equal(r.readAt[g], r.bundle) {
				continue
			}
			m.note("%s publishes %s in %d", r.name, names(r.bundle), g)
			m.bundles[g] = r.bundle
			m.versions[g]++
			m.writes++
			for s := range m.noticing {
				at := m.clock + m.between(0, modelDelay)
				q := m.noticing[s][g]
				if len(q) > 0 && q[len(q)-1].at > at {
					at = q[len(q)-1].at
				}
				m.noticing[s][g] = append(q, modelChange{at, r.bundle})
			}
		}
	}
}

// calm reports whether all is as it should be in the end.
func (m *model) calm() error {
	s := m.store.state
	switch {
	case s == nil:
		return errors.New("nothing is stored")
	case s.Phase != Stable || s.Pending != nil || s.Previous != nil || s.Request != nil:
		return errors.New(show(s))
	case m.asked != "" && s.Done != m.asked && !m.faults.losses:
		return fmt.Errorf("request %s was forgotten: %s", m.asked, show(s))
	}
	for g, b := range m.bundles {
		if len(b) != 1 || b[0] != s.Current.Cert {
			return fmt.Errorf("registration %d trusts %s, not %s", g, names(b), s.Current.Cert.Raw)
		}
	}
	for _, r := range m.replicas {
		if r.memory != s {
			return fmt.Errorf("%s remembers %s", r.name, show(r.memory))
		}
		if r.leaf == nil || r.leaf.issuer != s.Current.Cert || !r.ready || m.now(r).After(r.leaf.notAfter) {
			return fmt.Errorf("%s does not serve a certificate of %s", r.name, s.Current.Cert.Raw)
		}
	}
	return nil
}

// life is a whole run: some luck, some faults, and then peace.
func (m *model) life() {
	m.run(60*time.Second, false)
	m.run(400*time.Second, true)
	m.note("peace")
	for _, r := range m.replicas {
		if !r.up {
			m.restart(r)
		}
		r.cut, r.at = false, min(r.at, m.clock+10*time.Second)
	}
	var err error
	for round := 0; round < 12 && m.failure == nil; round++ {
		m.run(150*time.Second, false)
		if err = m.calm(); err == nil {
			break
		}
		if s := m.store.state; m.refused != nil && s != nil && (s.Request == nil || !s.Request.Emergency) {
			m.ask(true) // as the error says
		}
		if round == 3 {
			// Who is waited for has nothing to serve any more.
			m.setClock(leafLife + day)
		}
	}
	if err != nil {
		m.fail("it does not come to rest: %v", err)
	}
	before := m.writes
	m.run(150*time.Second, false)
	if m.writes != before {
		m.fail("%d writes in peace", m.writes-before)
	}
}

func everything() faults {
	return faults{crashes: true, partitions: true, losses: true, requests: true, emergencies: true, clocks: true, skew: true, stalls: true}
}

// someFaults are those of a run.
func someFaults(seed uint64) faults {
	r := rand.New(rand.NewPCG(seed, 3))
	some := func(is bool) bool { return is && r.IntN(2) == 0 }
	f := everything()
	return faults{
		crashes: some(f.crashes), partitions: some(f.partitions), losses: some(f.losses), requests: r.IntN(4) > 0,
		emergencies: some(f.emergencies), clocks: r.IntN(4) == 0, skew: some(f.skew), stalls: some(f.stalls),
	}
}

// TestModel lets clusters live through faults. The first invariant is not held to
// in these cases, which nobody who writes bundles and certificates can mend:
//
//   - what was stored is lost, and no replica that can reach it remembers the last
//     state;
//   - it is lost while three CAs are trusted, because it was lost and merged amid
//     a rotation not long before: there is no place for a fourth;
//   - a CA ends, or turns out to be made by a clock that was wrong, before another
//     one is trusted;
//   - a replica that was cut off or stood still at some time, in a run with an emergency, which
//     does not wait for it, or in which clocks were set back: they said before that
//     its certificate had ended, and say that it has not;
//   - a replica that is cut off for longer than its certificate lasts.
func TestModel(t *testing.T) {
	t.Parallel()
	exempt := map[string]int{}
	runs := modelRuns(1000)
	for seed := range runs {
		m := newModel(seed, someFaults(seed), false)
		m.life()
		if m.failure != nil {
			m = newModel(seed, someFaults(seed), true)
			m.life()
			t.Fatalf("seed %d, %+v: %v\n%s", seed, m.faults, m.failure, strings.Join(m.trace, "\n"))
		}
		exempt[m.exempt]++
	}
	if counted := exempt[""]; counted < int(runs)/2 {
		t.Errorf("only %d of %d runs count: %v", counted, runs, exempt)
	}
}

// modelRuns is how many runs a test makes.
func modelRuns(usual uint64) uint64 {
	if testing.Short() {
		return usual / 10
	}
	return usual
}
