package rotation

import (
	"crypto/x509"
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"
)

// situation is a state and what is known besides, at a time after the epoch. The
// CAs a, b and c were made at the epoch; whatever is made anew is called new.
type situation struct {
	state  State
	at     time.Duration
	trusts map[string]time.Duration // nil: nobody can tell; since when, after the epoch
	// issuers are what replicas serve, by the names of CAs; what has "!" in front
	// has ended.
	issuers []string
	unknown bool
	watched time.Duration // since when, after the epoch; 0: it is not known
	// broken is where no CA can be made.
	broken bool
}

const (
	testHold = 10 * time.Minute
	leafLife = 7 * day
)

func (c *situation) step(t *testing.T) (*State, string, error) {
	t.Helper()
	now := epoch().Add(c.at)
	o := &Observation{Now: now, Unknown: c.unknown}
	if c.trusts != nil {
		o.Trusts = func(cert *x509.Certificate) (time.Time, bool) {
			since, ok := c.trusts[string(cert.Raw)]
			return epoch().Add(since), ok
		}
	}
	for i, issuer := range c.issuers {
		name, ended := strings.CutPrefix(issuer, "!")
		r := Report{Replica: string(rune('1' + i)), NotAfter: now.Add(time.Hour)}
		if name != "" {
			r.Issuer = year(name, epoch()).ID()
		}
		if ended {
			r.NotAfter = now.Add(-time.Second)
		}
		o.Replicas = append(o.Replicas, r)
	}
	if c.watched != 0 {
		o.Watched = epoch().Add(c.watched)
	}
	p := &Policy{LeafLife: leafLife, Hold: testHold, EmergencyHold: 10 * time.Second, EmergencyWait: time.Minute}
	p.New = func(now time.Time) (*Authority, error) {
		if c.broken {
			return nil, errors.New("no randomness")
		}
		return year("new", now), nil
	}
	s := c.state
	s.Lineage, s.Generation = "l", 7
	before := s
	next, what, err := Step(&s, o, p)
	if !reflect.DeepEqual(s, before) {
		t.Errorf("the state was changed to %s", show(&s))
	}
	if (next == nil) != (what == "") {
		t.Errorf("%s, and %q about it", show(next), what)
	}
	if next != nil {
		if err != nil {
			t.Errorf("%s with the error %v", show(next), err)
		}
		if next.Generation != s.Generation+1 {
			t.Errorf("generation %d after %d", next.Generation, s.Generation)
		}
		if next.Phase != s.Phase && !next.Since.Equal(now) {
			t.Errorf("the phase began at %v, and it is %v", next.Since, now)
		}
		if next.Previous != nil && next.Previous.Key != nil {
			t.Error("the previous CA has its key still")
		}
	}
	return next, what, err
}

