package rotation

import (
	"fmt"
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
