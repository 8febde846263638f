package profile

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gatehouse-dev/gatehouse/webhooks/document/diagnostic"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// Link connects profiles that name each other. It returns their indexes in the order
// in which their containers stand. The profiles are sorted by name.
func Link(profiles []*Profile) (order []int, found diagnostic.List) {
	names := make([]string, len(profiles))
	for i, p := range profiles {
		names[i] = p.Name
	}
	report := func(p *Profile, severity diagnostic.Severity, path, hint, format string, args ...any) {
		found = append(found, diagnostic.Diagnostic{
			Severity: severity, Source: p.source, Object: "SidecarProfile/" + p.Name, Field: path,
			Message: fmt.Sprintf(format, args...), Hint: hint,
		})
	}
	// involve names the profiles that take part in what was reported last.
	involve := func(others ...int) {
		last := &found[len(found)-1]
		for _, k := range others {
			if name := "SidecarProfile/" + profiles[k].Name; name != last.Object && !slices.Contains(strings.Fields(last.Others), name) {
				last.Others = strings.TrimSpace(last.Others + " " + name)
			}
		}
	}
	for i, p := range profiles {
		if p.Replaces == "" {
			continue
		}
		const path = "spec.rollout.replaces"
		k, known := slices.BinarySearch(names, p.Replaces)
		switch {
		case !known:
			report(p, diagnostic.Error, path, diagnostic.DidYouMean(p.Replaces, names...), "%q is not the name of a sidecar profile", p.Replaces)
		case k == i:
			report(p, diagnostic.Error, path, "", "a profile cannot replace itself")
		case profiles[k].Replaces != "":
			report(p, diagnostic.Error, path, "", "profile %q itself replaces another profile", p.Replaces)
			involve(k)
		case profiles[k].ReplacedBy >= 0:
			report(p, diagnostic.Error, path, "", "profile %q is already replaced by %q", p.Replaces, profiles[profiles[k].ReplacedBy].Name)
			involve(profiles[k].ReplacedBy)
		default:
			profiles[k].ReplacedBy = i
		}
	}
	// follows[i] are the profiles that stand behind profile i.
	follows := make([][]int, len(profiles))
	for i, p := range profiles {
		for _, side := range []struct {
			path    string
			names   []string
			forward bool
		}{{"spec.placement.before", p.before, true}, {"spec.placement.after", p.after, false}} {
			for n, name := range side.names {
				path := fmt.Sprintf("%s[%d]", side.path, n)
				k, known := slices.BinarySearch(names, name)
				switch {
				case !known:
					report(p, diagnostic.Warning, path, diagnostic.DidYouMean(name, names...), "%q is not the name of a sidecar profile, and is ignored", name)
					continue
				case k == i:
					report(p, diagnostic.Error, path, "", "a profile cannot be placed before or after itself")
					continue
				}
				ahead, behind := i, k
				if !side.forward {
					ahead, behind = k, i
				}
				follows[ahead] = append(follows[ahead], behind)
				for l := podtext.InitContainers; l <= podtext.Containers; l++ {
					if profiles[ahead].contradicts(profiles[behind], l) {
						report(p, diagnostic.Error, path, "", "profile %q places its %s Last and profile %q places them First: the first cannot be placed before the second",
							profiles[ahead].Name, l, profiles[behind].Name)
						involve(ahead, behind)
					}
				}
			}
		}
	}
	order, cycle := topologicalOrder(follows)
	if len(cycle) > 0 {
		chain := make([]string, len(cycle))
		for i, k := range cycle {
			chain[i] = profiles[k].Name
		}
		report(profiles[cycle[0]], diagnostic.Error, "spec.placement", "", "the placement of profiles has a cycle: %s", strings.Join(chain, " before "))
		involve(cycle...)
	}
	return order, found
}

// contradicts reports whether the profile cannot stand before another in a list,
// because of where they stand to the pod's own.
func (p *Profile) contradicts(behind *Profile, l podtext.List) bool {
	return len(p.Elements[l]) > 0 && len(behind.Elements[l]) > 0 && !p.First[l] && behind.First[l]
}

// topologicalOrder returns a topological order in which, wherever there is a choice, the lowest
// index comes first; or a cycle, whose first element is repeated at its end.
func topologicalOrder(follows [][]int) (order, cycle []int) {
	waits := make([]int, len(follows))
	for _, behind := range follows {
		for _, k := range behind {
			waits[k]++
		}
	}
	const done = -1
	for len(order) < len(follows) {
		next := slices.Index(waits, 0)
		if next < 0 {
			return nil, findCycle(follows, waits)
		}
		waits[next] = done
		order = append(order, next)
		for _, k := range follows[next] {
			waits[k]--
		}
	}
	return order, nil
}

// findCycle returns a cycle, whose first element is repeated at its end, among what waits for
// something: every element of it is part of one or behind one.
func findCycle(follows [][]int, waits []int) []int {
	ahead := make(map[int]int)
	for i, behind := range follows {
		for _, k := range behind {
			if _, known := ahead[k]; !known && waits[i] > 0 {
				ahead[k] = i
			}
		}
	}
	at := slices.IndexFunc(waits, func(n int) bool { return n > 0 })
	var path []int
	for !slices.Contains(path, at) {
		path = append(path, at)
		at = ahead[at]
	}
	path = append(path[slices.Index(path, at):], at)
	slices.Reverse(path)
	return path
}