func TestStep(t *testing.T) {
	t.Parallel()
	const end = 365 * day
	a, b, c := year("a", epoch()), year("b", epoch()), year("c", epoch())
	late := year("b", epoch().Add(300*day)) // a b that lasts longer than a
	ext := external
	all := map[string]time.Duration{"a": 0, "b": 0}
	stable := State{Phase: Stable, Cause: Due, Current: a, Since: epoch()}
	publish := State{Phase: Publish, Cause: Due, Current: a, Pending: b, Since: epoch()}
	hold := State{Phase: Hold, Cause: Due, Current: a, Pending: b, Since: epoch()}
	activate := State{Phase: Activate, Cause: Due, Current: b, Previous: ext(a), Since: epoch()}
	with := func(s State, change func(*State)) State {
		change(&s)
		return s
	}
	cause := func(s State, cause Cause) State { return with(s, func(s *State) { s.Cause = cause }) }
	asked := func(s State, emergency bool) State {
		return with(s, func(s *State) { s.Request = &Request{ID: "r", Emergency: emergency} })
	}
	since := func(s State, at time.Duration) State { return with(s, func(s *State) { s.Since = epoch().Add(at) }) }
	pending := func(s State, p *Authority) State { return with(s, func(s *State) { s.Pending = p }) }
	current := func(s State, c *Authority) State { return with(s, func(s *State) { s.Current = c }) }
	const (
		hurry = true
		calm  = false
	)

	for name, c := range map[string]struct {
		situation
		want string // how the next state shows, "none" if there is none
		what string // a part of what is said or of the error
	}{
		// Stable.
		"stable: nothing to do":         {situation{state: stable, trusts: all, issuers: []string{"a"}}, "none", ""},
		"stable: not yet due":           {situation{state: stable, at: 242 * day, trusts: all}, "none", ""},
		"stable: due":                   {situation{state: stable, at: 243*day + 8*time.Hour, trusts: all}, "l/8 Publish Due current a pending new previous - request - done -", "two thirds of the old one's lifetime"},
		"stable: due and no randomness": {situation{state: stable, at: 243*day + 8*time.Hour, broken: true}, "none", "no randomness"},
		"stable: requested":             {situation{state: asked(stable, calm)}, "l/8 Publish Requested current a pending new previous - request - done r", "it was requested"},
		"stable: requested and due":     {situation{state: asked(stable, calm), at: 300 * day}, "l/8 Publish Requested current a pending new previous - request - done r", ""},
		"stable: emergency":             {situation{state: asked(stable, hurry)}, "l/8 Publish Emergency current a pending new previous - request - done r", "emergency"},
		"stable: current has no key":    {situation{state: current(stable, ext(a)), trusts: all}, "l/8 Activate Recovery current new pending - previous a(no key) request - done -", "cannot sign"},
		"stable: a phase from tomorrow": {situation{state: since(stable, 48*time.Hour)}, "none", ""},
		"stable: trust was lost":        {situation{state: stable, trusts: map[string]time.Duration{}}, "none", ""},

		// Publish.
		"publish: not yet trusted":       {situation{state: publish, at: day, trusts: map[string]time.Duration{"a": 0}}, "none", ""},
		"publish: trusted":               {situation{state: publish, trusts: all}, "l/8 Hold Due current a pending b previous - request - done -", "every registration trusts"},
		"publish: nobody can tell":       {situation{state: publish}, "l/8 Hold Due current a pending b previous - request - done -", "configure clients now"},
		"publish: never by time":         {situation{state: publish, at: 364 * day, trusts: map[string]time.Duration{"a": 0}}, "none", ""},
		"publish: requested":             {situation{state: asked(publish, calm), trusts: all}, "l/8 Publish Requested current a pending b previous - request - done r", "fulfills the request"},
		"publish: emergency":             {situation{state: asked(publish, hurry), trusts: all}, "l/8 Publish Emergency current a pending new previous - request - done r", "replaces the pending one"},
		"publish: request in emergency":  {situation{state: asked(cause(publish, Emergency), calm), trusts: all}, "l/8 Publish Emergency current a pending b previous - request - done r", ""},
		"publish: emergency, broken":     {situation{state: asked(publish, hurry), trusts: all, broken: true}, "none", "no randomness"},
		"publish: pending of tomorrow":   {situation{state: pending(publish, year("b", epoch().Add(48*time.Hour))), trusts: all}, "l/8 Publish Due current a pending new previous - request - done -", "not valid"},
		"publish: pending has ended":     {situation{state: pending(publish, paper("b", epoch(), epoch())), at: day, trusts: all}, "l/8 Publish Due current a pending new previous - request - done -", "not valid"},
		"publish: pending has no key":    {situation{state: pending(publish, ext(b)), trusts: all}, "l/8 Publish Due current a pending new previous - request - done -", "has no key"},
		"publish: current ends too soon": {situation{state: pending(publish, late), at: end - day, trusts: map[string]time.Duration{"a": 0}}, "none", ""},
		"publish: current has ended":     {situation{state: pending(publish, late), at: end + time.Second, trusts: map[string]time.Duration{}}, "l/8 Activate Due current b pending - previous - request - done -", "signs at once"},

		// Hold.
		"hold: just begun":                   {situation{state: hold, trusts: all}, "none", ""},
		"hold: almost":                       {situation{state: hold, at: testHold - time.Second, trusts: all}, "none", ""},
		"hold: over":                         {situation{state: hold, at: testHold, trusts: all}, "l/8 Activate Due current b pending - previous a(no key) request - done -", "the new CA signs"},
		"hold: trusted later than it began":  {situation{state: hold, at: testHold + time.Minute, trusts: map[string]time.Duration{"b": 2 * time.Minute}}, "none", ""},
		"hold: trusted later, over":          {situation{state: hold, at: testHold + 2*time.Minute, trusts: map[string]time.Duration{"b": 2 * time.Minute}}, "l/8 Activate Due current b pending - previous a(no key) request - done -", ""},
		"hold: trusted earlier than began":   {situation{state: since(hold, 5*time.Minute), at: 14 * time.Minute, trusts: all}, "none", ""},
		"hold: trust lost, a moment":         {situation{state: hold, at: time.Minute, trusts: map[string]time.Duration{"a": 0}}, "none", ""},
		"hold: trust lost":                   {situation{state: hold, at: testHold, trusts: map[string]time.Duration{"a": 0}}, "l/8 Publish Due current a pending b previous - request - done -", "does not trust the new CA any more"},
		"hold: nobody can tell, due":         {situation{state: hold, at: 300 * day}, "none", ""},
		"hold: nobody can tell, ends soon":   {situation{state: pending(hold, late), at: end - leafLife + time.Second}, "l/8 Activate Due current b pending - previous a(no key) request - done -", ""},
		"hold: nobody can tell, asked":       {situation{state: cause(hold, Requested), at: testHold}, "l/8 Activate Requested current b pending - previous a(no key) request - done -", ""},
		"hold: nobody can tell, asked, soon": {situation{state: cause(hold, Requested), at: testHold - 1}, "none", ""},
		"hold: nobody can tell, recovery":    {situation{state: cause(hold, Recovery), at: time.Minute}, "none", ""},
		"hold: current ends too soon":        {situation{state: since(pending(hold, late), end-day), at: end - day, trusts: map[string]time.Duration{"b": end - day}}, "none", ""},
		"hold: emergency, just begun":        {situation{state: cause(hold, Emergency), at: 9 * time.Second, trusts: all}, "none", ""},
		"hold: emergency, over":              {situation{state: cause(hold, Emergency), at: 10 * time.Second, trusts: all}, "l/8 Activate Emergency current b pending - previous a(no key) request - done -", ""},
		"hold: emergency, not trusted":       {situation{state: cause(hold, Emergency), at: 10 * time.Second, trusts: map[string]time.Duration{}}, "l/8 Publish Emergency current a pending b previous - request - done -", ""},
		"hold: recovery is no emergency":     {situation{state: cause(hold, Recovery), at: testHold - 1, trusts: all}, "none", ""},
		"hold: requested":                    {situation{state: asked(hold, calm), at: day, trusts: all}, "l/8 Hold Requested current a pending b previous - request - done r", ""},
		"hold: emergency comes up":           {situation{state: asked(hold, hurry), at: time.Minute, trusts: all}, "l/8 Publish Emergency current a pending new previous - request - done r", ""},
		"hold: pending has ended":            {situation{state: pending(hold, paper("b", epoch(), epoch())), at: day, trusts: all}, "l/8 Publish Due current a pending new previous - request - done -", ""},
		"hold: current has ended":            {situation{state: pending(hold, late), at: end + time.Second, trusts: map[string]time.Duration{}}, "l/8 Activate Due current b pending - previous - request - done -", ""},
		"hold: both have ended":              {situation{state: hold, at: end + time.Second, trusts: all}, "l/8 Activate Recovery current new pending - previous - request - done -", "calls fail until"},

		// Activate.
		"activate: all changed over":        {situation{state: activate, trusts: all, issuers: []string{"b", "b"}}, "l/8 Stable Due current b pending - previous - request - done -", "every replica serves"},
		"activate: one serves the old":      {situation{state: activate, at: 300 * day, trusts: all, issuers: []string{"b", "a"}}, "none", ""},
		"activate: one serves a third":      {situation{state: activate, trusts: all, issuers: []string{"b", "x"}}, "none", ""},
		"activate: the old one's has ended": {situation{state: activate, trusts: all, issuers: []string{"b", "!a"}}, "l/8 Stable Due current b pending - previous - request - done -", ""},
		"activate: one serves none":         {situation{state: activate, trusts: all, issuers: []string{"b", ""}}, "l/8 Stable Due current b pending - previous - request - done -", ""},
		"activate: replicas unknown":        {situation{state: activate, at: 300 * day, trusts: all, unknown: true}, "none", ""},
		"activate: some known":              {situation{state: activate, at: 300 * day, trusts: all, unknown: true, issuers: []string{"b"}}, "none", ""},
		"activate: nobody reports":          {situation{state: activate, at: leafLife - 1, trusts: all}, "none", ""},
		"activate: nobody reports, a week":  {situation{state: activate, at: leafLife, trusts: all}, "l/8 Stable Due current b pending - previous - request - done -", ""},
		"activate: the new one not trusted": {situation{state: activate, trusts: map[string]time.Duration{"a": 0}, issuers: []string{"b"}}, "none", ""},
		"activate: nobody can tell":         {situation{state: activate, issuers: []string{"b"}}, "l/8 Stable Due current b pending - previous - request - done -", ""},
		"activate: emergency waits":         {situation{state: cause(activate, Emergency), at: time.Minute, trusts: all, issuers: []string{"b", "a"}}, "none", ""},
		"activate: emergency waits no more": {situation{state: cause(activate, Emergency), at: time.Minute + 1, trusts: all, issuers: []string{"b", "a", "b", "a"}}, "l/8 Stable Emergency current b pending - previous - request - done -", "without waiting for 2, 4"},
		"activate: emergency, unknown":      {situation{state: cause(activate, Emergency), at: time.Minute + 1, trusts: all, unknown: true}, "l/8 Stable Emergency current b pending - previous - request - done -", "unknown what replicas serve"},
		"activate: emergency, not trusted":  {situation{state: cause(activate, Emergency), at: day, trusts: map[string]time.Duration{"a": 0}, issuers: []string{"b"}}, "none", ""},
		"activate: emergency, all changed":  {situation{state: cause(activate, Emergency), at: 1, trusts: all, issuers: []string{"b"}}, "l/8 Stable Emergency current b pending - previous - request - done -", "every replica serves"},
		"activate: requested waits":         {situation{state: asked(activate, calm), trusts: all, issuers: []string{"a"}}, "none", ""},
		"activate: requested, then goes on": {situation{state: asked(activate, calm), trusts: all, issuers: []string{"b"}}, "l/8 Stable Due current b pending - previous - request r done -", ""},
		"activate: emergency comes up":      {situation{state: asked(activate, hurry), trusts: all, issuers: []string{"a"}}, "l/8 Activate Emergency current b pending - previous a(no key) request r done -", "an emergency rotation was requested"},
		"activate: emergency, asked again":  {situation{state: asked(cause(activate, Emergency), hurry), trusts: all, issuers: []string{"a"}}, "none", ""},
		"activate: none before":             {situation{state: with(activate, func(s *State) { s.Previous = nil }), trusts: all, issuers: []string{"b"}}, "l/8 Stable Due current b pending - previous - request - done -", ""},
		"activate: due itself":              {situation{state: activate, at: 300 * day, trusts: all, issuers: []string{"a"}}, "none", ""},

		// Three of them, after a merge.
		"three: one serves the first":    {situation{state: with(hold, func(s *State) { s.Previous = ext(c) }), at: testHold, trusts: all, issuers: []string{"a", "c"}}, "none", ""},
		"three: replicas unknown":        {situation{state: with(hold, func(s *State) { s.Previous = ext(c) }), at: testHold, trusts: all, unknown: true}, "none", ""},
		"three: all serve the second":    {situation{state: with(hold, func(s *State) { s.Previous = ext(c) }), at: testHold, trusts: all, issuers: []string{"a"}}, "l/8 Activate Due current b pending - previous a(no key) request - done -", ""},
		"three: emergency waits":         {situation{state: with(cause(hold, Emergency), func(s *State) { s.Previous = ext(c) }), at: time.Minute, trusts: all, issuers: []string{"c"}}, "none", ""},
		"three: emergency waits no more": {situation{state: with(cause(hold, Emergency), func(s *State) { s.Previous = ext(c) }), at: time.Minute + 1, trusts: all, issuers: []string{"c"}}, "l/8 Activate Emergency current b pending - previous a(no key) request - done -", ""},

		// What was seen counts, not what a clock said that may have been wrong.
		"watched: begun long ago elsewhere":  {situation{state: hold, at: 20 * time.Minute, watched: 15 * time.Minute, trusts: all}, "none", ""},
		"watched: begun tomorrow elsewhere":  {situation{state: since(hold, day), at: 20 * time.Minute, watched: 10 * time.Minute, trusts: all}, "l/8 Activate Due current b pending - previous a(no key) request - done -", ""},
		"watched: trust lost, a moment":      {situation{state: hold, at: 20 * time.Minute, watched: 15 * time.Minute, trusts: map[string]time.Duration{}}, "none", ""},
		"watched: emergency waits":           {situation{state: cause(activate, Emergency), at: day, watched: day - time.Minute, trusts: all, issuers: []string{"a"}}, "none", ""},
		"watched: emergency from tomorrow":   {situation{state: cause(since(activate, day), Emergency), at: 2 * time.Minute, watched: 1, trusts: all, issuers: []string{"a"}}, "l/8 Stable Emergency current b pending - previous - request - done -", "without waiting for 1"},
		"watched: nobody reports, for hours": {situation{state: activate, at: 8 * day, watched: 7 * day, trusts: all}, "none", ""},

		// Ends and clocks.
		"the end itself":             {situation{state: stable, at: end, trusts: all}, "l/8 Publish Due current a pending new previous - request - done -", ""},
		"ended":                      {situation{state: stable, at: end + time.Second}, "l/8 Activate Recovery current new pending - previous - request - done -", "calls fail until every registration has it"},
		"ended, with a wish":         {situation{state: asked(stable, calm), at: end + time.Second}, "l/8 Activate Recovery current new pending - previous - request - done r", ""},
		"ended in an emergency":      {situation{state: asked(pending(hold, late), hurry), at: end + time.Second}, "l/8 Activate Recovery current new pending - previous - request - done r", ""},
		"ended, pending of tomorrow": {situation{state: pending(hold, year("b", epoch().Add(end+48*time.Hour))), at: end + time.Second}, "l/8 Activate Recovery current new pending - previous - request - done -", ""},
		"ended while activating":     {situation{state: activate, at: end + time.Second, issuers: []string{"a"}}, "l/8 Activate Recovery current new pending - previous - request - done -", ""},
		"ended and no randomness":    {situation{state: stable, at: end + time.Second, broken: true}, "none", "no randomness"},
		"before it began":            {situation{state: stable, at: -25 * time.Hour}, "none", "the CA is not valid before 2026-11-19T09:00:00Z: check the clock of this machine"},
		"before it began, wish":      {situation{state: asked(stable, calm), at: -25 * time.Hour}, "none", "check the clock"},
		"before it began, emergency": {situation{state: asked(stable, hurry), at: -25 * time.Hour}, "l/8 Activate Recovery current new pending - previous a(no key) request - done r", "a new one signs at once"},
		"just when it began":         {situation{state: stable, at: -24 * time.Hour}, "none", ""},
		"a phase that there is not":  {situation{state: State{Phase: "Retire", Current: a}}, "none", `unknown phase "Retire"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			next, what, err := c.step(t)
			got := show(next)
			want := strings.Replace(c.want, "done -", "done ", 1)
			if got != want {
				t.Errorf("%s\nwant %s (%s, %v)", got, want, what, err)
			}
			if err != nil {
				what = err.Error()
			}
			if !strings.Contains(what, c.what) || c.what == "" && err != nil {
				t.Errorf("%q, want %q", what, c.what)
			}
		})
	}
}

func TestWaiting(t *testing.T) {
	t.Parallel()
	s := &State{Phase: Activate, Current: year("b", epoch()), Previous: external(year("a", epoch()))}
	old := year("a", epoch()).ID()
	now := epoch()
	o := &Observation{Now: now, Replicas: []Report{
		{Replica: "serves none"},
		{Replica: "changed over", Issuer: s.Current.ID(), NotAfter: now.Add(time.Hour)},
		{Replica: "away", Issuer: old, NotAfter: now.Add(time.Hour), Seen: now.Add(-day)},
		{Replica: "ends now", Issuer: old, NotAfter: now},
		{Replica: "has ended", Issuer: old, NotAfter: now.Add(-time.Second)},
		{Replica: "of a third CA", Issuer: "x", NotAfter: now.Add(time.Hour)},
	}}
	if got, want := s.Waiting(o), []string{"away", "ends now", "of a third CA"}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}
