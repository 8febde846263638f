package inject

import (
	"fmt"
	"slices"

	rawjson "github.com/gatehouse-dev/gatehouse/webhooks/json"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/merge"
	"github.com/gatehouse-dev/gatehouse/webhooks/sidecar/podtext"
)

// checkPorts finds ports of the pod that conflict with those of the elements that are
// added. The profile's own ports do not conflict: Compile has checked them.
func (inj *injection) checkPorts() error {
	if !inj.in.Rendered.HasPorts {
		return nil
	}
	p := inj.now.Pod
	for _, l := range [...]podtext.List{podtext.InitContainers, podtext.Containers} {
		for i := p.Lists[l].From; i < p.Lists[l].To; i++ {
			it := p.Element(i)
			for k, element := range it.Ports.Elements() {
				port, err := podtext.ReadPort(element)
				if err != nil {
					return fmt.Errorf("spec.%s[%d].ports[%d]: %w", l, i-p.Lists[l].From, k, err)
				}
				for {
					// A plain init container has ended before containers start,
					// but native sidecars run beside it.
					where, at, theirs, field := inj.conflictingPort(&port, it, l == podtext.InitContainers && !it.IsNative)
					if field == "" {
						break
					}
					owner := &inj.in.Profile.Elements[where][at]
					path := fmt.Sprintf("spec.%s[%d].ports[%d].%s", l, i-p.Lists[l].From, k, field)
					message := fmt.Sprintf("%s is also declared by container %q of sidecar profile %q", port.Describe(field), owner.Name, inj.in.Profile.Name)
					if !inj.conflict(path, "change the port, or "+inj.in.Profile.DeclineHint(), message) {
						break
					}
					if err := inj.dropPort(where, at, theirs); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// conflictingPort returns the port of a container that is added which conflicts with one
// of the pod's, and the field in which.
func (inj *injection) conflictingPort(port *podtext.Port, of *podtext.Element, beforeContainers bool) (l podtext.List, element, which int, field string) {
	for l := podtext.InitContainers; l <= podtext.Containers; l++ {
		if l == podtext.Containers && beforeContainers {
			continue
		}
		for i := range inj.in.Profile.Elements[l] {
			e := &inj.in.Profile.Elements[l][i]
			if f := inj.action(l, i); !e.RunsWithOthers(l) || f.kind != add && f.kind != replace && f.kind != mergeInto || of.Name.Is(e.Name) {
				continue
			}
			ports := inj.in.Rendered.Elements[l][i].Ports
			for k := range ports {
				if field := port.ConflictsOver(&ports[k]); field != "" && !slices.Contains(inj.action(l, i).dropped, k) {
					return l, i, k, field
				}
			}
		}
	}
	return 0, 0, 0, ""
}

func (inj *injection) dropPort(l podtext.List, i, which int) error {
	if inj.actions[l] == nil {
		inj.actions[l] = make([]action, len(inj.in.Profile.Elements[l]))
	}
	f := &inj.actions[l][i]
	f.dropped = append(f.dropped, which)
	container := rawjson.Value(inj.in.Rendered.Elements[l][i].Raw)
	ports := container.Get("ports")
	if len(f.dropped) == ports.Len() {
		f.raw = merge.RemoveMembers(container, "ports")
		return nil
	}
	left := merge.FilterElements(ports, func(k int, _ rawjson.Value) bool { return !slices.Contains(f.dropped, k) })
	var err error
	f.raw, err = merge.SetMember(container, container, "ports", string(left))
	return err
}
