package podtext

import (
	"slices"
	"testing"
)

// TestTakenPorts compares the port that is found with the first of all that clashes.
func TestTakenPorts(t *testing.T) {
	t.Parallel()
	var kinds Ports
	for _, hostPort := range []int32{0, 1} {
		for _, ip := range []string{"", "10.0.0.1", "10.0.0.2"} {
			for _, number := range []int32{0, 1} {
				for _, container := range []string{"a", "b", "c"} {
					kinds = append(kinds, Port{HostPort: hostPort, hostIP: ip, ContainerPort: number, Container: container})
				}
			}
		}
	}
	first := func(list Ports, p *Port) (*Port, string) {
		for i := range list {
			if field := p.ConflictsOver(&list[i]); field != "" {
				return &list[i], field
			}
		}
		return nil, ""
	}
	var check func(list Ports)
	check = func(list Ports) {
		var taken PortIndex
		for i := range list {
			want, wantField := first(taken.ports, &list[i])
			if got, field := taken.Conflict(&list[i]); got != want || field != wantField {
				t.Fatalf("%+v: %+v over %q, want %+v over %q", list[:i+1], got, field, want, wantField)
			}
			taken.Add(&list[i])
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
