package sidecar

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/gatehouse-dev/gatehouse/webhooks/rawjson"
)

// checkPorts finds ports of the pod that clash with those of the elements that
// are to be added. Ports of the profile's own elements do not clash: Compile
// has seen to it.
func (pl *plan) checkPorts() error {
	p := pl.pod
	for _, l := range [...]list{initContainers, containers} {
		for i := p.lists[l].from; i < p.lists[l].to; i++ {
			it := p.item(i)
			for k, element := range it.ports.Elements() {
				port, err := readPort(element)
				if err != nil {
					return fmt.Errorf("spec.%s[%d].ports[%d]: %w", l, i-p.lists[l].from, k, err)
				}
				for {
					// A plain init container has ended before containers start,
					// but native sidecars run beside it.
					where, at, theirs, field := pl.clash(&port, it, l == initContainers && !it.native)
					if field == "" {
						break
					}
					owner := &pl.profile.elements[where][at]
					path := fmt.Sprintf("spec.%s[%d].ports[%d].%s", l, i-p.lists[l].from, k, field)
					message := fmt.Sprintf("%s is declared by container %q of sidecar profile %q too", port.text(field), owner.name, pl.profile.name)
					if !pl.conflict(path, "change the port, or "+pl.profile.declineHint(), message) {
						break
					}
					if err := pl.dropPort(where, at, theirs); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// clash tells which port of a container that is to be added clashes with one of
// the pod's, and over which field.
func (pl *plan) clash(port *declaredPort, of *item, beforeContainers bool) (l list, element, which int, field string) {
	for l := initContainers; l <= containers; l++ {
		if l == containers && beforeContainers {
			continue
		}
		for i := range pl.profile.elements[l] {
			e := &pl.profile.elements[l][i]
			if f := pl.fate(l, i); !e.runs(l) || f.what != toAdd && f.what != replaced && f.what != merged || of.name.Is(e.name) {
				continue
			}
			ports := pl.rendered.elements[l][i].ports
			for k := range ports {
				if field := port.clash(&ports[k]); field != "" && !slices.Contains(pl.fate(l, i).dropped, k) {
					return l, i, k, field
				}
			}
		}
	}
	return 0, 0, 0, ""
}

// dropPort leaves a port out of a container that is to be added.
func (pl *plan) dropPort(l list, i, which int) error {
	if pl.fates[l] == nil {
		pl.fates[l] = make([]fate, len(pl.profile.elements[l]))
	}
	f := &pl.fates[l][i]
	f.dropped = append(f.dropped, which)
	container := rawjson.Value(pl.rendered.elements[l][i].raw)
	ports := container.Get("ports")
	if len(f.dropped) == ports.Len() {
		f.raw = without(container, "ports")
		return nil
	}
	var left []part
	for k, port := range ports.Elements() {
		if !slices.Contains(f.dropped, k) {
			left = append(left, part{raw: json.RawMessage(port)})
		}
	}
	e := editor{text: container}
	err := e.replace("", ports, array(left))
	f.raw = e.result()
	return err
}
