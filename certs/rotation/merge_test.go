package rotation

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestMerge(t *testing.T) {
	t.Parallel()
	now := epoch().Add(time.Hour)
	a, b, c, d := year("a", epoch()), year("b", epoch()), year("c", epoch()), year("d", epoch())
	ended := paper("e", epoch().Add(-2*day), epoch())
	older := func(g int64, p Phase, current, pending, previous *Authority) *State {
		return &State{Lineage: "old", Created: epoch(), Generation: g, Phase: p, Current: current, Pending: pending, Previous: previous}
	}
	younger := func(g int64, p Phase, current, pending, previous *Authority) *State {
		s := older(g, p, current, pending, previous)
		s.Lineage, s.Created = "new", epoch().Add(time.Second)
		return s
	}
	stable := older(5, Stable, a, nil, nil)
	for name, c := range map[string]struct {
		remembered, found *State
		want              string
	}{
		"nothing at all":                     {nil, nil, "none"},
		"just begun":                         {nil, stable, "old/5 Stable  current a pending - previous - request - done "},
		"lost":                               {stable, nil, "old/5 Stable  current a pending - previous - request - done "},
		"the same":                           {stable, older(5, Stable, a, nil, nil), "old/5 Stable  current a pending - previous - request - done "},
		"somebody went on":                   {stable, older(6, Publish, a, b, nil), "old/6 Publish  current a pending b previous - request - done "},
		"a rotation was missed":              {stable, older(9, Stable, b, nil, nil), "old/9 Stable  current b pending - previous - request - done "},
		"an old backup":                      {older(9, Stable, b, nil, nil), stable, "old/9 Stable  current b pending - previous - request - done "},
		"two of one generation":              {older(5, Stable, a, nil, nil), older(5, Stable, b, nil, nil), lowest(a, b)},
		"the other way round":                {older(5, Stable, b, nil, nil), older(5, Stable, a, nil, nil), lowest(a, b)},
		"a younger one":                      {stable, younger(1, Stable, c, nil, nil), "old/6 Activate Recovery current a pending - previous c(no key) request - done "},
		"a younger, later one":               {stable, younger(8, Stable, c, nil, nil), "old/9 Activate Recovery current a pending - previous c(no key) request - done "},
		"a younger one, ended":               {stable, younger(1, Stable, ended, nil, nil), "old/6 Stable  current a pending - previous - request - done "},
		"a younger one, same CA":             {stable, younger(1, Stable, a, nil, nil), "old/6 Stable  current a pending - previous - request - done "},
		"a younger one, publish":             {older(5, Publish, a, b, nil), younger(1, Stable, c, nil, nil), "old/6 Publish  current a pending b previous c(no key) request - done "},
		"a younger one, activate":            {older(5, Activate, b, nil, external(a)), younger(1, Stable, c, nil, nil), "old/6 Activate  current b pending - previous a(no key) request - done "},
		"an older one":                       {younger(5, Stable, c, nil, nil), stable, "old/6 Publish Recovery current c pending a previous - request - done "},
		"an older, later one":                {younger(5, Stable, c, nil, nil), older(8, Stable, a, nil, nil), "old/9 Publish Recovery current c pending a previous - request - done "},
		"an older one, ours over":            {younger(5, Stable, ended, nil, nil), stable, "old/5 Stable  current a pending - previous - request - done "},
		"an older one that has it pending":   {younger(5, Stable, c, nil, nil), older(5, Hold, a, c, nil), "old/5 Hold  current a pending c previous - request - done "},
		"an older one that had it":           {younger(5, Stable, c, nil, nil), older(5, Activate, a, nil, external(c)), "old/5 Activate  current a pending - previous c(no key) request - done "},
		"an older one amid a rotation":       {younger(5, Stable, c, nil, nil), older(5, Hold, a, b, nil), "old/6 Publish  current c pending b previous a(no key) request - done "},
		"an older one, ours amid a rotation": {younger(5, Hold, c, d, nil), stable, "old/6 Publish Recovery current c pending a previous d(no key) request - done "},
		"an older one that activates":        {younger(5, Stable, c, nil, nil), older(5, Activate, b, nil, external(a)), "old/6 Publish Recovery current c pending b previous - request - done "},
		"made in one moment": {
			&State{Lineage: "y", Created: epoch(), Generation: 1, Phase: Stable, Current: a},
			&State{Lineage: "x", Created: epoch(), Generation: 1, Phase: Stable, Current: b}, "x/2 Publish Recovery current a pending b previous - request - done ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := Merge(c.remembered, c.found, now)
			if show(got) != c.want {
				t.Errorf("%s\nwant %s", show(got), c.want)
			}
			if again := Merge(c.remembered, got, now); again != got {
				t.Errorf("after it was written: %s, and before %s", show(again), show(got))
			}
		})
	}
}

// lowest is how the state shows that holds of two of one generation.
func lowest(a, b *Authority) string {
	if b.ID() < a.ID() {
		a = b
	}
	return fmt.Sprintf("old/5 Stable  current %s pending - previous - request - done ", a.Cert.Raw)
}

