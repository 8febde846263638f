package sidecar

import (
	"slices"
	"testing"
)

// TestTakenPorts compares the port that is found with the first of all that clashes.
func TestTakenPorts(t *testing.T) {
	t.Parallel()
	var kinds portList
	for _, hostPort := range []int32{0, 1} {
		for _, ip := range []string{"", "10.0.0.1", "10.0.0.2"} {
			for _, number := range []int32{0, 1} {
				for _, container := range []string{"a", "b", "c"} {
					kinds = append(kinds, declaredPort{hostPort: hostPort, hostIP: ip, number: number, container: container})
				}
			}
		}
	}
	first := func(list portList, p *declaredPort) (*declaredPort, string) {
		for i := range list {
			if field := p.clash(&list[i]); field != "" {
				return &list[i], field
			}
		}
		return nil, ""
	}
	var check func(list portList)
	check = func(list portList) {
		var taken takenPorts
		for i := range list {
			want, wantField := first(taken.list, &list[i])
			if got, field := taken.clash(&list[i]); got != want || field != wantField {
				t.Fatalf("%+v: %+v over %q, want %+v over %q", list[:i+1], got, field, want, wantField)
			}
			taken.add(&list[i])
		}
		const longest = 3
		if len(list) == longest {
			return
		}
		for i := range kinds {
			check(append(slices.Clip(list), kinds[i]))
		}
	}
	check(nil)
}