// randomState is any state that Encode could have written.
func randomState(r *rand.Rand, lineage int) *State {
	authority := func() *Authority { return year(string(rune('a'+r.IntN(6))), epoch()) }
	s := &State{
		Lineage: string(rune('x' + lineage)), Created: epoch().Add(time.Duration(lineage/2) * time.Hour), Generation: 1 + r.Int64N(4),
		Phase: []Phase{Stable, Publish, Hold, Activate}[r.IntN(4)], Current: authority(),
	}
	switch s.Phase {
	case Publish, Hold:
		s.Pending = authority()
	case Activate:
		if r.IntN(4) > 0 {
			s.Previous = external(authority())
		}
	case Stable:
	}
	return s
}

// settle lets replicas read, merge and write in the order that the numbers give,
// until nobody has anything to write, and returns what is stored then.
func settle(t *testing.T, r *rand.Rand, memory []*State, stored *State) *State {
	t.Helper()
	memory = append([]*State(nil), memory...)
	writes := 0
	for quiet := 0; quiet < 1; {
		quiet = 1
		for _, i := range r.Perm(len(memory)) {
			result := Merge(memory[i], stored, epoch())
			if result != stored {
				stored = result
				quiet = 0
				if writes++; writes > 10*len(memory) {
					t.Fatal("writing does not end")
				}
			}
			memory[i] = stored
		}
	}
	for i := range memory {
		if memory[i] != stored {
			t.Fatalf("replica %d has %s, and %s is stored", i, show(memory[i]), show(stored))
		}
	}
	return stored
}

// Whoever writes first, all come to one state, and it is the same one but for
// how far they are on the way to it.
func TestMergeConverges(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		lineages := 1 + r.IntN(3)
		// Whoever remembers a lineage remembers the same of it, but for forks of one.
		states := make([]*State, lineages)
		for l := range states {
			states[l] = randomState(r, l)
		}
		pick := func() *State {
			switch l := r.IntN(lineages + 1); {
			case l == lineages:
				return nil
			case lineages == 1:
				return randomState(r, 0)
			default:
				return states[l]
			}
		}
		memory := make([]*State, 1+r.IntN(5))
		for i := range memory {
			memory[i] = pick()
		}
		stored := pick()
		if r.IntN(3) > 0 && stored != nil {
			// Somebody remembers what is there. Otherwise who comes first may find that
			// all others forget it.
			memory = append(memory, stored)
		}

		first := settle(t, r, memory, stored)
		oldest := stored
		for _, s := range memory {
			if s != nil && (oldest == nil || s.Created.Before(oldest.Created) || s.Created.Equal(oldest.Created) && s.Lineage < oldest.Lineage) {
				oldest = s
			}
		}
		if (first == nil) != (oldest == nil) || first != nil && first.Lineage != oldest.Lineage {
			t.Fatalf("seed %d: %s, and the oldest is %s", seed, show(first), show(oldest))
		}
		for range 5 {
			again := settle(t, r, memory, stored)
			if lineages == 1 && show(again) != show(first) {
				t.Fatalf("seed %d: %s, and in another order %s", seed, show(again), show(first))
			}
			if heir(again) != heir(first) {
				t.Fatalf("seed %d: %s, and in another order %s", seed, show(again), show(first))
			}
		}
	}
}

// heir is the CA that signs in the end.
func heir(s *State) string {
	switch {
	case s == nil:
		return ""
	case s.Pending != nil:
		return s.Pending.ID()
	default:
		return s.Current.ID()
	}
}

// A merge loses no CA that signs, neither of what was found nor of what is
// remembered, unless its lineage went on without it or there are three of them.
func TestMergeKeepsWhatSigns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1))
		remembered, found := randomState(r, r.IntN(3)), randomState(r, r.IntN(3))
		got := Merge(remembered, found, epoch())
		if again := Merge(remembered, found, epoch()); show(again) != show(got) {
			t.Fatalf("seed %d: %s, then %s", seed, show(got), show(again))
		}
		if again := Merge(remembered, got, epoch()); again != got {
			t.Fatalf("seed %d: %s, and after it was written %s", seed, show(got), show(again))
		}
		if got != remembered && got != found && got.Generation != max(remembered.Generation, found.Generation)+1 {
			t.Fatalf("seed %d: generation %d of %d and %d", seed, got.Generation, remembered.Generation, found.Generation)
		}
		if remembered.Lineage == found.Lineage {
			if got.Generation != max(remembered.Generation, found.Generation) {
				t.Fatalf("seed %d: %s of %s and %s", seed, show(got), show(remembered), show(found))
			}
			continue
		}
		if !got.has(remembered.Current) {
			t.Fatalf("seed %d: %s lacks what %s serves", seed, show(got), show(remembered))
		}
		if p := remembered.Previous; p != nil && !got.has(p) && got != found {
			t.Fatalf("seed %d: %s lacks what some of %s serve", seed, show(got), show(remembered))
		}
		if remembered.Previous == nil && found.Phase == Stable && !got.has(found.Current) {
			t.Fatalf("seed %d: %s lacks what %s serves", seed, show(got), show(found))
		}
	}
}
